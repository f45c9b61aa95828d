"""A run directory to its tables and the view of the report.

What was captured decides what is shown. What is missing and was not asked for is listed as
skipped, with the reason that its stage left.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ..core import tables
from ..core.errors import InputError, ToolMissing
from ..core.module_paths import ordered_tree
from ..core.run import Run
from .captures import captured, settings
from .captures import counters as counters_
from .captures import sweep as sweep_
from .captures.counters import counters_of_run, left_out
from .captures.inventory import _captures, _model
from .comparison import comparability, sweep
from .comparison.build import build
from .costs import modules
from .costs.iterations import sums
from .model.comparison import Comparison, Skipped
from .model.side import Model, SideData
from .rundir import problems, provenance, record
from .rundir.files import optional


@dataclass(frozen=True)
class Result:
    """The comparison, the tables by name, run.json without the files still to be written, the
    captures as read, and the files that may not be the run's own."""

    view: Comparison
    tables: dict[str, pa.Table]
    record: dict[str, Any]
    captures: list[captured.Captured] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)


def analyse(run: Run) -> Result:
    """Read every capture of the run. InputError where there is none, or none can be used."""
    with problems.collecting() as broken:
        result, skipped = _analyse(run, broken)
    skipped += broken.listed(run)
    unlike, doubtful = provenance.told(run, skipped)
    view = replace(result.view, skipped=[Skipped(**s) for s in (*skipped, *unlike)])
    return replace(result, view=view, doubtful=doubtful)


def _analyse(run: Run, broken: problems.Unusable) -> tuple[Result, list[dict[str, Any]]]:
    found, skipped = _captures(run)
    sides, parts = [s for c in found for s in c.sides], [c.ops for c in found]
    batches = None
    with problems.aside("the batch sweep"):
        batches = sweep_.load(run, captured.BACKENDS)
    if not sides and batches is None:
        broken.none_left()
        raise InputError(
            "nothing was captured", file=run.path, fix="run the profile stage (make profile)"
        )
    model = _model(run)
    known = settings.collect(run, sides)
    document = record.assemble(run, known)
    counted = counters(run, skipped)
    view = build(
        sides,
        model,
        comparability=comparability.differences(known),
        manifest=document,
        generated=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    if batches is not None:
        exported = optional(run.file("export", "model.json"))
        remarks = sweep.beside(batches, view.sides, exported.get("batch"), exported.get("seq"))
        batches = replace(batches, remarks=remarks)
    view = replace(view, counters=counters_.load(run, sides, counted, view), sweep=batches)
    result = Result(
        view,
        {
            "ops": pa.concat_tables(parts or [tables.table("ops", [])]),
            "layers": _layers(sides),
            "latency": _latency(sides),
            "modules": _modules(sides, model),
            **({} if counted is None else {"counters": counted}),
        },
        document,
        found,
    )
    return result, skipped


def counters(run: Run, skipped: list[dict[str, Any]]) -> pa.Table | None:
    """The counters of the run's ncu captures; what cannot be read or told is listed as
    skipped."""
    with problems.aside("counters"):
        skipped += left_out(run)
        try:
            return counters_of_run(run, skipped)
        except ToolMissing as e:
            skipped.append({"what": "counters", "why": e.what, "fix": e.fix or ""})
    return None


def _layers(sides: list[SideData]) -> pa.Table:
    parts = [s.layers for s in sides if s.layers is not None]
    return pa.concat_tables(parts) if parts else tables.table("layers", [])


def _latency(sides: list[SideData]) -> pa.Table:
    """Unprofiled latencies, `source` being the side's key: a capture may have several phases."""
    return tables.table(
        "latency",
        [
            {"source": s.key, "precision": s.precision, "iteration": i, "latency_ns": ns}
            for s in sides
            for i, ns in enumerate(s.latency_ns)
        ],
    )


def _modules(sides: list[SideData], model: Model) -> pa.Table:
    rows = []
    for side in sides:
        made = sums(side.ops, side.labels)
        about = {
            "side": side.side,
            "source": side.source,
            "precision": side.precision,
            "phase": side.phase,
        }
        paths = ordered_tree(model.paths, made.units())
        rows += modules.rows(about, made, paths, model.classes)
    return tables.table("modules", rows)
