"""A waterfall as bars: what is drawn where, in percent of the longest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from ... import formatting
from ...formatting import time
from ...model.comparison import Comparison
from ...model.partition import (
    FUSED,
    GAPS,
    MODULES,
    OTHER,
    ROW,
    UNRESOLVED,
    WAITING,
    Step,
    Waterfall,
)

COLOURS = 8  # of kinds; more share the last
_EVIDENCE = {UNRESOLVED: "#unresolved", WAITING: "#b-host", GAPS: "#b-ii", ROW: "#modules"}


@dataclass(frozen=True)
class Bar:
    """`left`, `width` and `sure` (the interval) in percent of the longest. `cls`: how it looks.
    `pale`: it is smaller than its interval. `inner`: what it is made of."""

    name: str
    text: str
    exact: str
    left: float
    width: float
    sure: tuple[float, float] | None
    cls: str
    href: str
    pale: bool = False
    inner: Sequence[tuple[str, str]] = ()


def colours(comparison: Comparison) -> dict[str, int]:
    """A colour's number for each kind of modules, the costliest first."""
    costs: dict[str, int] = {}
    for partition in comparison.partitions.values():
        for part in partition.parts:
            if part.kind == MODULES:
                costs[part.name] = max(costs.get(part.name, 0), part.ns)
    ordered = sorted(costs, key=lambda n: -costs[n])
    return {name: min(i, COLOURS - 1) for i, name in enumerate(ordered)}


def bars(fall: Waterfall, labels: tuple[str | None, str], kinds: Mapping[str, int]) -> list[Bar]:
    """The two ends, and between them the steps. Without a first label it begins at nothing."""
    level, levels = fall.start, [fall.start, fall.end]
    for step in fall.steps:
        level += step.ns
        levels.append(level)
    scale = 100 / max(*levels, 1)
    lowest = min(0, *levels)
    found = [_end(labels[0], fall.start, scale, lowest, "over")] if labels[0] is not None else []
    level = fall.start
    for step in fall.steps:
        found.append(_step(step, level, scale, lowest, kinds, labels[0] is not None))
        level += step.ns
    return [*found, _end(labels[1], fall.end, scale, lowest, "under")]


def _end(label: str | None, ns: int, scale: float, lowest: int, cls: str) -> Bar:
    left, width = -lowest * scale, ns * scale
    return Bar(
        label or "", time(ns), formatting.exact(ns), round(left, 3), round(width, 3), None, cls, ""
    )


def _step(
    step: Step, level: int, scale: float, lowest: int, kinds: Mapping[str, int], signed: bool
) -> Bar:
    first = min(level, level + step.ns)
    sure = None
    if step.low is not None and step.high is not None:
        ends = sorted(max(level + x - lowest, 0) * scale for x in (step.low, step.high))
        sure = (round(ends[0], 3), round(min(ends[1], 100) - ends[0], 3))
    return Bar(
        step.name,
        _signed(step.ns) if signed else time(step.ns),
        f"{formatting.exact(step.ns)}, {_interval(step)}",
        round((first - lowest) * scale, 3),
        round(abs(step.ns) * scale, 3),
        sure,
        look(step.name, step.kind, kinds),
        _leads(step),
        signed and not step.sure and step.low is not None,
        [(s.name, _signed(s.ns) if signed else time(s.ns)) for s in step.inner],
    )


def look(name: str, kind: str, kinds: Mapping[str, int]) -> str:
    """The class of a bar or box: a kind's colour, hatched where layers are fused over several."""
    if kind == MODULES:
        first = next((n for n in [name, *name.split(" + ")] if n in kinds), None)
        return f"k{kinds[first]}" if first is not None else "k"
    return {FUSED: "k fused", WAITING: "wait", GAPS: "wait", OTHER: "k"}.get(kind, "k")


def _signed(ns: int) -> str:
    return f"+{time(ns)}" if ns > 0 else time(ns)


def _interval(step: Step) -> str:
    if step.low is None or step.high is None:
        return "no interval"
    return f"95 %: {_signed(step.low)} to {_signed(step.high)}"


def _leads(step: Step) -> str:
    if step.modules:
        return f"#module:{quote(step.modules[0], safe='')}"
    return _EVIDENCE.get(step.kind, "#kinds")
