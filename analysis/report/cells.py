"""Costs and intervals as cells of a table."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.stats import Estimate
from ..formatting import UNKNOWN, exact, known, ratio, time, time_range
from ..model.comparison import Cost


def interval(e: Estimate) -> str:
    """An estimate's interval and count: ``1.20 – 1.30 ms, n 120``."""
    if not e.n and not known(e.median):
        return ""
    if not (known(e.low) and known(e.high)):
        return f"no interval, n {e.n}"
    return f"{time_range(e.low, e.high)}, n {e.n}"


def whole(c: Cost | None) -> int:
    """The upper median; 0 where it is unknown."""
    return c.upper.median or 0 if c else 0


def cost(c: Cost | None) -> str:
    """A module's cost, ``[own, own + shared]``: one time where nothing is shared."""
    if c is None or not known(c.own.median):
        return UNKNOWN
    if not known(c.upper.median):
        return f"≥ {time(c.own.median)}"
    return time_range(c.own.median, c.upper.median)


def cost_interval(c: Cost | None) -> str:
    """The 95 % interval of a cost's median, of both ends where layers are shared."""
    if c is None or c.own.median is None:
        return ""
    if not (known(c.own.low) and known(c.own.high)):
        return "no interval"
    own = time_range(c.own.low, c.own.high)
    if c.shared == 0:
        return f"95 %: {own}"
    low, high = c.upper.low, c.upper.high
    shared = time_range(low, high) if known(low) and known(high) else "unknown"
    return f"95 %: own {own}, with shared {shared}"


def cost_exact(c: Cost | None) -> str:
    """The same in exact nanoseconds, with the interval of the median: for a tooltip."""
    if c is None or c.own.median is None:
        return "not measured here"
    text = f"own {exact(c.own.median)}"
    if known(c.own.low) and known(c.own.high):
        text += f" (95 % {exact(c.own.low)} to {exact(c.own.high)})"
    if not known(c.shared):
        return f"{text}, with layers shared with other modules unknown"
    if c.shared:
        text += f", with layers shared with other modules {exact(c.upper.median)}"
    return text


def signed(ns: int) -> str:
    """A difference: ``+1.20 ms``, ``−1.20 ms``."""
    return f"+{time(ns)}" if ns > 0 else time(ns)


@dataclass(frozen=True)
class Change:
    """How two costs differ, in ns, and how many times as fast the second is; each lies between its
    ends, which are equal where no layer is shared. None where it has no end."""

    least: int
    most: int
    low: float | None
    high: float | None


def change_ends(over: Cost | None, under: Cost | None) -> Change | None:
    """How `under` differs from `over`; None where one of them is not known."""
    if over is None or under is None:
        return None
    a, a_upper, b, b_upper = (e.median for e in (over.own, over.upper, under.own, under.upper))
    if a is None or a_upper is None or b is None or b_upper is None:
        return None
    low = a / b_upper if a_upper and b_upper else None
    high = a_upper / b if a_upper and b else None
    return Change(b - a_upper, b_upper - a, low, high)


def change(over: Cost | None, under: Cost | None) -> tuple[str, str]:
    """By how much `under` takes longer, and how many times as fast it is; ranges where layers are
    shared."""
    found = change_ends(over, under)
    if found is None:
        return UNKNOWN, UNKNOWN
    least, most = signed(found.least), signed(found.most)
    difference = least if least == most else f"{least} to {most}"
    if found.low is None:
        return difference, UNKNOWN
    low, high = ratio(found.low), UNKNOWN if found.high is None else ratio(found.high)
    if low == high:
        return difference, low
    if found.low and found.high is not None:
        return difference, f"{low} to {high}"
    at_most = UNKNOWN if found.high is None else f"≤ {high}"
    return difference, f"≥ {low}" if found.low else at_most
