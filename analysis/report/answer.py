"""Every comparison as one row of text, for the page, the Markdown and the terminal.

With what a reader must know before believing it (`report.doubts`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

from .. import formatting
from ..comparison import lead
from ..model.comparison import Comparison, Place, Ratio, Side
from . import doubts


class Row(TypedDict):
    """One row; `lead` is the one that the first sentence tells, `alike`: not distinguishable."""

    times: str  # "7.05× as fast"
    ratio: str  # "7.05×"
    side: str
    against: str
    interval: str
    saves: str
    loses: str
    note: str
    lead: bool
    alike: bool


def comparisons(comparison: Comparison) -> list[Row]:
    """What has no result, then all comparisons, the one that the headline leads with first."""
    sides = {s.key: s for s in comparison.sides}
    wrong = [_no_result(s) for s in comparison.sides if s.wrong]
    return [*wrong, *(row(r, sides, comparison.load) for r in ordered(comparison))]


def _no_result(side: Side) -> Row:
    """An engine that is compared with nothing, for its outputs are wrong."""
    return {
        "times": "no result",
        "ratio": formatting.UNKNOWN,
        "side": side.label,
        "against": formatting.UNKNOWN,
        "interval": formatting.UNKNOWN,
        "saves": formatting.UNKNOWN,
        "loses": formatting.UNKNOWN,
        "note": doubts.outputs(side),
        "lead": False,
        "alike": False,
    }


def ordered(comparison: Comparison) -> list[Ratio]:
    """The ratios, that which the headline leads with first."""
    return sorted(comparison.ratios, key=lambda r: not r.lead)


def table(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """The headings, and below them the cells of each row; notes only where there are any."""
    head = ["", "side", "as", "95 % interval", "saves most in", "loses most in", "note"]
    cells = [
        [r["times"], r["side"], r["against"], r["interval"], r["saves"], r["loses"], r["note"]]
        for r in rows
    ]
    if not any(r["note"] for r in rows):
        head, cells = head[:-1], [line[:-1] for line in cells]
    return head, cells


def row(ratio: Ratio, sides: Mapping[str, Side], load: Mapping[str, float]) -> Row:
    """One comparison; `load`: of the machine, by side."""
    over, under = sides.get(ratio.over), sides.get(ratio.under)
    alike = lead.alike(ratio)
    notes = [*([doubts.ALIKE] if alike else []), *doubts.of_sides(over, under)]
    crowded = lead.crowded(load, *(s for s in (over, under) if s))
    if crowded:
        notes = [doubts.CROWDED, *notes]
    value = formatting.UNKNOWN if crowded else formatting.ratio(ratio.ratio)
    return {
        "times": "cannot tell" if crowded else f"{value} as fast",
        "ratio": value,
        "side": under.label if under else ratio.under,
        "against": over.label if over else ratio.over,
        "interval": value if crowded else formatting.ratio_range(ratio.low, ratio.high),
        "saves": _most(ratio.saves),
        "loses": _most(ratio.loses),
        "note": "; ".join(notes),
        "lead": ratio.lead,
        "alike": alike,
    }


def _most(places: Sequence[Place]) -> str:
    """The first of these places with what is known of its time; "–" where there is none."""
    if not places:
        return formatting.UNKNOWN
    first = places[0]
    if first.low_ns is not None and first.high_ns is not None:
        return f"{first.name} {formatting.time_range(first.low_ns, first.high_ns)}"
    at_least = "" if first.ns is not None else "≥ "
    return f"{first.name} {at_least}{formatting.time(first.at_least_ns)}, no interval"
