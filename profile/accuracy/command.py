"""``layerline accuracy``: where an engine goes wrong, by module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from ...core import documents
from ...core.accuracy.limits import Asked, Limits
from ...core.cli.accuracy_limits import limit_options
from ...core.documents import ModuleError, ModuleErrors
from ...core.errors import one_line
from ...core.run import Step, open_run
from ...engines import backend as backends
from ...engines.command import engine_options
from .. import steps
from ..engine import measure
from . import locate as locate_
from . import values

HEAD = ("module", "class", "error in", "error out", "ONNX file", "alone", "")
# Rows around the first wrong one that are printed; the file has all.
BEFORE, AFTER = 6, 4


@click.command()
@engine_options
@limit_options
@click.option("--all", "every", is_flag=True, help="Print every module.")
def accuracy(
    path: Path,
    wanted: tuple[str, ...],
    backend: str | None,
    min_cosine: dict[str, float],
    min_top1: dict[str, float],
    every: bool,
) -> None:
    """Where an engine goes wrong: the error of each module's output against eager's.

    For every module its error out beside the error of what it was given, in the engine and in the
    ONNX file; a module that makes an error of its own is built alone and run on eager's inputs.
    Leaves captures/PRECISION.BACKEND.accuracy.modules.json, which the report shows.
    """
    run, chosen = open_run(path), backends.choose(backend)
    limits = Asked(min_cosine, min_top1)
    for precision in wanted:
        subject = measure.subject(run, precision, chosen)
        found = located(subject, limits.limits(precision))
        click.echo(f"{precision} {chosen.name}: {one_line(sentence(found))}")
        for line in _table(found.modules, every):
            click.echo(f"  {line}")


def located(of: measure.Subject, limits: Limits) -> ModuleErrors:
    """The errors by module, measured where they are not valid."""
    outputs = partial(measure.outputs, of)
    steps.of_engine(of, "outputs", {}, [".outputs.npz"], outputs)
    model = of.run.file("export", "model.json")
    inputs = [*of.inputs(), *values.reads(of), of.capture(".outputs.npz"), model]
    file = of.capture(locate_.SUFFIX)
    given = {"worker": of.worker_key(), "limits": limits._asdict()}
    step = Step(of.run, steps.name_of(of, "accuracy.modules"), given, inputs, [file])

    def work() -> dict[str, int]:
        return {"modules": len(locate_.locate(of, limits).modules)}

    steps.perform(step, work, lambda: backends.require(of.backend))
    return documents.read(file, ModuleErrors)


def sentence(found: ModuleErrors) -> str:
    """The first wrong module, and what the evidence is."""
    first = next((m for m in found.modules if m.first_wrong), None)
    said = list(found.remarks)
    if first is not None:
        got = _error(first.error_out, first.nonfinite)
        name = f"{first.module or '(model)'} ({first.module_class})"
        said.insert(0, f"goes wrong in {name}: error {got} out, {_error(first.error_in)} in")
        if first.export is not None or first.export_nonfinite:
            file = _error(first.export, first.export_nonfinite)
            said.insert(1, f"in its ONNX file {file}")
        if first.alone is not None or first.alone_nonfinite:
            part = _error(first.alone, first.alone_nonfinite)
            said.insert(2, f"alone, on eager's inputs, {part}")
    return "; ".join(said)


def _table(rows: Sequence[ModuleError], every: bool) -> Iterator[str]:
    first = next((i for i, m in enumerate(rows) if m.first_wrong), None)
    if not every and first is not None:
        rows = rows[max(0, first - BEFORE) : first + AFTER + 1]
    cells = [HEAD, *map(_cells, rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(HEAD))]
    for row in cells:
        yield "  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip()


def _cells(m: ModuleError) -> tuple[str, ...]:
    return (
        one_line(m.module) or "(model)",
        one_line(m.module_class or ""),
        _error(m.error_in),
        _error(m.error_out, m.nonfinite),
        _error(m.export, m.export_nonfinite),
        _error(m.alone, m.alone_nonfinite),
        ("<- first wrong; " if m.first_wrong else "") + one_line(m.how),
    )


def _error(relative: float | None, nonfinite: int | None = None) -> str:
    if nonfinite:
        return f"{nonfinite:,} not finite"
    return "–" if relative is None else f"{relative:.2g}"
