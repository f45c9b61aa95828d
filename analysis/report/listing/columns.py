"""The columns that listings have in common: each as it is shown, and plain for other programs."""

from __future__ import annotations

from collections.abc import Sequence

from ....core.stats import Estimate
from ...formatting import UNKNOWN, percent
from .grid import Column

WIDE = 100  # characters from which an interval is written with both ends


def milliseconds(ns: Sequence[int | None]) -> Column:
    """Sums, to the microsecond; plain to the nanosecond."""
    return Column("total ms", _shown(ns, 1e6), plain=[("total ms", _plain(ns, 1e6, 6))])


def microseconds(head: str, ns: Sequence[float | None], spare: int = 0) -> Column:
    """To the nanosecond."""
    return Column(head, _shown(ns, 1e3), spare=spare, plain=[(head, _plain(ns, 1e3))])


def shares(values: Sequence[float | None]) -> Column:
    """As per cent."""
    hundredths = [None if v is None else v * 100 for v in values]
    return Column("share", [percent(v) for v in values], plain=[("share %", _plain(hundredths, 1))])


def counts(head: str, values: Sequence[int | None], spare: int) -> Column:
    """Whole numbers."""
    return Column(
        head,
        [UNKNOWN if v is None else f"{v:,}" for v in values],
        spare=spare,
        plain=[(head, ["" if v is None else str(v) for v in values])],
    )


def intervals(of: Sequence[Estimate], width: int, spare: int) -> Column:
    """Of medians: both ends, or half the width where a terminal is narrow; plain in columns."""
    lows, highs = [e.low for e in of], [e.high for e in of]
    if width < WIDE:
        head, cells = "± 95 %", [half_width(e) for e in of]
    else:
        ends = zip(_shown(lows, 1e3), _shown(highs, 1e3), strict=True)
        head = "95 % interval"
        cells = [UNKNOWN if UNKNOWN in (low, high) else f"{low} … {high}" for low, high in ends]
    plain = [("low µs", _plain(lows, 1e3)), ("high µs", _plain(highs, 1e3))]
    return Column(head, cells, spare=spare, plain=plain)


def half_width(of: Estimate) -> str:
    """How far the farther end of an interval is from the median, as a share of it."""
    if not of.median or of.low is None or of.high is None:
        return UNKNOWN
    return f"±{percent(max(of.high - of.median, of.median - of.low) / of.median)}"


def _shown(values: Sequence[float | None], unit: float) -> list[str]:
    return [UNKNOWN if v is None else f"{v / unit:,.3f}" for v in values]


def _plain(values: Sequence[float | None], unit: float, decimals: int = 3) -> list[str]:
    return ["" if v is None else f"{v / unit:.{decimals}f}" for v in values]
