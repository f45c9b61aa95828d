"""``layerline accuracy``: where an engine goes wrong, by module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from ...core import documents
from ...core.accuracy.limits import Asked, Limits
from ...core.accuracy.precision_plan import PLANNED
from ...core.cli.accuracy_limits import limit_options
from ...core.cli.columns import aligned
from ...core.cli.options import FilePath, examples, given, no_use
from ...core.documents import ModuleError, ModuleErrors
from ...core.errors import InputError, one_line
from ...core.files import machine_lock
from ...core.run import open_run
from ...engines import backend as backends
from ...engines.backend import Backend
from ...engines.command import engine_options
from .. import steps
from ..engine import measure
from .located import located
from .search import MOST_TRIES

HEAD = ("module", "class", "error in", "error out", "{file}", "alone", "")
# What an engine is built from, whose errors stand beside it.
FILE, GRAPH = "ONNX file", "captured graph"
# Rows around the first wrong one that are printed; the file has all.
BEFORE, AFTER = 6, 4


@click.command(
    epilog=examples(
        "layerline accuracy runs/gpt2 --precision fp16",
        "layerline accuracy runs/gpt2 --precision fp16 --plan",
        "layerline engines runs/gpt2 --precision fp16 \\",
        "    --precision-plan runs/gpt2/fp16.tensorrt.plan.json",
    )
)
@engine_options
@limit_options
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Print every module, not only those around the first wrong one.",
)
@click.option(
    "--plan",
    "planned",
    is_flag=True,
    help="Find the fewest modules to keep in fp32 (default: of fp16). Each try builds and measures "
    "an engine.",
)
@click.option(
    "-o",
    "--output",
    type=FilePath(dir_okay=False),
    help="The plan's file.  [default: RUN/PRECISION.BACKEND.plan.json]",
)
@click.option(
    "--tries",
    type=click.IntRange(min=1),
    default=MOST_TRIES,
    show_default=True,
    help="With --plan: try at most so many engines.",
)
def accuracy(
    run_path: Path,
    wanted: tuple[str, ...],
    backend: str | None,
    min_cosine: dict[str, float],
    min_top1: dict[str, float],
    every: bool,
    planned: bool,
    output: Path | None,
    tries: int,
) -> None:
    """Find the module in which an engine goes wrong.

    For every module it prints the error of its output beside the error of what it was given, in
    the engine and in the ONNX file (of inductor, in the graph that it compiled). A module that
    makes an error of its own is built alone and run on eager's inputs (but for inductor). The
    report shows the result too.
    """
    from .values import Reference

    run, chosen = open_run(run_path), backends.choose(backend)
    reference = Reference(run)  # run when it is first asked for, once for all precisions
    limits = Asked(min_cosine, min_top1)
    if planned and not given("wanted"):
        wanted = tuple(p for p in wanted if p in PLANNED)
    if not planned:
        no_use(("output", "tries"), "without --plan")
    elif output is not None and len(wanted) != 1:
        raise click.UsageError("-o is one plan, of one --precision")
    for precision in wanted:
        if planned:
            of = measure.subject(run, precision, chosen)
            _require_onnx(of)
            _plan(of, limits.limits(precision), tries, output)
            continue
        subject = measure.subject(run, precision, chosen)
        found = located(subject, limits.limits(precision), reference)
        click.echo(f"{precision} {chosen.name}: {one_line(sentence(found, chosen))}")
        for line in _table(found, chosen, every):
            click.echo(f"  {line}")


def _require_onnx(of: measure.Subject) -> None:
    """InputError for an engine that is built from the model: its kernels have one precision."""
    if not of.backend.from_onnx:
        raise InputError(
            f"{of.backend.name} keeps no module in fp32, so there is no plan for it",
            fix="look for one with --backend onnxruntime or tensorrt",
        )


def _plan(of: measure.Subject, limits: Limits, tries: int, output: Path | None) -> None:
    """Search for a precision plan, print what it costs, write it where one is needed."""
    from . import planning

    repeat = steps.unprofiled({"iterations": None, "target": 0.02, "seconds": 5.0}, of.backend)
    backends.require(of.backend)
    with machine_lock(f"planning {of.precision} {of.backend.name}"):
        found = planning.plan(of, limits, repeat, tries)
    click.echo(f"{of.precision} {of.backend.name}")
    for line in planning.sentences(found):
        click.echo(f"  {one_line(line)}")
    if found.after is found.before:
        click.echo("  its outputs are right without a plan: none is written")
    else:
        file = output or of.run.file(f"{of.precision}.{of.backend.name}.plan.json")
        planning.write(found, of, limits, file)
        click.echo(f"  {file}")
    layers = documents.read(of.backend.layers(of.run, of.precision), documents.Layers).layers
    if of.precision not in {la.compute_precision for la in layers}:
        click.echo(
            f"  no layer of this engine is known to compute in {of.precision}; where one does, "
            "more may overflow"
        )


def sentence(found: ModuleErrors, backend: Backend) -> str:
    """The first wrong module, and what the evidence is."""
    first = next((m for m in found.modules if m.first_wrong), None)
    said = list(found.remarks)
    if first is not None:
        got = _error(first.error_out, first.nonfinite)
        name = f"{first.module or '(model)'} ({first.module_class})"
        said.insert(0, f"goes wrong in {name}: error {got} out, {_error(first.error_in)} in")
        if first.export is not None or first.export_nonfinite:
            file = _error(first.export, first.export_nonfinite)
            said.insert(1, f"in its {_source(backend)} {file}")
        if first.alone is not None or first.alone_nonfinite:
            part = _error(first.alone, first.alone_nonfinite)
            said.insert(2, f"alone, on eager's inputs, {part}")
        whole = next((m for m in found.modules if not m.module), None)
        if whole is not None and not whole.nonfinite and _within(whole.error_out, found.limit):
            said.append(f"the model's outputs are within the limit, error {whole.error_out:.2g}")
    return "; ".join(said)


def _within(error: float | None, limit: float | None) -> bool:
    return error is not None and limit is not None and error <= limit


def _source(backend: Backend) -> str:
    return FILE if backend.from_onnx else GRAPH


def _table(found: ModuleErrors, backend: Backend, every: bool) -> Iterator[str]:
    rows = found.modules
    first = next((i for i, m in enumerate(rows) if m.first_wrong), None)
    if not every and first is not None:
        rows = rows[max(0, first - BEFORE) : first + AFTER + 1]
    head = tuple(name.format(file=_source(backend)) for name in HEAD)
    return aligned(head, [_cells(m) for m in rows])


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
