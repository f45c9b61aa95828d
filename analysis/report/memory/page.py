"""report/memory.html: one file that opens offline and sends nothing anywhere (see `html`).

Only what matters is in it: the moments of one step that are drawn, and the largest allocations.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import Environment

from ....core.module_paths import kind_of
from ... import formatting
from ...memory.categories import CATEGORIES
from ...memory.explain import Explained
from ..templates import css, environment, with_script
from . import sentences

ROWS = 40  # of a table
LEAST_OF_DEVICE = 0.25
Held = Sequence[tuple[str, dict[str, int]]]


def render(done: Explained, title: str) -> str:
    """The page. Every string is escaped, none is trusted."""
    peak = done.peak
    modules = by_pattern(peak.modules)
    return (
        _environment()
        .get_template("memory.html.j2")
        .render(
            title=title,
            heading=sentences.heading(done),
            lead=sentences.lead(done),
            when=sentences.when(done),
            done=done,
            peak=peak,
            bar=_bar(done),
            scale=_scale(done),
            scale_in_words=_scale_in_words(done),
            codes={c: CATEGORIES.index(c) for c in CATEGORIES},
            modules=_rows(modules, peak.allocated),
            modules_left=max(0, len(modules) - ROWS),
            lines=_rows(peak.lines, peak.allocated),
            lines_left=max(0, len(peak.lines) - ROWS),
            sentences=sentences,
            columns=[c for c in CATEGORIES if c in peak.categories],
            css=css("page.css", "memory.css"),
            **with_script(("page/time", "memory"), payload(done)),
        )
    )


def by_pattern(modules: Held) -> list[tuple[str, dict[str, int]]]:
    """Modules of one pattern as one, with how many there are: ``transformer.h.*.attn ×12``."""
    sums: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    count: dict[str, int] = defaultdict(int)
    for module, held in modules:
        count[kind_of(module)] += 1
        for category, size in held.items():
            sums[kind_of(module)][category] += size
    named = [(f"{p} ×{count[p]}" if count[p] > 1 else p, dict(h)) for p, h in sums.items()]
    return sorted(named, key=lambda item: (-sum(item[1].values()), item[0]))


def payload(done: Explained) -> dict[str, Any]:
    """What the script draws: texts once each, and their numbers."""
    line = done.timeline
    modules: dict[str, int] = {}
    lines: dict[str, int] = {}
    groups = [
        [
            modules.setdefault(kind_of(g.module), len(modules)),
            CATEGORIES.index(g.category),
            lines.setdefault(g.line, len(lines)),
            g.begin,
            g.end,
            g.bytes,
            g.count,
        ]
        for g in line.groups
    ]
    shown = [c for c in CATEGORIES if c in line.categories]
    return {
        "time": line.time_ns,
        "codes": [*map(CATEGORIES.index, shown), len(CATEGORIES)],
        "values": [*(line.categories[c] for c in shown), line.rounding],
        "all": list(CATEGORIES),
        "reserved": line.reserved,
        "peak": line.peak,
        "phases": line.phases,
        "modules": list(modules),
        "lines": list(lines),
        "groups": groups,
        "left": line.left_out,
    }


def _scale(done: Explained) -> int:
    """What the bar is measured against: the device's memory where enough of it is held that parts
    can be told apart, else what is reserved."""
    held = max(done.peak.reserved or 0, done.peak.allocated, 1)
    whole = max(done.device_bytes or 0, held)
    return whole if held > LEAST_OF_DEVICE * whole else held


def _scale_in_words(done: Explained) -> str:
    scale, device = _scale(done), done.device_bytes
    size = f"The bar is {formatting.size(scale)}"
    if device and scale == device:
        return f"{size}, the device's memory."
    if done.peak.reserved and scale == done.peak.reserved:
        size += ", what is reserved"
    if not device:
        return f"{size}."
    return (
        f"{size}: {formatting.percent(scale / device)} of the device's {formatting.size(device)}."
    )


def _bar(done: Explained) -> list[tuple[str, int, int, float]]:
    """Name, code, bytes, percent of the whole bar."""
    peak, whole = done.peak, _scale(done)
    rows = [(n, CATEGORIES.index(n), size) for n, size in peak.categories.items()]
    rows.append(("rounding", len(CATEGORIES), peak.rounding))
    if peak.fragmentation is not None:
        rows.append(("fragmentation", len(CATEGORIES) + 1, peak.fragmentation))
    return [(n, code, size, round(100 * size / whole, 3)) for n, code, size in rows if size]


def _rows(held: Held, whole: int) -> list[dict[str, Any]]:
    rows = sorted(held, key=lambda item: -sum(item[1].values()))[:ROWS]
    return [
        {"name": n, "by": by, "sum": sum(by.values()), "share": sum(by.values()) / max(whole, 1)}
        for n, by in rows
    ]


def _tie(text: str) -> str:
    """Keep a number and its unit on one line."""
    return re.sub(r"(?<=\d) (?=(?:%|[kMGTP]?B)(?!\w))", "\N{NO-BREAK SPACE}", text)


@cache
def _environment() -> Environment:
    env = environment()
    env.filters |= {"size": formatting.size, "tie": _tie}
    return env
