"""Which modules the bars show: about a dozen that do not overlap and make up nearly all.

Inference and training are charts of their own, each with its scale: a backward pass beside an
engine would leave the engine's bars too short to read.

Modules of one kind stand as one bar (``transformer.h.*.attn``, the sum that analysis made), the
others for themselves. Starting at the model, the largest bar is replaced by its parts while
there is room, if nearly nothing happens in it outside of them; so no bar counts what another one
counts, and little is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from ...core.module_paths import ancestors, kind_of
from ..model.comparison import Comparison, Cost, Side

ROOM = 12
NEARLY_NOTHING = 0.1
ENGINES = 4
PHASES = ("forward", "recompute", "backward")
# Sides whose rows are the rest of a training step.
REST = ("step", "optimizer")
OUTSIDE = "outside operators"


class Entry(TypedDict):
    """One candidate: a module or a kind."""

    name: str
    count: int
    costs: Mapping[str, Cost]


class Chart(TypedDict):
    """One drawing: `sides` are its lines; `rest` has the rows that are no module's (optimizer,
    loss), null in inference."""

    title: str
    sides: list[Side]
    rest: Side | None


def charts(view: Comparison, beside: Sequence[Side]) -> list[Chart]:
    """The drawings of the sides that stand `beside` each other: inference, and the phases of
    training. Eager inference that was not measured has its forward in the first, too."""
    rows = [m for m in view.modules if m.kind == "module"]
    measured = {key for m in rows for key, c in m.costs.items() if _whole(c)}
    found = [s for s in beside if s.key in measured]
    eager = [s for s in found if s.task != "engine"]
    training = [s for p in PHASES for s in eager if s.phase == p]
    here = [s for s in found if s.task == "engine"][:ENGINES]
    here += [s for s in eager if s.phase == "inference"] or training[:1]
    result: list[Chart] = [{"title": "Inference", "sides": here, "rest": None}] if here else []
    if training:
        whole = [s for s in beside if s.task != "engine" and s.phase in REST]
        rest = next((s for p in REST for s in whole if s.phase == p), None)
        result.append({"title": "Training step", "sides": training, "rest": rest})
    if not result and found:
        result.append({"title": "Time", "sides": found[:4], "rest": None})
    return result


def colours(chosen: Sequence[Side]) -> dict[str, int]:
    """A colour's number by side key: engines have the first ones, eager sides the others."""
    engines = [s.key for s in chosen if s.task == "engine"]
    others = [s.key for s in chosen if s.task != "engine"]
    first = {key: (0, 1, 4, 5)[i % 4] for i, key in enumerate(engines)}
    return first | {key: 2 + i % 4 for i, key in enumerate(others)}


def rest(view: Comparison, chart: Chart) -> list[Entry]:
    """The costs of the step that are no module's, as bars: a phase's own where it has them."""
    if chart["rest"] is None:
        return []
    keys = [s.key for s in chart["sides"]]
    found: list[Entry] = []
    for m in view.modules:
        if m.kind != "row" or m.name == OUTSIDE:
            continue
        costs = {k: c for k, c in m.costs.items() if k in keys and _whole(c)}
        whole = m.costs.get(chart["rest"].key)
        if not costs and whole is not None and _whole(whole):
            costs = {chart["rest"].key: whole}
        if costs:
            found.append({"name": m.name, "count": 1, "costs": costs})
    return found


def entries(view: Comparison, chosen: Sequence[Side]) -> list[Entry]:
    """The bars of these sides, in the order of the model; see the module's docstring."""
    candidates: dict[str, Entry] = {}
    for k in view.kinds:
        candidates[k.name] = {"name": k.name, "count": k.count, "costs": k.costs}
    rows = [m for m in view.modules if m.kind == "module"]
    paths: dict[str, int] = {}
    for m in rows:
        paths[kind_of(m.path)] = paths.get(kind_of(m.path), 0) + 1
    order: dict[str, int] = {}
    for i, m in enumerate(rows):
        name = kind_of(m.path)
        order.setdefault(name, i)
        if name not in candidates and paths[name] == 1:
            candidates[name] = {"name": name, "count": 1, "costs": m.costs}
    parts: dict[str, list[str]] = {name: [] for name in candidates}
    tops: list[str] = []
    for name in candidates:
        parent = next((a for a in ancestors(name)[1:] if a in candidates), None)
        (tops if parent is None else parts[parent]).append(name)

    keys = [s.key for s in chosen]
    own = _own_operations(view)
    shown = [name for name in tops if _largest(candidates[name], keys)]
    while True:
        for name in sorted(shown, key=lambda n: -_largest(candidates[n], keys)):
            inner = [p for p in parts[name] if _largest(candidates[p], keys)]
            if not inner or len(shown) - 1 + len(inner) > ROOM:
                continue
            if _empty_but_for_parts(name, candidates[name], own, keys):
                shown.remove(name)
                shown += inner
                break
        else:
            break
    shown.sort(key=lambda n: order.get(n, len(order)))
    return [candidates[name] for name in shown]


def _whole(c: Cost | None) -> int:
    return 0 if c is None else c.upper.median or 0


def _largest(entry: Entry, keys: list[str]) -> int:
    return max((_whole(entry["costs"].get(k)) for k in keys), default=0)


def _own_operations(view: Comparison) -> dict[tuple[str, str], int]:
    """Time of operations that are a module's own and in none of its parts, by pattern and side."""
    found: dict[tuple[str, str], int] = {}
    for m in view.modules:
        if m.kind == "block" and len(m.members) == 1:
            for key, c in m.costs.items():
                at = (kind_of(m.members[0]), key)
                found[at] = found.get(at, 0) + _whole(c)
    return found


def _empty_but_for_parts(
    name: str, entry: Entry, own: dict[tuple[str, str], int], keys: list[str]
) -> bool:
    return all(
        own.get((name, k), 0) <= NEARLY_NOTHING * _whole(entry["costs"].get(k)) for k in keys
    )
