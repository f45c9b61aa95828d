"""Where the time between two sides goes, as far as the measurement is sure of it.

A kind of module costs between own and own + shared on each side, and each of these ends is a
median with an interval. The difference between two sides lies between the least that one can cost
less the most that the other can, each end of an interval at its worst, as the interval of a ratio
of latencies does (`core.stats.ratio`): conservative, so that it covers the difference of the
medians with at least the confidence of both intervals together. What a side has not resolved may
be any kind's there, so it counts as shared by all. A kind whose difference may be
zero is in neither list; how many there are is counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.stats import less
from ..model.comparison import Cost, Kind, Place, Ratio


def disjoint(kinds: Sequence[Kind]) -> list[Kind]:
    """Kinds that do not contain one another: the parts of the repeated blocks (``h.*.attn``) and,
    outside of them, the leaves."""
    names = {k.name for k in kinds}
    chosen = []
    for kind in kinds:
        before, star, after = kind.name.partition("*")
        if star:
            part = after.lstrip(".")
            divided = any(n.startswith(f"{before}*.") for n in names)
            if (part and "." not in part) or (not part and not divided):
                chosen.append(kind)
        elif not any(n.startswith(kind.name + ".") for n in names):
            chosen.append(kind)
    return chosen


def add(found: Ratio, kinds: Sequence[Kind], unresolved: Mapping[str, int]) -> Ratio:
    """The comparison with the kinds that its `under` saves and loses for sure, the most first.
    `unresolved`: ns per iteration that no module has, by the key of the side."""
    saves, loses, undecided = [], [], 0
    for kind in disjoint(kinds):
        over, under = kind.costs.get(found.over), kind.costs.get(found.under)
        if over is None or under is None or over.own.median is None or under.own.median is None:
            continue
        over = _with(over, unresolved.get(found.over, 0))
        under = _with(under, unresolved.get(found.under, 0))
        less, more = between(kind.name, over, under), between(kind.name, under, over)
        if sure(less) > 0:
            saves.append(less)
        elif sure(more) > 0:
            loses.append(more)
        else:
            undecided += 1
    return replace(
        found,
        saves=sorted(saves, key=sure, reverse=True),
        loses=sorted(loses, key=sure, reverse=True),
        undecided=undecided,
    )


def _with(cost: Cost, ns: int) -> Cost:
    """The cost where `ns` more may be its."""
    upper = cost.upper
    median, low, high = (
        None if x is None else x + ns for x in (upper.median, upper.low, upper.high)
    )
    return replace(cost, upper=replace(upper, median=median, low=low, high=high))


def between(name: str, a: Cost, b: Cost) -> Place:
    """By how much `b` costs less than `a`, in ns per iteration; negative where it costs more."""
    least = (a.own.median or 0) - (b.upper.median or 0)
    most = (a.upper.median or 0) - (b.own.median or 0)
    return Place(
        name=name,
        ns=least if least == most else None,
        at_least_ns=least,
        low_ns=less(a.own.low, b.upper.high),
        high_ns=less(a.upper.high, b.own.low),
    )


def sure(place: Place) -> int:
    """What is saved at least: the interval's lower end, without one the medians' difference."""
    return place.at_least_ns if place.low_ns is None else place.low_ns


def intervals(places: Sequence[Place]) -> bool:
    """Whether each of these has an interval."""
    return all(p.low_ns is not None and p.high_ns is not None for p in places)
