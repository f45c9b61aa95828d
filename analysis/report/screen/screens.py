"""The first screens of a report: one for each comparison, the one that answers first first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...comparison import partition
from ...model.comparison import Comparison, Ratio, Side, Sweep, SweepBest
from ...model.partition import GAPS, ROW, Step, Waterfall
from .. import answer
from ..headline import NO_PHASE, WHOLE
from ..panels import rank, runs_at
from . import batches, chips, drawing, words


@dataclass(frozen=True)
class Screen:
    """`option`: what the choice of comparisons says. `over` is None where one side stands alone.
    `under` is no side's key where a sweep is shown: then `beside` has the latencies by batch."""

    option: str
    answer: words.Answer
    line: Sequence[str]
    repair: tuple[str, str] | None
    chips: Sequence[chips.Chip]
    bars: Sequence[drawing.Bar]
    why: str
    over: str | None
    under: str
    wrong: bool = False
    beside: Sequence[drawing.Bar] = ()


def of(comparison: Comparison) -> list[Screen]:
    """Wrong engines first, then the comparisons, then, where there is none, each side that stands
    for itself; at last the batches of each engine that was swept. Empty where nothing was
    measured."""
    sides = {s.key: s for s in comparison.sides}
    kinds = drawing.colours(comparison)
    found = [_wrong(comparison, s, kinds) for s in comparison.sides if s.wrong]
    known = [r for r in answer.ordered(comparison) if r.over in sides and r.under in sides]
    found += [_pair(comparison, r, sides, kinds) for r in known]
    found = found or [_alone(comparison, s, kinds) for s in _standing(comparison)]
    return [
        *found,
        *(_swept(comparison.sweep, b) for b in _best(comparison.sweep) if comparison.sweep),
    ]


def _best(sweep: Sweep | None) -> list[SweepBest]:
    found = sweep.best if sweep is not None else []
    return sorted(found, key=lambda b: -(b.tokens_per_second or 0))


def _swept(sweep: Sweep, best: SweepBest) -> Screen:
    points = [p for p in sweep.points if p.key == best.key]
    return Screen(
        option=f"{best.label}: batches",
        answer=batches.answer(best),
        line=[batches.line(best, points)],
        repair=None,
        chips=list(batches.chips(sweep, points)),
        bars=batches.throughput(points, best.batch),
        why=f"of {best.label} by batch, in tokens/s",
        over=None,
        under="",
        beside=batches.latencies(points, best.batch),
    )


def _standing(comparison: Comparison) -> Iterator[Side]:
    """In the order of the panels below, of which the first is open."""
    known = [s for s in comparison.sides if s.key in comparison.partitions]
    known.sort(key=lambda s: rank(s.precision))
    yield from [s for s in known if s.phase in WHOLE] or known


def _pair(
    comparison: Comparison, r: Ratio, sides: Mapping[str, Side], kinds: Mapping[str, int]
) -> Screen:
    over, under = sides[r.over], sides[r.under]
    found = [comparison.partitions.get(k) for k in (r.over, r.under)]
    bars: list[drawing.Bar] = []
    if found[0] is not None and found[1] is not None:
        fall = partition.waterfall(found[0], found[1])
        bars = drawing.bars(fall, (over.label, under.label), kinds)
    return Screen(
        option=f"{under.label} with {over.label}",
        answer=words.compared(comparison, r, over, under),
        line=list(words.line_of(comparison, r, over, under)),
        repair=None,
        chips=chips.of(comparison, [over, under]),
        bars=bars,
        why=f"from {over.label} to {under.label}",
        over=r.over,
        under=r.under,
    )


def _alone(comparison: Comparison, side: Side, kinds: Mapping[str, int]) -> Screen:
    found = comparison.partitions[side.key]
    fall = _by_phase(side) or partition.waterfall(None, found)
    return Screen(
        option=side.label,
        answer=words.alone(comparison, side),
        line=[words.line_alone(comparison, side)],
        repair=None,
        chips=chips.of(comparison, [side]),
        bars=drawing.bars(fall, (None, side.label), kinds),
        why=f"of {side.label}",
        over=None,
        under=side.key,
    )


def _by_phase(step: Side) -> Waterfall | None:
    """A training step as its phases, unprofiled, in the order in which they run, and what lies in
    none: each its mean share of the steps, as medians of phases do not add up to the step's. None
    where it was measured only while profiled."""
    whole = step.latency.median
    if whole is None or not step.time_shares:
        return None
    level, share, steps = 0, 0.0, []
    for name in sorted(step.time_shares, key=runs_at):
        share += step.time_shares[name]
        here = NO_PHASE.get(name, name)
        kind = GAPS if name in NO_PHASE else ROW
        steps.append(Step(here, kind, round(share * whole) - level, None, None))
        level += steps[-1].ns
    return Waterfall(0, whole, [s for s in steps if s.ns])


def _wrong(comparison: Comparison, side: Side, kinds: Mapping[str, int]) -> Screen:
    """The time of what it was held against is all that is drawn."""
    eager = [s for s in comparison.sides if s.task == "eager" and s.phase in WHOLE]
    eager.sort(key=lambda s: (s.phase != "inference", s.precision != side.precision))
    held = next((s for s in eager if s.key in comparison.partitions), None)
    bars: list[drawing.Bar] = []
    if held is not None:
        fall = partition.waterfall(None, comparison.partitions[held.key])
        bars = drawing.bars(fall, (None, held.label), kinds)
    return Screen(
        option=f"{side.label}: wrong outputs",
        answer=words.wrong(comparison, side),
        line=[words.line_wrong(side)],
        repair=words.repair(side),
        chips=chips.of(comparison, [side]),
        bars=bars,
        why=f"of {held.label}" if held else "",
        over=held.key if held else None,
        under=side.key,
        wrong=True,
    )
