"""``layerline timeline``: one iteration of every side of a run, for ui.perfetto.dev."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import InputError, ToolMissing
from ..core.progress import log, progress
from ..core.run import Run, open_run
from .report_command import TIMELINE as FILE

if TYPE_CHECKING:
    import pyarrow as pa


@click.command()
@click.argument("run_path", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help=f"The file to write; compressed if it ends in .gz. [default: RUN/report/{FILE}]",
)
@click.option("--precision", multiple=True, help="Only these sides; repeat it or join with commas.")
@click.option(
    "--iteration",
    type=click.IntRange(min=0),
    help="The iteration to show. [default: each side's median one]",
)
def timeline(
    run_path: Path, output: Path | None, precision: tuple[str, ...], iteration: int | None
) -> None:
    """Write one iteration of every side of RUN as one timeline, side beside side.

    Modules, layers, kernels by stream, hardware counters, host operators and calls. Open the file
    in https://ui.perfetto.dev ("Open trace file"); it stays on your machine. Reads files only.
    """
    from .perfetto import sides, trace
    from .pipeline import captures

    run = open_run(run_path)
    path = output or run.file("report", FILE)
    wanted = {p.strip() for given in precision for p in given.split(",") if p.strip()}
    with progress("timeline"):
        found, _ = captures(run)
        if wanted:
            found = [c for c in found if c.sides[-1].precision in wanted]
        if not found:
            what = (
                f"no capture in {', '.join(sorted(wanted))}" if wanted else "nothing was captured"
            )
            raise InputError(what, file=run.path, fix="run the profile stage (make profile)")
        made = sides.of_run(run, found, _counters(run), iteration)
        trace.write(path, made)
    for group in made:
        for line in trace.lines(group):
            log(line)
    click.echo(path)


def _counters(run: Run) -> pa.Table | None:
    from .counters_run import counters_of_run

    try:
        return counters_of_run(run)
    except ToolMissing as e:
        log(f"no counters in the timeline: {e.line()}")
        return None
