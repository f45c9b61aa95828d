"""Which comparison answers first, and what makes one doubtful; the report has the words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .. import formatting
from ..model.baseline import LATENCY
from ..model.comparison import Ratio, Side
from .limits import SLOWER

# Of its CPUs: above it others had the machine as well, and an unsteady series tells of them.
OVERLOADED = 1.0
# A smaller share of the time is not worth a word.
LEAST_SHARE = 0.01
UNKNOWN = "unknown"


def mark_lead(ratios: Sequence[Ratio], sides: Sequence[Side]) -> list[Ratio]:
    """The comparisons, one of them marked as the one to lead with: the fastest engine against
    eager in its own precision.

    Where no engine has eager's latency beside it, against another engine. An engine that computed
    nothing in its precision leads only where there is no other.
    """
    by_key = {s.key: s for s in sides}

    def rank(ratio: Ratio) -> tuple[bool, bool, bool, int]:
        over, under = by_key[ratio.over], by_key[ratio.under]
        return (
            over.task != "eager",
            lack(under) is not None,
            over.precision != under.precision,
            under.latency.median or 0,
        )

    first = min(ratios, key=rank, default=None)
    return [replace(r, lead=r is first) for r in ratios]


@dataclass(frozen=True)
class Lack:
    """An engine computed less of its time in its precision than in others. `share`: in its own;
    `others`: in each other one, the least left out; `unknown`: nothing is known to be of its own,
    but time of unknown precision may be."""

    share: float
    others: Mapping[str, float]
    unknown: bool


def lack(side: Side) -> Lack | None:
    """What an engine lacks of its precision; None where at least as much time is known to be of
    that precision as of others."""
    run = {p: s for p, s in side.precision_run.items() if formatting.known(s)}
    asked, unknown = run.pop(side.precision, 0), run.pop(UNKNOWN, 0)
    others = {p: s for p, s in run.items() if s >= LEAST_SHARE}
    if side.task != "engine" or not others or sum(run.values()) <= asked:
        return None
    return Lack(asked, others, unknown=unknown >= LEAST_SHARE and not asked)


def alike(ratio: Ratio) -> bool:
    """Whether the ratio's interval holds 1: the two are not distinguishable."""
    low, high = ratio.low, ratio.high
    return low is not None and high is not None and low <= 1 <= high


def same(ratio: Ratio) -> bool:
    """Whether the two are as fast as each other: so far apart as a gate calls the same, at most.
    An interval that holds 1 and is wider tells nothing."""
    low, high, most = ratio.low, ratio.high, 1 + SLOWER[LATENCY]
    return low is not None and high is not None and 1 / most <= low <= 1 <= high <= most


def faults(side: Side, which: str = "latency") -> Sequence[str]:
    """What is wrong with the series of the side's latency ("latency", "traced", "queued"); empty
    where it has settled, or where there are too few samples to tell."""
    steadiness = {
        "latency": side.steadiness,
        "traced": side.traced_steadiness,
        "queued": side.queued_steadiness,
    }[which]
    return steadiness.faults if steadiness else ()


def crowded(load: Mapping[str, float], *sides: Side) -> bool:
    """Whether others had the machine while a side was measured that has not settled: then its
    median is as much theirs, and so is the interval. `load`: over the CPUs, by side."""
    return any(faults(s) and load.get(s.key, 0) > OVERLOADED for s in sides)
