"""``layerline timeline``: one iteration of every side of a run, for ui.perfetto.dev."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ...core.capture_names import CaptureName
from ...core.cli.options import FilePath, examples, run_argument
from ...core.cli.progress import log, progress
from ...core.errors import InputError
from ...core.run import Run, open_run
from ...engines.command import given_precisions
from ..rundir import age, incomplete
from ..rundir.files import spare
from ..rundir.problems import Problems, failed
from .report import TIMELINE as FILE

if TYPE_CHECKING:
    from ..captures.captured import Captured


@click.command(
    epilog=examples(
        "layerline timeline runs/gpt2",
        "layerline timeline runs/gpt2 --precision fp16 --iteration 3",
    )
)
@run_argument()
@click.option(
    "-o",
    "--output",
    type=FilePath(dir_okay=False),
    help=f"The file to write, compressed if it ends in .gz.  [default: RUN/report/{FILE}]",
)
@click.option(
    "--precision",
    "wanted",
    multiple=True,
    callback=given_precisions,
    help="Only sides of these precisions; repeat it or join with commas.",
)
@click.option(
    "--iteration",
    type=click.IntRange(min=0, max=2**63 - 1),
    help="The iteration to show, from 0; every side must have it.  [default: the median one of "
    "each side]",
)
def timeline(
    run_path: Path, output: Path | None, wanted: tuple[str, ...], iteration: int | None
) -> None:
    """Write an iteration of every side as a trace for ui.perfetto.dev.

    It shows modules, layers, kernels by stream, hardware counters, host operators and calls. Open
    the file in https://ui.perfetto.dev ("Open trace file"); it stays on your machine.

    It reads files only. It ends with 1 where a file of the run cannot be used; the timeline is
    written all the same, from what can be used.
    """
    from ..captures import inventory
    from ..captures.files import model
    from ..pipeline import counters
    from ..timeline import writer
    from ..timeline.captures import lines, of_run

    if output is not None and output.name.endswith((".json", ".json.gz")):
        raise InputError(
            "a timeline is written in Perfetto's protobuf format, not as JSON",
            file=output,
            fix="call it .perfetto-trace",
        )
    run = open_run(run_path)
    path = output or run.file("report", FILE)
    spare(run, path)
    if output is None:
        age.check(run)  # it would lie beside a report of other captures
    with progress("drawing the timeline"):
        problems = Problems()
        captured = inventory.read(run, model(run, problems), problems)
        if not captured:
            problems.raise_first()
        missing = [one for one in problems.listed(run) if "file" in one]
        lacking = [p for p in wanted if all(c.sides[-1].side.precision != p for c in captured)]
        if lacking or not captured:
            _say(missing)
            if not lacking:
                raise incomplete.nothing(run)
            what = f"no capture in {', '.join(lacking)}"
            raise InputError(what, file=run.path, fix="layerline profile measures it")
        if wanted:
            captured = [c for c in captured if c.sides[-1].side.precision in wanted]
        if iteration is not None:
            _require(run, captured, iteration)
        of_counters = Problems()
        counted = counters(run, of_counters)
        missing += [one for one in of_counters.listed(run) if one not in missing]
        unlike, doubtful = incomplete.unlike(run, missing)
        missing += [one for one in unlike if "file" in one]
        if doubtful:
            log(incomplete.line(doubtful))
        _say([one for one in missing if "file" not in one])
        unused = [one for one in missing if "file" in one and _is_wanted(one["file"], wanted)]
        groups = of_run(run, captured, counted, iteration)
        if not any(group.tracks for group in groups):
            raise InputError("there is nothing to draw", file=run.path, fix="profile it again")
        writer.write(path, groups)
    for group in groups:
        for line in lines(group):
            log(line)
    click.echo(path)
    if error := failed(unused, path):
        raise error


def _is_wanted(file: str, wanted: Sequence[str]) -> bool:
    """Whether what is left out would be there: not of a precision that was not asked for."""
    own = CaptureName.parse(file)
    return not wanted or own is None or own.precision in wanted


def _say(missing: Iterable[Mapping[str, Any]]) -> None:
    for one in missing:
        log(f"without {one['what']}: {one['why']}; {one['fix']}")


def _require(run: Run, captured: Sequence[Captured], iteration: int) -> None:
    """InputError where a side has iterations, and not this one: it would be drawn empty."""
    from ..timeline.iteration import iterations

    have = {c.sides[-1].side.label: numbers for c in captured if (numbers := iterations(c.ops))}
    lacking = [label for label, numbers in have.items() if iteration not in numbers]
    if lacking:
        there = ", ".join(f"{label} {_ranges(numbers)}" for label, numbers in have.items())
        raise InputError(
            f"there is no iteration {iteration} of {', '.join(lacking)}",
            file=run.path,
            fix=f"there are: {there}; choose one that every side has, or fewer sides "
            "with --precision",
        )


def _ranges(numbers: Sequence[int]) -> str:
    """``0 to 13``, or ``0, 2 to 5``: ascending numbers."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in runs)
