"""The answer for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from ....core.cli.columns import aligned
from ... import formatting
from ...memory.explain import Explained
from ...memory.remedies import Remedy
from . import sentences
from .page import by_pattern

SHOWN = 8


def lines(done: Explained) -> Iterator[str]:
    """What the page says first."""
    peak = done.peak
    yield sentences.heading(done)
    yield sentences.lead(done)
    yield ""
    rows = [*peak.categories.items(), ("rounding", peak.rounding)]
    shares = [
        [name, formatting.size(size), formatting.percent(size / max(peak.allocated, 1))]
        for name, size in rows
    ]
    if peak.fragmentation is not None:
        shares.append(["fragmentation, beside it", formatting.size(peak.fragmentation), ""])
    yield from aligned([sentences.when(done), "bytes", "share"], shares, right={1, 2})
    for title, held in (("module", by_pattern(peak.modules)), ("line", peak.lines)):
        largest = sorted(held, key=lambda item: -sum(item[1].values()))[:SHOWN]
        table = [
            [formatting.size(sum(by.values())), max(by, key=lambda c: by[c]), formatting.short(n)]
            for n, by in largest
        ]
        yield ""
        yield from aligned(["bytes", "mostly", title], table, right={0})
    if done.remedies:
        yield ""
        yield from aligned(
            ["saves", "then", "to lower it"], [_row(r) for r in done.remedies], right={0, 1}
        )
    if said := [*map(sentences.check, peak.checks), *done.notes]:
        yield ""
    yield from said


def _row(remedy: Remedy) -> list[str]:
    what = remedy.what if remedy.of == "allocated" else f"{remedy.what} (reserved)"
    then = formatting.size(remedy.after)
    if remedy.already:
        what, then = f"{what}; {remedy.why_not}, without it {then}", ""
    elif remedy.tried:
        what = f"{what}; {sentences.tried(remedy, remedy.tried)}"
    elif remedy.why_not:
        what = f"{what}; {remedy.why_not}"
    return [formatting.size(remedy.saves), then, what]
