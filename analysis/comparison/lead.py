"""Which comparison answers first, and what makes one doubtful."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from .. import formatting
from ..model.comparison import Ratio, Side

# Below these, outputs are another model's: half precision of GPT-2 has a cosine of 0.99999.
LEAST_COSINE, LEAST_TOP1 = 0.99, 0.9


def mark_lead(ratios: Sequence[Ratio], sides: Sequence[Side]) -> list[Ratio]:
    """The comparisons, one of them marked as the one to lead with: the fastest engine against
    eager in its own precision.

    Where no engine has eager's latency beside it, against another engine. An engine whose outputs
    are wrong, or that computed nothing in its precision, leads only where there is no other.
    """
    by_key = {s.key: s for s in sides}

    def rank(ratio: Ratio) -> tuple[bool, bool, bool, bool, int]:
        over, under = by_key[ratio.over], by_key[ratio.under]
        return (
            over.task != "eager",
            bool(_inaccurate(under)),
            bool(lacking(under)),
            over.precision != under.precision,
            under.latency.median or 0,
        )

    first = min(ratios, key=rank, default=None)
    return [replace(r, lead=r is first) for r in ratios]


def _inaccurate(side: Side) -> str:
    """What is wrong with an engine's outputs beside eager's; empty where nothing is."""
    p = side.parity
    if not p:
        return ""
    if p.get("nonfinite"):
        return f"{p['nonfinite']:,} values are NaN or infinite"
    cosine, top1 = p.get("cosine"), p.get("top1")
    if cosine is not None and formatting.known(cosine) and cosine < LEAST_COSINE:
        return f"cosine {cosine:.3g}"
    if top1 is not None and formatting.known(top1) and top1 < LEAST_TOP1:
        return f"top-1 agreement {formatting.percent(top1)}"
    return ""


LEAST_TOLD = 0.01  # a smaller share of the time is not worth a word
UNKNOWN = "unknown"
ALIKE = "not distinguishable"


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
    run = {p: s for p, s in side.precision_run.items() if formatting.known(s)}
    asked, rest = run.get(side.precision, 0), run.get(UNKNOWN, 0)
    others = {p: s for p, s in run.items() if p not in (UNKNOWN, side.precision)}
    told = {p: s for p, s in others.items() if s >= LEAST_TOLD}
    if side.task != "engine" or not told or sum(others.values()) <= asked:
        return "", ""
    ran = ", ".join(f"{formatting.percent(s)} {p}" for p, s in told.items())
    which = f"only {formatting.percent(asked)}" if asked else "nothing"
    if rest >= LEAST_TOLD and not asked:
        which += " that can be told"
    return f"{which} was computed in {side.precision}", f"by time, {ran}"


def alike(ratio: Ratio) -> bool:
    """Whether the ratio's interval holds 1: the two are not distinguishable."""
    low, high = ratio.low, ratio.high
    return low is not None and high is not None and low <= 1 <= high


def unsettled(side: Side, which: str = "latency") -> list[str]:
    """What is wrong with the series of the side's latency ("latency", "traced", "queued"); empty
    where it has settled, or where there are too few samples to tell."""
    series = {
        "latency": side.steadiness,
        "traced": side.traced_steadiness,
        "queued": side.queued_steadiness,
    }
    steadiness = series[which]
    return list(steadiness.faults) if steadiness else []


def doubts(side: Side) -> list[str]:
    """What is wrong with each of the side's series, in words that follow "it"."""
    which = {"it": "latency", "while traced it": "traced", "queued it": "queued"}
    return [f"{it} {fault}" for it, series in which.items() for fault in unsettled(side, series)]
