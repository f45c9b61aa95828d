"""The JSON that the page's script draws from: the comparison, joined and by index.

Modules name their parent, layers their side, by position in the lists beside them; a layer
carries its nodes. What belongs nowhere is not dropped: a node that no layer claims is listed
under its module, and under the model where its module is unknown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import formatting
from ..model.comparison import Comparison, Cost, ModuleRow
from . import counted, doubts, panels
from .screen import icicles
from .screen.screens import Screen

RULES = {
    "provenance": "The compiler recorded from which nodes of the captured graph it made the layer.",
    "name": "The layer's name is the name of its ONNX nodes, or lists them.",
    "index": "An unnamed layer's number leads to its node in the network's list.",
    "boundary": "The nodes between the layer's input and output tensors.",
    "order": "Equal names, told apart by the order in which they ran along the graph.",
    "elimination": "The only unclaimed node between what ran before and what ran after.",
    "carrier": "A copy, cast or reformat: it belongs to the producer of the tensor it moves.",
    "range": "A module's range encloses the operation.",
    "sequence": "A backward operator belongs to the module of its forward operator.",
    "unresolved": "No rule fits: the layer's time counts against coverage.",
}
FIRST_ROWS = 6
# Rows of counters by side, kind (module, layer) and name.
Counters = dict[tuple[str, str, str], dict[str, Any]]
_FLOOR = ("flop", "bytes", "ns", "times", "limit")


def build(comparison: Comparison, shown_first: Sequence[Screen] = ()) -> dict[str, Any]:
    """Sides, modules and layers as lists; see the module's docstring for how they are joined."""
    sides = {s.key: i for i, s in enumerate(comparison.sides)}
    counters = counted_rows(comparison)
    layers = _layers(comparison, sides, counters)
    loose = _nodes(comparison, layers)
    modules = _modules(comparison, sides, counters)
    by_path: dict[str, int] = {}
    for i, m in enumerate(comparison.modules):
        if m.kind == "module":
            by_path.setdefault(m.path, i)
    for module, node in loose:
        if modules:
            modules[by_path.get(module or "", 0)]["loose"].append(node)
    shown = panels.panels(comparison)
    return {
        "sides": [
            {
                "label": s.label,
                "side": s.task,
                "doubt": "; ".join(doubts.series(s)),
                **({"wrong": doubts.outputs(s)} if s.wrong else {}),
            }
            for s in comparison.sides
        ],
        "panels": [
            {
                "key": p["key"],
                "sides": [sides[s.key] for s in p["sides"]],
                **_columns_of(comparison, p),
            }
            for p in shown
        ],
        **_columns(comparison),
        "first": panels.first(comparison, shown),
        "screens": [[sides.get(s.over or ""), sides.get(s.under), s.wrong] for s in shown_first],
        "icicles": icicles.of(comparison, by_path),
        "modules": modules,
        "layers": layers,
        "rules": RULES,
        "open": _opened(modules),
    }


def _layers(
    comparison: Comparison, sides: Mapping[str, int], counters: Counters
) -> list[dict[str, Any]]:
    return [
        {
            "side": sides.get(r.side),
            **_known({"label": None if r.side in sides else r.side}),
            "name": r.layer,
            "kind": r.kind,
            "rule": r.rule,
            "modules": r.modules,
            "calls": r.calls,
            "kernels": r.kernels,
            "time": [*r.time.figures().values()],
            "share": _digits(r.share),
            **_known(
                {
                    "floor": r.floor and _known({k: _whole(getattr(r.floor, k)) for k in _FLOOR}),
                    "counters": counters.get((r.side, "layer", r.layer)),
                    "in": r.precision_in,
                    "out": r.precision_out,
                    "compute": r.compute_precision,
                    "tactic": r.tactic,
                }
            ),
            "nodes": [],
        }
        for r in comparison.layers
    ]


def _modules(
    comparison: Comparison, sides: Mapping[str, int], counters: Counters
) -> list[dict[str, Any]]:
    ids: dict[str, int] = {}
    for i, m in enumerate(comparison.modules):
        ids.setdefault(m.id, i)
    found: list[dict[str, Any]] = []
    for i, (m, own) in enumerate(
        zip(comparison.modules, _layers_of_modules(comparison), strict=True)
    ):
        parent = ids.get(m.parent) if m.parent is not None else None
        is_module = m.kind == "module"
        found.append(
            {
                # A parent stands before its children; anything else would be a circle.
                "parent": parent if parent is not None and parent < i else None,
                "name": m.name,
                "path": m.path,
                "cls": m.module_class,
                "kind": m.kind,
                "members": m.members,
                "costs": [_cost(m.costs.get(key)) for key in sides],
                "counters": [
                    counters.get((key, "module", m.path)) if is_module else None for key in sides
                ]
                if counters
                else [],
                "layers": own,
                "loose": [],
                **_errors(comparison, m),
                **_more(comparison, m),
            }
        )
    return found


def _columns(comparison: Comparison) -> dict[str, Any]:
    """What columns there are beside the sides; nothing where there is none."""
    if not comparison.columns:
        return {}
    return {
        "columns": [
            {"title": panels.heading(comparison, c), "note": c.note} for c in comparison.columns
        ]
    }


def _columns_of(comparison: Comparison, panel: panels.Panel) -> dict[str, list[int]]:
    if not comparison.columns:
        return {}
    return {"columns": [comparison.columns.index(c) for c in panels.columns(comparison, panel)]}


