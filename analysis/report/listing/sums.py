"""What `layerline read` prints: a file's names by the time they take."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from ...costs.summed import Group, Summed
from ...formatting import counted, percent
from . import columns
from .grid import Column, show

SORTS = ("total", "calls", "median", "name")
UNNAMED = "(not known)"


def print_sums(console: Console, sums: Summed, top: int, sort: str) -> None:
    """A table and its sum. `top`: how many names."""
    console.print(Text(f"  {sums.what}, {counted(len(sums.groups), 'name')}"), soft_wrap=True)
    groups = ordered(sums.groups, sort)
    show(console, _columns(groups[:top], sums, console.width))
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


def _columns(groups: list[Group], sums: Summed, width: int) -> list[Column]:
    total = sums.total_ns
    ns, typical = [g.total_ns for g in groups], [g.typical for g in groups]
    return [
        columns.milliseconds(ns),
        columns.shares([None if not total or n is None else n / total for n in ns]),
        columns.counts("calls", [g.calls for g in groups], spare=2),
        columns.microseconds("median µs", [t.median for t in typical], spare=1),
        columns.intervals(typical, width, spare=3),
        Column("name", [UNNAMED if g.name is None else g.name for g in groups], False, True),
    ]


def _after(sums: Summed, rest: list[Group]) -> Iterator[str]:
    if rest:
        ns = sum(g.total_ns or 0 for g in rest)
        share = f", {percent(ns / sums.total_ns)}" if sums.total_ns else ""
        yield f"… {counted(len(rest), 'more name')}{share}; --top {len(sums.groups)} shows all"
    text = f"{sums.total_ns / 1e6:,.3f} ms in all"
    if sums.per == "iteration":
        text += f"; medians are of a name's sum in an iteration (n {sums.iterations})"
        if sums.outside:
            text += f", without {counted(sums.outside, 'row')} in none"
    elif sums.per == "call":
        text += "; medians are of one call"
    elif sums.per == "row":
        text += "; medians are those of the file"
    yield text
    if sums.unknown:
        yield f"{counted(sums.unknown, 'row')} without a time: counted as calls, in no sum"
