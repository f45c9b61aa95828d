"""A run directory to its tables and the comparison that the report shows.

What was captured decides what is shown. What is missing and was not asked for is listed as
skipped, with the reason that its stage left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ..core import documents, tables
from ..core.accuracy.limits import DEFAULTS, Asked
from ..core.errors import ToolMissing
from ..core.module_paths import ordered_tree
from ..core.run import Run, now
from .captures import captured, columns, files, inventory, settings, sweep
from .captures import counters as counters_
from .comparison import comparability, two_runs
from .comparison.build import Context, build, judged
from .costs import modules
from .costs.measured import MeasuredSide
from .model.comparison import Comparison, Side, Skipped, Sweep
from .model.side import Model, SideFacts
from .rundir import incomplete, record
from .rundir.problems import Problems


@dataclass(frozen=True)
class Result:
    """The comparison, the tables by name, run.json without the files still to be written, the
    captures as read, and the files that may not be the run's own."""

    comparison: Comparison
    tables: dict[str, pa.Table]
    record: dict[str, Any]
    captures: list[captured.Captured] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)


def analyse(run: Run, limits: Asked = DEFAULTS) -> Result:
    """Read every capture of the run; `limits` are those that outputs are held to. InputError where
    there is none, or none can be used."""
    read = _read(run, limits)
    exported, sides, problems = read.exported, read.sides, read.problems
    swept = sweep.load(run, captured.BACKENDS, problems, [s.side for s in sides], exported)
    model, known, document = read.described(swept)
    table = counters(run, problems)
    counted = counters_.load(run, sides, table, problems)
    beside = columns.of_run(run, sides, exported, problems)
    skipped = problems.listed(run)
    not_as_left, doubtful = incomplete.unlike(run, skipped)
    context = Context(
        generated=now(),
        manifest=document,
        comparability=comparability.differences(known),
        skipped=[Skipped(**s) for s in (*skipped, *not_as_left)],
        columns=beside,
        load=comparability.load(known),
    )
    comparison = build(sides, model, context, sweep=swept, counters=counted, limits=limits)
    return Result(
        comparison,
        {
            "ops": pa.concat_tables([c.ops for c in read.captures] or [tables.table("ops", [])]),
            "layers": _layers(sides),
            "latency": _latency(sides),
            "modules": _modules(sides, model),
            **({} if table is None else {"counters": table}),
            **_accuracy(sides),
        },
        document,
        read.captures,
        doubtful,
    )


def both(a: tuple[str, Run], b: tuple[str, Run], limits: Asked = DEFAULTS) -> Comparison:
    """Two runs, each with its name, as one comparison: B's sides against A's. InputError where
    nothing of one of them can be used."""
    return two_runs.together(_of_run(*a, limits), _of_run(*b, limits), now(), limits)


def _of_run(name: str, run: Run, limits: Asked) -> two_runs.OfRun:
    read = _read(run, limits)
    model, known, document = read.described()
    skipped = [Skipped(**s) for s in read.problems.listed(run)]
    return two_runs.OfRun(name, read.sides, model, known, document, skipped)


@dataclass(frozen=True)
class _Read:
    """What was read of a run, and what of it cannot be used."""

    run: Run
    exported: documents.Model | None
    captures: list[captured.Captured]
    sides: list[MeasuredSide]
    problems: Problems

    def described(
        self, swept: Sweep | None = None
    ) -> tuple[Model, list[SideFacts], dict[str, Any]]:
        """The model, the settings of the sides and run.json. InputError where there is neither a
        side nor a sweep."""
        if not self.sides and swept is None:
            self.problems.raise_first()
            raise incomplete.nothing(self.run)
        model = inventory.model(self.run, self.exported, self.problems)
        known = settings.collect(self.captures, self.run.manifests())
        document = record.assemble(self.run, model.title, self.exported, known, self.problems)
        return model, known, document


def _read(run: Run, limits: Asked) -> _Read:
    problems = Problems()
    exported = files.model(run, problems)
    captures = inventory.read(run, exported, problems)
    sides = [inventory.with_errors(run, s, problems) for c in captures for s in c.sides]

    def wrong(side: Side) -> bool:
        return judged(side, limits).wrong

    sides += inventory.unmeasured(run, exported, captures, wrong, problems)
    return _Read(run, exported, captures, sides, problems)


def counters(run: Run, problems: Problems) -> pa.Table | None:
    """The counters of the run's ncu captures; what cannot be read or told is a problem."""
    with problems.without("counters"):
        try:
            counters_.left_out(run, problems)
            return counters_.counters_of_run(run, problems)
        except ToolMissing as e:
            problems.skip("counters", e.what, e.fix)
    return None


def _layers(sides: list[MeasuredSide]) -> pa.Table:
    parts = [s.layers for s in sides if s.layers is not None]
    return pa.concat_tables(parts) if parts else tables.table("layers", [])


def _latency(sides: list[MeasuredSide]) -> pa.Table:
    """Unprofiled latencies, `source` being the side's key: a capture may have several phases."""
    return tables.table(
        "latency",
        [
            {"source": s.key, "precision": s.side.precision, "iteration": i, "latency_ns": ns}
            for s in sides
            for i, ns in enumerate(s.latency_ns)
        ],
    )


def _modules(sides: list[MeasuredSide], model: Model) -> pa.Table:
    rows = []
    for measured in sides:
        side = measured.side
        about = {
            "side": side.task,
            "source": side.source,
            "precision": side.precision,
            "phase": side.phase,
        }
        paths = ordered_tree(model.paths, measured.sums.units())
        rows += modules.rows(about, measured.sums, paths, model.classes)
    return tables.table("modules", rows)


def _accuracy(sides: list[MeasuredSide]) -> dict[str, pa.Table]:
    """The error of each module's output, `source` being the engine's key; none where it was
    measured of no engine."""
    rows = [
        {
            "source": s.key,
            "precision": s.side.precision,
            "module": e.module,
            **{c: getattr(e, c) for c in ("tensor", "error_in", "error_out", "nonfinite")},
            "first_wrong": e.first_wrong,
            "how": e.how,
        }
        for s in sides
        for e in s.side.errors.values()
    ]
    return {"accuracy": tables.table("accuracy", rows)} if rows else {}
