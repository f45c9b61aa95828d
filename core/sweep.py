"""A sweep's point at the run's own batch, beside the run's own latency: one engine, measured twice.

Both are of the same model, batch and options, in processes of their own, one after the other. Where
their intervals do not meet, neither covers what another process may measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NS_PER_MS = 1_000_000


def remark(
    label: str, batch: int, swept: Mapping[str, Any] | None, own: Mapping[str, Any] | None
) -> str | None:
    """A sentence where the two differ by more than their intervals; None where they do not, or one
    is not known. `swept` and `own`: median, low and high, in ns."""
    if swept is None or own is None:
        return None
    figures = [one.get(k) for one in (swept, own) for k in ("median", "low", "high")]
    if any(f is None for f in figures):
        return None
    if swept["low"] <= own["high"] and own["low"] <= swept["high"]:
        return None
    return (
        f"{label} at batch {batch} took {_text(swept)} here and {_text(own)} in the run itself: "
        "they differ by more than their intervals. This machine is not steady from one process to "
        "the next; the sweep and the run compare no closer than that."
    )


def _text(one: Mapping[str, Any]) -> str:
    median, low, high = (one[k] / NS_PER_MS for k in ("median", "low", "high"))
    return f"{median:.3g} ms ({low:.3g} to {high:.3g})"
