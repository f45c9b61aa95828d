"""Costs and intervals as cells of a table."""

from __future__ import annotations

from ..formatting import UNKNOWN, exact, known, time, time_range
from ..model.comparison import Cost, Estimate


def interval(e: Estimate) -> str:
    """An estimate's interval and count: ``1.20 – 1.30 ms, n 120``."""
    if not e.n and not known(e.median):
        return ""
    if not (known(e.low) and known(e.high)):
        return f"no interval, n {e.n}"
    return f"{time_range(e.low, e.high)}, n {e.n}"


def whole(c: Cost | None) -> int:
    """own + shared; 0 where it is unknown."""
    return (c.own or 0) + (c.shared or 0) if c is not None and known(c.own) else 0


def cost(c: Cost | None) -> str:
    """A module's cost, ``[own, own + shared]``: one time where nothing is shared."""
    if c is None or c.own is None or not known(c.own):
        return UNKNOWN
    if c.shared is None or not known(c.shared):
        return f"≥ {time(c.own)}"
    return time_range(c.own, c.own + c.shared)


def cost_interval(c: Cost | None) -> str:
    """The 95 % interval of a cost's median, of both ends where layers are shared."""
    if c is None or c.own is None:
        return ""
    if not (known(c.own_low) and known(c.own_high)):
        return "no interval"
    own = time_range(c.own_low, c.own_high)
    if c.shared == 0:
        return f"95 %: {own}"
    low, high = c.upper_low, c.upper_high
    shared = time_range(low, high) if known(low) and known(high) else "unknown"
    return f"95 %: own {own}, with shared {shared}"


def cost_exact(c: Cost | None) -> str:
    """The same in exact nanoseconds, with the interval of the median: for a tooltip."""
    if c is None or c.own is None:
        return "not measured here"
    text = f"own {exact(c.own)}"
    if known(c.own_low) and known(c.own_high):
        text += f" (95 % {exact(c.own_low)} to {exact(c.own_high)})"
    if c.shared is None or not known(c.shared):
        return f"{text}, with layers shared with other modules unknown"
    if c.shared:
        text += f", with layers shared with other modules {exact(c.own + c.shared)}"
    return text
