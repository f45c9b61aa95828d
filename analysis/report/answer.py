"""Every comparison as one row of text, for the page, the Markdown and the terminal.

And what a reader must know of a side before believing a row: that little was computed in the
precision that was asked for, or that its latency has not settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from .. import formatting
from ..comparison.lead import ALIKE, _lack, alike, unsettled
from ..model.comparison import Comparison, Place, Ratio, Side

HEAD = ("", "side", "as", "95 % interval", "saves most in", "loses most in")
NOTE = "note"


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


def comparisons(view: Comparison) -> list[Row]:
    """All comparisons, the one that the headline leads with first."""
    sides = {s.key: s for s in view.sides}
    ordered = sorted(view.ratios, key=lambda r: not r.lead)
    return [_row(r, sides) for r in ordered]


def head(rows: Sequence[Row]) -> list[str]:
    """The columns' titles; notes have a column where there are any."""
    return [*HEAD, NOTE] if any(r["note"] for r in rows) else [*HEAD]


def cells(row: Row, titles: Sequence[str]) -> list[str]:
    """The row's text below `titles`."""
    found = [row["times"], row["side"], row["against"], row["interval"], row["saves"]]
    return [*found, row["loses"], row["note"]][: len(titles)]


def _row(ratio: Ratio, sides: dict[str, Side]) -> Row:
    over, under = sides.get(ratio.over), sides.get(ratio.under)
    low, high = ratio.low, ratio.high
    notes = [_lack(under)[0]] if under else []
    if over and (lack := _lack(over)[0]):
        notes.append(f"{over.label}: {lack}")
    loose = [s.label for s in (under, over) if s and unsettled(s)]
    if loose:
        notes.append(f"not settled: {', '.join(loose)}")
    if alike(ratio):
        notes.insert(0, ALIKE)
    return {
        "times": f"{formatting.ratio(ratio.ratio)} as fast",
        "ratio": formatting.ratio(ratio.ratio),
        "side": under.label if under else ratio.under,
        "against": over.label if over else ratio.over,
        "interval": formatting.ratio_range(low, high),
        "saves": place(ratio.saves),
        "loses": place(ratio.loses),
        "note": "; ".join(filter(None, notes)),
        "lead": bool(ratio.lead),
        "alike": alike(ratio),
    }


def place(found: Sequence[Place] | None) -> str:
    """The first of these places with what is known of its time; "–" where there is none."""
    if not found:
        return formatting.UNKNOWN
    first = found[0]
    low, high = first.low_ns, first.high_ns
    if low is not None and high is not None:
        return f"{first.name} {formatting.time_range(low, high)}"
    at_least = "" if first.ns is not None else "≥ "
    return f"{first.name} {at_least}{formatting.time(first.at_least_ns)}, no interval"
