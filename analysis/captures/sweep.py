"""The sweep of batch sizes that a run has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from ...core import sweep
from ...core.documents import Model
from ...core.run import Run
from ...core.stats import Estimate
from ..model.comparison import Side, Skipped, Sweep, SweepBest, SweepPoint
from ..rundir.files import optional
from ..rundir.problems import Problems

SECOND_NS = 1_000_000_000


def load(
    run: Run,
    labels: Mapping[str, str],
    problems: Problems | None,
    sides: Sequence[Side] = (),
    model: Model | None = None,
) -> Sweep | None:
    """The run's sweep; None where there is none. `labels`: how backends are written; `sides`,
    `model`: of the run itself."""
    document = optional(run.file("captures", "sweep.json"), sweep.Sweep, problems)
    if document is None:
        return None
    swept = view(document, labels)
    remarks = [] if model is None else beside(swept, sides, model.batch, model.seq)
    return replace(swept, remarks=remarks)


def view(document: sweep.Sweep, labels: Mapping[str, str]) -> Sweep:
    """The report's sweep from a sweep.json."""
    points = [_point(p, labels) for p in document.points]
    return Sweep(
        points=points,
        best=best(points),
        skipped=[Skipped(s.what, s.why, s.fix) for s in document.skipped],
    )


def _point(point: sweep.SweepPoint, labels: Mapping[str, str]) -> SweepPoint:
    summary, batch, sequence = point.summary, point.batch, point.sequence
    latency = Estimate(
        median=summary.median,
        low=summary.low,
        high=summary.high,
        n=summary.n,
    )
    backend, precision, queue = point.backend, point.precision, point.throughput_per_second
    memory = {k: n for k, n in structs.asdict(point.memory).items() if n is not None}
    where = next(iter(memory), None)
    return SweepPoint(
        key=f"{precision}.{backend}",
        label=f"{labels.get(backend, backend)} {precision}",
        precision=precision,
        backend=backend,
        batch=batch,
        sequence=sequence,
        source=point.source,
        latency=latency,
        p90_ns=summary.p90,
        p99_ns=summary.p99,
        sequences_per_second=_rate(batch, latency.median),
        tokens_per_second=_rate(batch * sequence, latency.median),
        tokens_low=_rate(batch * sequence, latency.high),
        tokens_high=_rate(batch * sequence, latency.low),
        queue_tokens_per_second=None if queue is None else queue * batch * sequence,
        clock=point.clock,
        ended_by=point.ended_by,
        target_met=_met(point.relative_width, point.target),
        memory_bytes=None if where is None else memory[where],
        memory_of=where,
    )


def _rate(amount: int, ns: int | None) -> float | None:
    return amount * SECOND_NS / ns if ns else None


def _met(width: float | None, target: float | None) -> bool | None:
    return None if width is None or target is None else width <= target


def best(points: Sequence[SweepPoint]) -> list[SweepBest]:
    """For every engine the batch with the most tokens per second, and the batches whose interval
    reaches into its own: those are not distinguishable from it."""
    found: list[SweepBest] = []
    for key in dict.fromkeys(p.key for p in points):
        own = [p for p in points if p.key == key and p.tokens_per_second is not None]
        if not own:
            continue
        top = max(own, key=lambda p: (p.tokens_per_second or 0, -p.batch))
        found.append(
            SweepBest(
                key=key,
                label=top.label,
                batch=top.batch,
                tokens_per_second=top.tokens_per_second,
                tokens_low=top.tokens_low,
                tokens_high=top.tokens_high,
                of=len(own),
                alike=[p.batch for p in own if p is not top and not _below(p, top)],
                last=top.batch == max(p.batch for p in own),
            )
        )
    return found


def _below(point: SweepPoint, top: SweepPoint) -> bool:
    """Whether a point is surely below the top: unknown intervals are not sure."""
    high, low = point.tokens_high, top.tokens_low
    return high is not None and low is not None and high < low


def beside(swept: Sweep, sides: Sequence[Side], batch: Any, sequence: Any) -> list[str]:
    """Remarks on the points at the run's own `batch` and `sequence` whose latency is not that of
    the run's own side (`Side.latency`), by more than both intervals."""
    own = {f"{s.precision}.{s.backend}": s.latency.figures() for s in sides if s.task == "engine"}
    found = [
        sweep.remark(p.label, p.batch, p.latency.figures(), own.get(p.key))
        for p in swept.points
        if (p.batch, p.sequence) == (batch, sequence)
    ]
    return [line for line in found if line]
