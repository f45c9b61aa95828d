"""summary.json: the figures that a script or another run wants, and nothing else.

``{"schema_version": 1, "title", "engines": {"fp16.onnxruntime": FIGURES},
"eager": {"fp32.inference": FIGURES}, "ratios": [...], "comparisons": [...], "facts": FACTS,
"modules": {side key: {path: COST}}, "kinds": {side key: {kind: COST}},
"sweep": {"points", "best", "skipped"} or null,
"counters": {side key: COUNTERS}, "unusable": [{"file", "what", "why", "fix"}],
"not_as_left": [file, ...]}``.
`ratios` are the numbers, `comparisons` the same as rows of text (`report.answer`).
`facts` is run.json's: what must agree before two runs are compared. All times are integer
nanoseconds; unknown is null. COST: own_ns and shared_ns, medians per iteration; own_low_ns to
own_high_ns, upper_low_ns to upper_high_ns: the 95 % intervals of own, and of own + shared.
`outputs` of an engine: ok (null: unknown) and why, null where its outputs were not compared; one
that is not ok is in no ratio.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ...core.stats import Estimate
from ..formatting import filled
from ..model.comparison import SCHEMA_VERSION, Comparison, Cost, Side, Sweep
from ..model.counters import Counted, CountedRow
from . import answer, ledger, sentences
from .headline import Sentence
from .screen import screens

_COUNTED = (
    "sources", "device", "clock_control", "launches", "measured", "uncounted", "missing", "spread",
)  # fmt: skip
_BOUND = (
    "bound", "why", "shares", "intensity", "flop", "bytes", "floor", "times_flop", "times_bytes",
    "launches", "measured", "share", "text",
)  # fmt: skip
_PARITY = ("max_abs", "max_rel", "cosine", "top1", "random_weights")


def summary(
    comparison: Comparison, headline: Sequence[Sentence], not_as_left: Sequence[str] = ()
) -> dict[str, Any]:
    """The summary of a comparison; `not_as_left`: files that may not be the run's own."""
    sides = comparison.sides
    document = {
        "schema_version": SCHEMA_VERSION,
        "title": comparison.title,
        "generated": comparison.generated,
        "answer": _answer(comparison),
        "headline": [h.text for h in headline],
        "engines": {f"{s.precision}.{s.backend}": _figures(s) for s in sides if s.task == "engine"},
        "eager": {f"{s.precision}.{s.phase}": _figures(s) for s in sides if s.task != "engine"},
        "ratios": comparison.ratios,
        "comparisons": answer.comparisons(comparison),
        "facts": comparison.manifest.get("facts"),
        "modules": _costs(
            comparison, ((m.path, m.costs) for m in comparison.modules if m.kind == "module")
        ),
        "kinds": _costs(comparison, ((k.name, k.costs) for k in comparison.kinds)),
        **({"columns": comparison.columns} if comparison.columns else {}),
        "sweep": _sweep(comparison.sweep) if comparison.sweep is not None else None,
        "counters": _counters(comparison.counters) if comparison.counters else {},
        "unusable": [s for s in comparison.skipped if s.file],
        "not_as_left": not_as_left,
    }
    return cast("dict[str, Any]", msgspec.to_builtins(document))


def _answer(comparison: Comparison) -> dict[str, Any] | None:
    """What the page's first screen says; None where nothing was measured."""
    shown = screens.of(comparison)
    if not shown:
        return None
    first = shown[0]
    return {
        "text": first.answer.text,
        "tone": first.answer.tone,
        "lines": first.line,
        "doubts": [{"tone": c.tone, "text": c.text} for c in first.chips],
    }


def _figures(side: Side) -> dict[str, Any]:
    """One side's figures."""
    span = ledger.check_of(side, "ii")
    return {
        "key": side.key,
        "source": side.source,
        "precision": side.precision,
        "precision_run": side.precision_run,
        **_latency(side.latency),
        "steadiness": side.steadiness,
        "phase_shares": side.phase_shares,
        **({"time_shares": side.time_shares} if side.time_shares else {}),
        "rebuild_noise": side.rebuild_noise,
        "queued_median_ns": side.queued.median,
        "launch_bound": side.launch_bound,
        "host": _host(side),
        **({} if side.waiting is None else {"waiting": side.waiting}),
        "device": side.device,
        "traced_median_ns": side.traced.median,
        "operation_ns": side.operation_ns,
        "coverage": side.coverage,
        "unresolved_ns": side.unresolved_ns,
        "residual_share": span.residual_share if span else None,
        "closure": {
            c.name: {
                "ok": c.ok,
                "residual_ns": c.residual_ns,
                "residual_share": c.residual_share,
                "tolerance": c.tolerance,
                "terms": dict(c.terms),
                "text": c.text,
            }
            for c in side.checks
        },
        "outputs": side.outputs,
        "parity": None if side.parity is None else {k: side.parity.get(k) for k in _PARITY},
    }


def _host(side: Side) -> dict[str, Any] | None:
    if side.host is None:
        return None
    wording = sentences.host(side.host, side.device)
    values = {name: value and value.figures() for name, value in side.host.values.items()}
    return {**vars(side.host), "values": values, "text": filled(wording.form, wording.figures)}


def _costs(
    comparison: Comparison, rows: Iterable[tuple[str, Mapping[str, Cost]]]
) -> dict[str, dict[str, Any]]:
    """Side key -> name -> own and shared time with the intervals of own, and of both together
    (upper)."""
    by_side: dict[str, dict[str, Any]] = {s.key: {} for s in comparison.sides}
    for name, costs in rows:
        for key, cost in costs.items():
            by_side[key][name] = _cost(cost)
    return by_side


def _latency(latency: Estimate) -> dict[str, int | None]:
    return {
        "latency_median_ns": latency.median,
        "latency_low_ns": latency.low,
        "latency_high_ns": latency.high,
        "latency_samples": latency.n,
    }


def _cost(cost: Cost) -> dict[str, int | None]:
    return {
        "own_ns": cost.own.median,
        "own_low_ns": cost.own.low,
        "own_high_ns": cost.own.high,
        "shared_ns": cost.shared,
        "upper_low_ns": cost.upper.low,
        "upper_high_ns": cost.upper.high,
    }


def _counters(counters: Counted) -> dict[str, dict[str, Any]]:
    """Side key -> how much of it was counted, and what bounds each module. A side without
    counters says why, and has no modules."""
    by_side: dict[str, dict[str, Any]] = {
        u.key: {"why": u.why, "fix": u.fix, "modules": {}} for u in counters.uncounted
    }
    for side in counters.sides:
        by_side[side.key] = {
            **{k: getattr(side, k) for k in _COUNTED},
            "modules": {r.name: _bound(r) for r in side.rows if r.kind == "module"},
        }
    return by_side


def _bound(row: CountedRow) -> dict[str, Any]:
    floor = row.floor and {"flop": row.floor.flop, "bytes": row.floor.bytes}
    return {**{k: getattr(row, k) for k in _BOUND}, "floor": floor}


def _sweep(sweep: Sweep) -> dict[str, Any]:
    """The sweep for summary.json."""
    return {
        "points": [
            {
                **{k: v for k, v in vars(p).items() if k not in ("latency", "key", "label")},
                **_latency(p.latency),
            }
            for p in sweep.points
        ],
        "best": {b.key: {k: v for k, v in vars(b).items() if k != "key"} for b in sweep.best},
        "skipped": [{"what": s.what, "why": s.why, "fix": s.fix} for s in sweep.skipped],
        "remarks": sweep.remarks,
    }
