"""`layerline parameters`: which parameters a training changes, and which are cold."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ...core.cli.options import FilePath, Finite, examples, once_each, run_argument
from ...core.cli.progress import log, progress
from ...core.errors import InputError, one_line
from ...core.files import apart, write_text
from ..parameters.hotness import COLD

_FILE = FilePath(dir_okay=False)


@click.command(
    epilog=examples(
        "layerline train gpt2 --run runs/train --profile parameters",
        "layerline parameters runs/train --by block --page parameters.html",
        "layerline parameters changes.log --index names.json -o ranking.csv",
    )
)
@run_argument("inputs", metavar="RUN|FILE…", many=True)
@click.option(
    "--by",
    type=click.Choice(["kind", "parameter", "block"]),
    default="kind",
    show_default=True,
    help="What the table lists after the answer.",
)
@click.option(
    "--cold",
    type=Finite(min=0, max=1),
    default=COLD,
    show_default=True,
    help="Call a parameter cold where a step changes a smaller share of its elements.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=30,
    show_default=True,
    help="How many rows to list.",
)
@click.option(
    "--index", type=_FILE, help="The file that says which parameter a number in a log is."
)
@click.option(
    "--resumed",
    is_flag=True,
    help="For logs of resumed runs: of iterations that are there twice, the later counts.",
)
@click.option(
    "-o", "--output", type=_FILE, help="Write the ranking to this file: .csv, .parquet or .json."
)
@click.option("--plot", type=_FILE, help="Draw a chart: .svg, .png or .pdf.")
@click.option("--page", type=_FILE, help="Write a page: .html.")
def parameters(
    inputs: tuple[Path, ...],
    by: str,
    cold: float,
    top: int,
    index: Path | None,
    resumed: bool,
    output: Path | None,
    plot: Path | None,
    page: Path | None,
) -> None:
    """Show which parameters a training changes, and which are cold.

    RUN was trained with `--profile parameters`; RUN/tables/parameters.parquet is then written. FILE
    is a .parameters.parquet, or any program's log of changes (unix time, iteration, index:count of
    each parameter that changed).
    """
    once_each(inputs)
    for written in (output, plot, page):
        apart(written, *inputs, index)
    _suffixes(output, plot, page)
    histories = _histories(inputs, index, resumed)
    from ..parameters import answer, hotness
    from ..report.parameters import text

    runs = [(history, hotness.of(history, cold)) for history in histories]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for history, ranked in runs:
        if len(runs) > 1:
            click.echo(f"{one_line(history.source)}:")
        for line in answer.sentences(history, ranked, cold):
            click.echo(one_line(line))
        click.echo()
        for line in text.lines(ranked, by, top, width):
            click.echo(line)
        click.echo()
    _write(runs, cold, output, plot, page)


def _suffixes(output: Path | None, plot: Path | None, page: Path | None) -> None:
    """InputError before any work is done."""
    from ..metrics import plots

    if plot is not None:
        plots.check(plot)
    wanted = ((output, (".csv", ".parquet", ".json")), (page, (".html",)))
    for path, suffixes in wanted:
        if path is not None and path.suffix not in suffixes:
            raise InputError(
                f"does not say how to write (suffix {path.suffix or 'missing'})",
                file=path,
                fix=f"use {', '.join(suffixes)}",
            )


def _histories(inputs: Sequence[Path], index: Path | None, resumed: bool) -> list[Any]:
    from ...core.run import open_run
    from ..captures import parameters as captured
    from ..parameters import history, load

    found: list[Any] = []
    for path in inputs:
        with progress(f"reading {path}"):
            if path.is_dir():
                run = open_run(path)
                here = captured.of_run(run)
                captured.write_table(run)
            else:
                here = load.of_files([path], index, resumed=resumed)
        if len(inputs) > 1:  # captures of two runs have the same name
            here = [replace(h, source=_where(path, h.source)) for h in here]
        found += here
    history.one_model(found)
    return found


def _where(path: Path, source: str) -> str:
    return str(path) if source == path.name else f"{path}, {source}"


def _write(
    runs: Any, cold: float, output: Path | None, plot: Path | None, page: Path | None
) -> None:
    from ..metrics.text import write_table
    from ..report.parameters import page as pages
    from ..report.parameters import plot as plots
    from ..report.parameters import text

    if output is not None:
        write_table(output, text.table(runs))
        log(f"wrote {output}")
    if plot is not None:
        plots.plot(runs, plot)
        log(f"wrote {plot}")
    if page is not None:
        write_text(page, pages.render(runs, cold))
        log(f"wrote {page}")
