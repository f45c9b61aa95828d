"""What `layerline read` prints: a file's names by the time they take."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ...costs.summed import Group, Summed
from ...formatting import UNKNOWN, percent
from .grid import Column, show

SORTS = ("total", "calls", "median", "name")
WIDE = 100  # characters from which an interval is written with both ends
UNNAMED = "(not known)"


def print_sums(console: Console, sums: Summed, top: int, sort: str) -> None:
    """A table and its sum. `top`: how many names."""
    console.print(Text(f"  {sums.what}, {_count(len(sums.groups), 'name')}"), soft_wrap=True)
    groups = ordered(sums.groups, sort)
    show(console, _columns(groups[:top], sums, narrow=console.width < WIDE))
    for line in _after(sums, groups[top:]):
        console.print(Text(f"  {line}"), soft_wrap=True)


def ordered(groups: list[Group], sort: str) -> list[Group]:
    """The largest first; names by the alphabet; what is not known last."""
    if sort == "name":
        return sorted(groups, key=lambda g: (g.name is None, g.name or ""))

    def value(group: Group) -> int | None:
        if sort == "calls":
            return group.calls
        return group.total_ns if sort == "total" else group.typical.median

    return sorted(groups, key=lambda g: (value(g) is None, -(value(g) or 0), g.name or ""))


def _columns(groups: list[Group], sums: Summed, *, narrow: bool) -> list[Column]:
    total = sums.total_ns
    shares = [None if not total or g.total_ns is None else g.total_ns / total for g in groups]
    totals = [g.total_ns for g in groups]
    typical = [g.typical for g in groups]
    plain = [
        ("low µs", [_plain_us(t.low) for t in typical]),
        ("high µs", [_plain_us(t.high) for t in typical]),
    ]
    return [
        Column(
            "total ms",
            [UNKNOWN if ns is None else f"{ns / 1e6:,.3f}" for ns in totals],
            plain=[("total ms", ["" if ns is None else f"{ns / 1e6:.6f}" for ns in totals])],
        ),
        Column(
            "share",
            [percent(s) for s in shares],
            plain=[("share %", ["" if s is None else f"{s * 100:.3f}" for s in shares])],
        ),
        Column(
            "calls",
            ["–" if g.calls is None else f"{g.calls:,}" for g in groups],
            spare=2,
            plain=[("calls", ["" if g.calls is None else str(g.calls) for g in groups])],
        ),
        Column(
            "median µs",
            [us(t.median) for t in typical],
            spare=1,
            plain=[("median µs", [_plain_us(t.median) for t in typical])],
        ),
        Column(
            *(
                ("± 95 %", [half_width(t.median, t.low, t.high) for t in typical])
                if narrow
                else ("95 % interval", [interval(t.low, t.high) for t in typical])
            ),
            spare=3,
            plain=plain,
        ),
        Column("name", [UNNAMED if g.name is None else g.name for g in groups], False, True),
    ]


def _after(sums: Summed, rest: list[Group]) -> Iterator[str]:
    if rest:
        ns = sum(g.total_ns or 0 for g in rest)
        share = f", {percent(ns / sums.total_ns)}" if sums.total_ns else ""
        yield f"… {_count(len(rest), 'more name')}{share}; --top {len(sums.groups)} shows all"
    text = f"{sums.total_ns / 1e6:,.3f} ms in all"
    if sums.per == "iteration":
        text += f"; medians are of a name's sum in an iteration (n {sums.iterations})"
        if sums.outside:
            text += f", without {_count(sums.outside, 'row')} in none"
    elif sums.per == "call":
        text += "; medians are of one call"
    elif sums.per == "row":
        text += "; medians are those of the file"
    yield text
    if sums.unknown:
        yield f"{_count(sums.unknown, 'row')} without a time: counted as calls, in no sum"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def us(ns: int | None) -> str:
    """Microseconds, to the nanosecond."""
    return "–" if ns is None else f"{ns / 1000:,.3f}"


def _plain_us(ns: int | None) -> str:
    return "" if ns is None else f"{ns / 1000:.3f}"


def interval(low: int | None, high: int | None) -> str:
    """Both ends, in microseconds."""
    return "–" if low is None or high is None else f"{us(low)} … {us(high)}"


def half_width(median: int | None, low: int | None, high: int | None) -> str:
    """How far the farther end of an interval is from the median, as a share of it."""
    if not median or low is None or high is None:
        return "–"
    return f"±{percent(max(high - median, median - low) / median)}"
