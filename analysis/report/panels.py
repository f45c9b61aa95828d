"""Which sides stand beside each other: all of them, or those of one precision at a time.

Six columns can be read; a run of several backends in three precisions has eighteen. Beyond
`SIDE_BY_SIDE` sides each precision is a panel of its own, in which an engine stands beside the
eager model that it is compared with.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypedDict

from ...core.capture_names import PRECISIONS
from .. import formatting
from ..model.comparison import Column, Comparison, Kind, ModuleRow, Side

SIDE_BY_SIDE = 6
PHASES = ("inference", "data", "forward", "loss", "recompute", "backward", "optimizer", "step")


class Panel(TypedDict):
    """Sides that are shown together. `key` is safe in an id; `title` is "" where there is one
    panel alone; `note` says which column is of another precision, and why."""

    key: str
    title: str
    sides: list[Side]
    note: str


def panels(comparison: Comparison) -> list[Panel]:
    """The panels, fp32 first; together they hold every side."""
    sides = comparison.sides
    found = dict.fromkeys(s.precision for s in sides)
    if len(found) < 2 or len(sides) <= SIDE_BY_SIDE:
        return [{"key": "all", "title": "", "sides": list(sides), "note": ""}]
    result: list[Panel] = []
    keys: set[str] = set()
    for precision in sorted(found, key=rank):
        here = [s for s in sides if s.precision == precision]
        reference, note = _reference(sides, here, precision)
        key = re.sub(r"[^a-z0-9]+", "-", precision.lower()).strip("-") or "other"
        while key in keys:
            key += "-2"
        keys.add(key)
        ordered = sorted([*here, *reference], key=lambda s: _place(s, precision))
        result.append({"key": key, "title": precision, "sides": ordered, "note": note})
    return result


def seen(panel: Panel, row: ModuleRow | Kind) -> bool:
    """Whether a row has a cost on one of the panel's sides; one without any cost is in each."""
    return not row.costs or any(s.key in row.costs for s in panel["sides"])


def columns(comparison: Comparison, panel: Panel) -> list[Column]:
    """What is known of modules besides, of a precision that the panel shows."""
    shown = {s.precision for s in panel["sides"]}
    return [c for c in comparison.columns if c.precision is None or c.precision in shown]


def value(column: Column, row: ModuleRow) -> str:
    """What a column says of a row; empty where nothing is known."""
    found = column.values.get(row.path) if row.kind == "module" else None
    return "" if found is None else _UNITS[column.unit](found)


def heading(comparison: Comparison, column: Column) -> str:
    """A column's title, with its precision where columns of several stand beside one another."""
    alike = [c for c in comparison.columns if c.title == column.title]
    return f"{column.title}, {column.precision}" if len(alike) > 1 else column.title


_UNITS = {"ns": formatting.time, "bytes": formatting.size, "share": formatting.percent}


def first(comparison: Comparison, among: Sequence[Panel]) -> int:
    """The panel to open with: that of the engine which the first sentence tells."""
    lead = next((r.under for r in comparison.ratios if r.lead), None)
    return next((i for i, p in enumerate(among) if any(s.key == lead for s in p["sides"])), 0)


def rank(precision: str) -> tuple[int, str]:
    """The place of a precision in the order of panels; of no known one behind all, by name."""
    known = precision in PRECISIONS
    return (PRECISIONS.index(precision) if known else len(PRECISIONS), precision)


def _place(side: Side, precision: str) -> tuple[bool, bool, int]:
    """Engines, eager inference, then training in the order in which it runs."""
    return side.task != "engine", side.precision != precision, runs_at(side.phase)


def runs_at(phase: str) -> int:
    """The place of a phase in the order in which phases run; behind all where unknown."""
    return PHASES.index(phase) if phase in PHASES else len(PHASES)


def _reference(
    sides: Sequence[Side], here: Sequence[Side], precision: str
) -> tuple[list[Side], str]:
    """Eager inference in fp32 for engines whose own precision was not measured eagerly: it is
    what their ratio is of."""
    if not any(s.task == "engine" for s in here) or any(_eager(s) for s in here):
        return [], ""
    found = [s for s in sides if _eager(s) and s.precision == "fp32"][:1]
    if not found:
        return [], ""
    return found, f"{found[0].label} stands for eager {precision}, which was not measured here."


def _eager(side: Side) -> bool:
    return side.task == "eager" and side.phase == "inference"


def names(comparison: Comparison, keys: Iterable[str] | None) -> str:
    """Sides in words: "every side", "every engine", else by label; "" for none."""
    given = list(dict.fromkeys(keys or ()))
    labels = {s.key: s.label for s in comparison.sides}
    if len(labels) > 1 and set(given) >= set(labels):
        return "every side"
    engines = [s for s in comparison.sides if s.task == "engine"]
    training = [s for s in comparison.sides if s.task != "engine" and not _eager(s)]
    groups = {
        "every engine": engines,
        "every eager inference": [s for s in comparison.sides if _eager(s)],
        "every phase of training": training,
    }
    for p in dict.fromkeys(s.precision for s in comparison.sides):
        groups[f"the {p} engines"] = [s for s in engines if s.precision == p]
        groups[f"{p} training"] = [s for s in training if s.precision == p]
    words = []
    for word, group in groups.items():
        members = [s.key for s in group]
        if len(members) > 1 and set(members) <= set(given):
            words.append(word)
            given = [k for k in given if k not in members]
    return ", ".join([*words, *(labels.get(k, k) for k in given)])
