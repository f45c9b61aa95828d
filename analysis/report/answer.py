"""Every comparison as one row of text, for the page, the Markdown and the terminal.

And what a reader must know of a side before believing a row: that little was computed in the
precision that was asked for, or that its latency has not settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from . import show
from .view import Place, Ratio, Side, View

HEAD = ("", "side", "as", "95 % interval", "saves most in", "loses most in")
NOTE = "note"
LEAST_TOLD = 0.01  # a smaller share of the time is not worth a word
UNKNOWN = "unknown"
ALIKE = "not distinguishable"


class Comparison(TypedDict):
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


def comparisons(view: View) -> list[Comparison]:
    """All comparisons, the one that the headline leads with first."""
    sides = {s["key"]: s for s in view["sides"]}
    ordered = sorted(view["ratios"], key=lambda r: not r.get("lead"))
    return [_row(r, sides) for r in ordered]


def head(rows: Sequence[Comparison]) -> list[str]:
    """The columns' titles; notes have a column where there are any."""
    return [*HEAD, NOTE] if any(r["note"] for r in rows) else [*HEAD]


def cells(row: Comparison, titles: Sequence[str]) -> list[str]:
    """The row's text below `titles`."""
    found = [row["times"], row["side"], row["against"], row["interval"], row["saves"]]
    return [*found, row["loses"], row["note"]][: len(titles)]


def _row(ratio: Ratio, sides: dict[str, Side]) -> Comparison:
    over, under = sides.get(ratio["over"]), sides.get(ratio["under"])
    low, high = ratio.get("low"), ratio.get("high")
    notes = [_lack(under)[0]] if under else []
    if over and (lack := _lack(over)[0]):
        notes.append(f"{over['label']}: {lack}")
    loose = [s["label"] for s in (under, over) if s and unsettled(s)]
    if loose:
        notes.append(f"not settled: {', '.join(loose)}")
    if alike(ratio):
        notes.insert(0, ALIKE)
    return {
        "times": f"{show.ratio(ratio['ratio'])} as fast",
        "ratio": show.ratio(ratio["ratio"]),
        "side": under["label"] if under else ratio["under"],
        "against": over["label"] if over else ratio["over"],
        "interval": show.ratio_range(low, high),
        "saves": place(ratio.get("saves")),
        "loses": place(ratio.get("loses")),
        "note": "; ".join(filter(None, notes)),
        "lead": bool(ratio.get("lead")),
        "alike": alike(ratio),
    }


def place(found: Sequence[Place] | None) -> str:
    """The first of these places with what is known of its time; "–" where there is none."""
    if not found:
        return show.UNKNOWN
    first = found[0]
    low, high = first["low_ns"], first["high_ns"]
    if low is not None and high is not None:
        return f"{first['name']} {show.time_range(low, high)}"
    at_least = "" if first["ns"] is not None else "≥ "
    return f"{first['name']} {at_least}{show.time(first['at_least_ns'])}, no interval"


def lacking(side: Side) -> str:
    """That an engine computed little of its time in its precision, and in what instead; else
    empty."""
    short, ran = _lack(side)
    return f"{short} ({ran})" if short else ""


def _lack(side: Side) -> tuple[str, str]:
    """That little or nothing was computed in the precision asked for, and in what instead; empty
    where at least as much time is known to be of that precision as of others.

    Time of unknown precision may be what was asked for, so it is said to be left out.
    """
    run = {p: s for p, s in side["precision_run"].items() if show.known(s)}
    asked, rest = run.get(side["precision"], 0), run.get(UNKNOWN, 0)
    others = {p: s for p, s in run.items() if p not in (UNKNOWN, side["precision"])}
    told = {p: s for p, s in others.items() if s >= LEAST_TOLD}
    if side["side"] != "engine" or not told or sum(others.values()) <= asked:
        return "", ""
    ran = ", ".join(f"{show.percent(s)} {p}" for p, s in told.items())
    which = f"only {show.percent(asked)}" if asked else "nothing"
    if rest >= LEAST_TOLD and not asked:
        which += " that can be told"
    return f"{which} was computed in {side['precision']}", f"by time, {ran}"


def alike(ratio: Ratio) -> bool:
    """Whether the ratio's interval holds 1: the two are not distinguishable."""
    low, high = ratio.get("low"), ratio.get("high")
    return low is not None and high is not None and low <= 1 <= high


def unsettled(side: Side, which: str = "latency") -> list[str]:
    """What is wrong with the series of the side's latency ("latency", "traced", "queued"); empty
    where it has settled, or where there are too few samples to tell."""
    found: Any = side.get("steadiness" if which == "latency" else f"{which}_steadiness")
    return list(found["faults"]) if found else []


def doubts(side: Side) -> list[str]:
    """What is wrong with each of the side's series, in words that follow "it"."""
    said = [f"it {fault}" for fault in unsettled(side)]
    said += [f"while traced it {fault}" for fault in unsettled(side, "traced")]
    return said + [f"queued it {fault}" for fault in unsettled(side, "queued")]