def _more(comparison: Comparison, row: ModuleRow) -> dict[str, list[Any]]:
    """Value and text of a module in each column, null where it is not known."""
    if row.kind != "module" or not any(row.path in c.values for c in comparison.columns):
        return {}
    return {
        "more": [
            [c.values[row.path], panels.value(c, row)] if row.path in c.values else None
            for c in comparison.columns
        ]
    }


def _errors(comparison: Comparison, row: ModuleRow) -> dict[str, list[Any]]:
    """The error of a module on each side; nothing where it was measured of none."""
    if row.kind != "module" or not any(s.errors for s in comparison.sides):
        return {}
    found = [s.errors.get(row.path) for s in comparison.sides]
    texts = ["" if m is None else doubts.error(m) for m in found]
    sizes = [
        None if m is None else [m.error_out, m.first_wrong or bool(m.nonfinite)] for m in found
    ]
    return {"errors": texts, "off": sizes}


def _layers_of_modules(comparison: Comparison) -> Iterator[list[int]]:
    """The layers of each row of `modules`, by position."""
    layer_ids = {r.id: i for i, r in reversed(list(enumerate(comparison.layers)))}
    of_module: dict[str, list[int]] = defaultdict(list)
    for i, r in enumerate(comparison.layers):
        for path in dict.fromkeys(r.modules):
            of_module[path].append(i)
    # A module with parts has its own operations in a block below it, and their layers there.
    in_blocks = {p for m in comparison.modules if m.layers for p in m.members}
    for m in comparison.modules:
        own = [layer_ids[x] for x in m.layers if x in layer_ids]
        if m.kind == "module" and m.path not in in_blocks:
            own += of_module.get(m.path, [])
        yield list(dict.fromkeys(own))


def counted_rows(comparison: Comparison) -> Counters:
    """Counters by side, kind (module, layer) and name, those of layers with their kernels."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    counters = comparison.counters
    for side in counters.sides if counters else ():
        by_id: dict[str, dict[str, Any]] = {}
        for r in side.rows:
            if r.kind == "kernel":
                kernel = [r.name, r.launches, r.measured, r.text, _digits(r.replay_ns)]
                by_id[r.parent or ""]["kernels"].append(kernel)
                continue
            made = {
                "bound": r.bound,
                "peak": counted.peak(r),
                "bytes": r.times_bytes,
                "text": r.text,
                "facts": counted.details(r),
                "kernels": [],
            }
            by_id[r.id] = found[side.key, r.kind, r.name] = made
    return found


def visible_rows(data: dict[str, Any]) -> list[int]:
    """Which modules are seen at first, in order: those whose ancestors are all open."""
    opened, seen = set(data["open"]), set()
    for i, m in enumerate(data["modules"]):
        if m["parent"] is None or (m["parent"] in seen and m["parent"] in opened):
            seen.add(i)
    return sorted(seen)


def _cost(c: Cost | None) -> list[Any] | None:
    if c is None:
        return None
    found = [c.own.median, c.own.low, c.own.high, c.shared, _digits(c.share)]
    return [*found, c.upper.low, c.upper.high] if c.shared else found


def _known(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value: in a page of thousands of layers the others are a fifth."""
    return {name: value for name, value in fields.items() if value is not None}


def _whole(value: Any) -> Any:
    """A count without its ".0"."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _digits(share: float | None) -> float | None:
    """Nine digits: three are shown, and the others would be a sixth of the page."""
    return float(f"{share:.9g}") if formatting.known(share) else share


def _nodes(
    comparison: Comparison, layers: list[dict[str, Any]]
) -> list[tuple[str | None, list[Any]]]:
    """Give each layer its nodes, ``[name, op, status]``; return those that no layer has."""
    facts = {(n.side, n.name): n for n in comparison.nodes}
    claimed: set[tuple[str, str]] = set()
    named: dict[tuple[str, str], int] = {}
    for i, r in enumerate(comparison.layers):
        named.setdefault((r.side, r.layer), i)
        for name in r.nodes:
            n = facts.get((r.side, name))
            claimed.add((r.side, name))
            layers[i]["nodes"].append([name, n.op if n else None, n.status if n else None])
    loose = []
    sides = {s.key: i for i, s in enumerate(comparison.sides)}
    for key, n in facts.items():
        if key in claimed:
            continue
        found = named.get((n.side, n.layer)) if n.layer is not None else None
        if found is not None:
            layers[found]["nodes"].append([n.name, n.op, n.status])
        else:
            node = [n.name, n.op, n.status, sides.get(n.side)]
            loose.append((n.module, node))
    return loose


def _opened(modules: list[dict[str, Any]]) -> list[int]:
    """The rows to open at first: from the model down its costliest part, to a handful of rows."""
    children: dict[int | None, list[int]] = defaultdict(list)
    for i, m in enumerate(modules):
        children[m["parent"]].append(i)

    def weight(i: int) -> float:
        costs = [c for c in modules[i]["costs"] if c and formatting.known(c[0])]
        return max((c[0] + (c[3] or 0) for c in costs), default=0)

    opened: list[int] = []
    level = children[None]
    rows = sum(modules[i]["kind"] == "module" for i in level)
    while level and rows < FIRST_ROWS:
        best = max((i for i in level if children[i]), key=weight, default=None)
        if best is None:
            break
        opened.append(best)
        level = children[best]
        rows += len(level)
    return opened
