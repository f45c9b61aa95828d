"""The bars of the page: about a dozen modules that do not overlap and make up nearly all.

Inference and training are charts of their own, each with its scale: a backward pass beside an
engine would leave the engine's bars too short to read.

Modules of one kind stand as one bar (``transformer.h.*.attn``, the sum that analysis made), the
others for themselves. Starting at the model, the largest bar is replaced by its parts while
there is room, if nearly nothing happens in it outside of them; so no bar counts what another one
counts, and little is left out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.module_paths import ancestors, kind_of
from ..model.comparison import Comparison, Cost, Side
from .cells import whole

ROOM = 12
NEARLY_NOTHING = 0.1
SMALL = 0.03  # of the longest bar: what is shorter is named, not drawn
ENGINES = 4
PHASES = ("forward", "recompute", "backward")
# Sides whose rows are the rest of a training step.
REST = ("step", "optimizer")
OUTSIDE = "outside operators"


@dataclass(frozen=True)
class Entry:
    """A module, a kind, or a row of the step that is no module's; `count`: how many modules."""

    name: str
    count: int
    costs: Mapping[str, Cost]


@dataclass(frozen=True)
class Line:
    """A bar's line for one side: widths in percent of the chart's longest."""

    side: Side
    cost: Cost | None
    own: float
    shared: float


@dataclass(frozen=True)
class Bar:
    """One entry as it is drawn."""

    name: str
    count: int
    lines: Sequence[Line]


@dataclass(frozen=True)
class Chart:
    """One drawing; `colours`: a colour's number by side key; `small`: names that are not drawn."""

    title: str
    sides: Sequence[Side]
    colours: Mapping[str, int]
    bars: Sequence[Bar]
    small: Sequence[str]


def charts(comparison: Comparison, beside: Sequence[Side]) -> list[Chart]:
    """The drawings of the sides that stand `beside` each other: inference, and the phases of
    training. Beside engines, eager inference that was not measured has its forward in the first."""
    rows = [m for m in comparison.modules if m.kind == "module"]
    measured = {key for m in rows for key, c in m.costs.items() if whole(c)}
    sides = [s for s in beside if s.key in measured]
    eager = [s for s in sides if s.task != "engine"]
    training = [s for p in PHASES for s in eager if s.phase == p]
    inference = [s for s in sides if s.task == "engine"][:ENGINES]
    inference += [s for s in eager if s.phase == "inference"] or (training[:1] if inference else [])
    drawn = [_chart(comparison, "Inference", inference)] if inference else []
    if training:
        others = [s for p in REST for s in beside if s.task != "engine" and s.phase == p]
        drawn.append(_chart(comparison, "Training step", training, others[:1]))
    return drawn or ([_chart(comparison, "Time", sides[:4])] if sides else [])


def _chart(
    comparison: Comparison, title: str, phases: Sequence[Side], others: Sequence[Side] = ()
) -> Chart:
    """`others`: the side that has the rows of the whole step. Of it a module has no line: its
    phases are there."""
    sides = [*phases, *others]
    lines = [(e, phases) for e in entries(comparison, phases)]
    lines += [
        (e, [s for s in sides if s.key in e.costs])
        for e in _rest(comparison, phases, others)
        if others
    ]
    longest = max((whole(e.costs.get(s.key)) for e, of in lines for s in of), default=0)
    scale = 100 / longest if longest else 0
    bars, small = [], []
    for entry, of in lines:
        if longest and max(whole(entry.costs.get(s.key)) for s in of) < SMALL * longest:
            small.append(entry.name)
        else:
            drawn = [_line(s, entry.costs.get(s.key), scale) for s in of]
            bars.append(Bar(entry.name or "(model)", entry.count, drawn))
    shown = {line.side.key for bar in bars for line in bar.lines}
    return Chart(title, [s for s in sides if s.key in shown], _colours(sides), bars, small)


def _line(side: Side, cost: Cost | None, scale: float) -> Line:
    own = (cost.own.median or 0) if cost else 0
    return Line(side, cost, scale * own, scale * (whole(cost) - own))


def _colours(sides: Sequence[Side]) -> dict[str, int]:
    """Engines have the first colours, eager sides the others."""
    engines = [s.key for s in sides if s.task == "engine"]
    others = [s.key for s in sides if s.task != "engine"]
    first = {key: (0, 1, 4, 5)[i % 4] for i, key in enumerate(engines)}
    return first | {key: 2 + i % 4 for i, key in enumerate(others)}


def _rest(comparison: Comparison, phases: Sequence[Side], others: Sequence[Side]) -> list[Entry]:
    """The costs of the step that are no module's: a phase's own where it has them."""
    rest = []
    for m in comparison.modules:
        if m.kind == "row" and m.name != OUTSIDE:
            for sides in (phases, others):
                costs = {s.key: m.costs[s.key] for s in sides if whole(m.costs.get(s.key))}
                if costs:
                    rest.append(Entry(m.name, 1, costs))
                    break
    return rest


def entries(comparison: Comparison, chosen: Sequence[Side]) -> list[Entry]:
    """The bars of these sides, in the order of the model; see the module's docstring."""
    candidates = {k.name: Entry(k.name, k.count, k.costs) for k in comparison.kinds}
    rows = [(kind_of(m.path), m) for m in comparison.modules if m.kind == "module"]
    modules = Counter(kind for kind, _ in rows)
    for kind, m in rows:
        if kind not in candidates and modules[kind] == 1:
            candidates[kind] = Entry(kind, 1, m.costs)
    parts: dict[str | None, list[str]] = defaultdict(list)
    for name in candidates:
        parts[next((a for a in ancestors(name)[1:] if a in candidates), None)].append(name)

    keys = [s.key for s in chosen]
    largest = {
        name: max((whole(e.costs.get(k)) for k in keys), default=0)
        for name, e in candidates.items()
    }
    own = _own_operations(comparison)

    def divides(name: str) -> bool:
        """Whether nearly nothing happens in it outside of its parts."""
        costs = candidates[name].costs
        return all(own[name, k] <= NEARLY_NOTHING * whole(costs.get(k)) for k in keys)

    def replaced(shown: list[str]) -> list[str] | None:
        """With the largest that can be replaced by its parts; None where none can."""
        for name in sorted(shown, key=largest.__getitem__, reverse=True):
            inner = [p for p in parts[name] if largest[p]]
            if inner and len(shown) - 1 + len(inner) <= ROOM and divides(name):
                return [*(n for n in shown if n != name), *inner]
        return None

    shown: list[str] = []
    more: list[str] | None = [name for name in parts[None] if largest[name]]
    while more is not None:
        shown, more = more, replaced(more)
    order = {kind: i for i, kind in enumerate(modules)}
    shown.sort(key=lambda name: order.get(name, len(order)))
    return [candidates[name] for name in shown]


def _own_operations(comparison: Comparison) -> Counter[tuple[str, str]]:
    """Time of operations that are a module's own and in none of its parts, by kind and side."""
    times: Counter[tuple[str, str]] = Counter()
    for m in comparison.modules:
        if m.kind == "block" and len(m.members) == 1:
            for key, c in m.costs.items():
                times[kind_of(m.members[0]), key] += whole(c)
    return times
