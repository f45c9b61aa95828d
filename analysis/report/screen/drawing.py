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
from .. import cells

COLOURS = 8  # of kinds; more share the last
_EVIDENCE = {UNRESOLVED: "#unresolved", WAITING: "#b-host", GAPS: "#b-ii", ROW: "#modules"}


@dataclass(frozen=True)
class Bar:
    """`left`, `width` and `sure` (the interval) in percent of the longest. `cls`: how it looks.
    `pale`: it is smaller than its interval. `inner`: what it is made of. `interval`: in words."""

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
    interval: str = ""


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
    level, levels = fall.start, [0, fall.start, fall.end]
    for step in fall.steps:
        level += step.ns
        levels.append(level)
    axis = _Axis(min(levels), max(*levels, 1))
    found = [_end(labels[0], fall.start, axis, "over")] if labels[0] is not None else []
    level = fall.start
    for step in fall.steps:
        found.append(_step(step, level, axis, kinds, signed=labels[0] is not None))
        level += step.ns
    return [*found, _end(labels[1], fall.end, axis, "under")]


@dataclass(frozen=True)
class _Axis:
    """The times between which everything is drawn."""

    low: int
    high: int

    def span(self, a: int, b: int) -> tuple[float, float]:
        """Left end and width of what lies between two times, cut where the drawing ends."""
        ends = sorted(min(max(x, self.low), self.high) - self.low for x in (a, b))
        left, right = (100 * x / (self.high - self.low) for x in ends)
        return round(left, 3), round(right - left, 3)


def _end(label: str, ns: int, axis: _Axis, cls: str) -> Bar:
    return Bar(label, time(ns), formatting.exact(ns), *axis.span(0, ns), None, cls, "")


def _step(step: Step, level: int, axis: _Axis, kinds: Mapping[str, int], *, signed: bool) -> Bar:
    def text(ns: int) -> str:
        return cells.signed(ns) if signed else time(ns)

    left, width = axis.span(level, level + step.ns)
    interval = "no interval"
    if step.low is not None and step.high is not None:
        interval = f"95 %: {text(step.low)} to {text(step.high)}"
    known = step.low is not None and step.high is not None
    return Bar(
        name=step.name,
        text=text(step.ns),
        exact=f"{formatting.exact(step.ns)}, {interval}",
        left=left,
        width=width,
        sure=axis.span(level + (step.low or 0), level + (step.high or 0)) if known else None,
        cls=look(step.name, step.kind, kinds),
        href=_leads(step),
        pale=signed and known and not step.sure,
        inner=[(s.name, text(s.ns)) for s in step.inner],
        interval=interval.removeprefix("95 %: "),
    )


def look(name: str, kind: str, kinds: Mapping[str, int]) -> str:
    """The class of a bar or box: a kind's colour, hatched where layers are fused over several."""
    if kind == MODULES:
        first = next((n for n in [name, *name.split(" + ")] if n in kinds), None)
        return f"k{kinds[first]}" if first is not None else "k"
    return {FUSED: "k fused", WAITING: "wait", GAPS: "wait", OTHER: "k"}.get(kind, "k")


def _leads(step: Step) -> str:
    if step.modules:
        return f"#module:{quote(step.modules[0], safe='')}"
    return _EVIDENCE.get(step.kind, "#kinds")
