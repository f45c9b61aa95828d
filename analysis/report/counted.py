"""Hardware counters in words and as rows of text: what bounds each module, layer and kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...core.module_paths import kind_of
from .. import formatting
from ..model.comparison import Comparison
from ..model.counters import CountedRow, CountedSide
from ..roofline.sentence import PEAKS

TITLE = "Why it costs that"
LEAD = (
    "Hardware counters, from Nsight Compute. They are of kernels that were replayed one at a time, "
    "with caches emptied before each (unless ncu was told not to) and clocks as said below: they "
    "tell what bounds a kernel, not how long it takes in the model. The share of time beside them "
    "is from the runs without ncu."
)
HEAD = ("module", "share of time", "bound by", "of peak", "FLOP/byte", "FLOP", "× floor",
        "bytes", "× floor", "kernels", "measured", "spread", "IPC", "occupancy")  # fmt: skip
TEXT_COLUMNS = (0, 2)
ALWAYS = 3  # the first columns are there whether they are known or not
ROWS_SHOWN = 40
NAMED = 3  # kernels without counters


def section(comparison: Comparison) -> dict[str, Any] | None:
    """Text for the renderers; None where no side of the comparison runs kernels. Amounts that no
    side has have no column."""
    counters = comparison.counters
    if counters is None or not (counters.sides or counters.uncounted):
        return None
    sides = [_side(s) for s in counters.sides]
    rows = [row["cells"] for s in sides for row in s["rows"]]
    kept = [
        i for i in range(len(HEAD)) if i < ALWAYS or any(r[i] != formatting.UNKNOWN for r in rows)
    ]
    for side in sides:
        for row in side["rows"]:
            row["cells"] = [row["cells"][i] for i in kept]
    return {
        "title": TITLE,
        "lead": LEAD if sides else "",
        "head": [HEAD[i] for i in kept],
        "text_columns": TEXT_COLUMNS,
        "sides": sides,
        "uncounted": [
            {
                "text": f"{u.label}: {u.why}. To have them: {u.fix}",
                "refused": u.refused,
            }
            for u in counters.uncounted
        ],
    }


def _side(side: CountedSide) -> dict[str, Any]:
    modules = [r for r in side.rows if r.kind == "module"]
    costliest = sorted(modules, key=lambda r: -(r.share or 0))[:ROWS_SHOWN]
    kept = {r.id for r in costliest}
    return {
        "key": side.key,
        "label": side.label,
        "facts": facts(side),
        "rows": [
            {"cells": cells(r), "text": r.text, "depth": r.depth, "path": r.name}
            for r in modules
            if r.id in kept
        ],
        "left": len(modules) - len(costliest),
        "sentences": sentences(side),
    }


def sentences(side: CountedSide, most: int = 5) -> list[tuple[str, str, str]]:
    """(modules, share of time, text) of the modules with most time that have no module inside,
    those of one kind (``transformer.h.*.mlp.act``) together: what their costliest one says."""
    inner = {r.parent for r in side.rows if r.kind == "module"}
    kinds: dict[str, list[CountedRow]] = {}
    for r in side.rows:
        if r.kind == "module" and r.id not in inner and r.share is not None:
            kinds.setdefault(kind_of(r.name), []).append(r)
    totals = {kind: sum(r.share or 0 for r in rows) for kind, rows in kinds.items()}
    lines = []
    for kind in sorted(kinds, key=lambda k: -totals[k])[:most]:
        rows = kinds[kind]
        top = max(rows, key=lambda r: r.share or 0)
        name, share, text = top.name or "(model)", formatting.percent(totals[kind]), top.text
        if len(rows) > 1:
            name, share = kind, f"{share}, {len(rows)} of them"
            text = f"{_bounds(rows, top)}{top.name}: {text}"
        lines.append((name, share, text))
    return lines


def _bounds(rows: Sequence[CountedRow], top: CountedRow) -> str:
    """How many are bound otherwise than the costliest, which stands for them."""
    others = Counter(r.bound for r in rows if r.bound != top.bound)
    bounds = ", ".join(
        f"{n} {f'{bound}-bound' if bound else 'unknown'}" for bound, n in others.most_common()
    )
    return f"of {len(rows)}, {bounds}; " if bounds else ""


def peak(row: CountedRow) -> list[Any] | None:
    """[resource, share of its peak] of what bounds a row, else of what is nearest to its peak."""
    known = {k: v for k, v in row.shares.items() if v is not None}
    if row.bound in PEAKS:
        return [row.bound, known[row.bound]]
    top = max(known, key=known.__getitem__, default=None)
    return None if top is None else [top, known[top]]


def details(row: CountedRow) -> list[str]:
    """What else is known of a row, in short."""
    metrics, given = row.metrics, row.launches - row.measured
    parts = [f"{row.measured:,} of {row.launches:,} launches measured"]
    if given:
        parts[0] += f", {given:,} by a representative"
    if row.spread is not None:
        parts.append(f"twins differ by {formatting.percent(row.spread.relative)} of it")
    if row.intensity is not None:
        parts.append(f"{amount(row.intensity)} FLOP/byte")
    if metrics["ipc"] is not None:
        parts.append(f"executed IPC {metrics['ipc']:.2f}")
    names = {"issue_busy": "issue slots busy", "sm_busy": "SM busy", "occupancy": "occupancy",
             "dram": "DRAM busy"}  # fmt: skip
    busy = {text: metrics[k] for k, text in names.items() if metrics[k] is not None}
    busy |= {f"pipe {name}": value for name, value in row.pipes.items()}
    return [*parts, *(f"{name} {_of_hundred(value)}" for name, value in busy.items())]


def cells(row: CountedRow) -> list[str]:
    """A row of the table, in the order of `HEAD`; the name is shortened by who shows it."""
    top = peak(row)
    return [
        row.name or "(model)",
        formatting.percent(row.share),
        row.bound or "unknown",
        f"{formatting.percent(top[1])} {top[0]}" if top else formatting.UNKNOWN,
        amount(row.intensity),
        amount(row.flop),
        formatting.ratio(row.times_flop),
        amount(row.bytes),
        formatting.ratio(row.times_bytes),
        formatting.number(row.launches),
        formatting.number(row.measured),
        formatting.percent(row.spread.relative if row.spread else None),
        formatting.UNKNOWN if row.metrics["ipc"] is None else f"{row.metrics['ipc']:.2f}",
        _of_hundred(row.metrics["occupancy"]),
    ]


def _uncounted_launches(side: CountedSide) -> str:
    names = list(side.uncounted_kernels.items())
    which = ", ".join(f"{n:,} of {name}" for name, n in names[:NAMED])
    if len(names) > NAMED:
        which += f", {sum(n for _, n in names[NAMED:]):,} of {len(names) - NAMED} more kernels"
    return (
        f"{side.uncounted:,} launches have no counters, and none of the same work has "
        f"({which}); what holds them is unknown. layerline ncu --every counts every launch."
    )


def facts(side: CountedSide) -> list[str]:
    """What the capture is, as sentences."""
    given = side.launches - side.measured
    text = f"{side.measured:,} of {side.launches:,} launches have counters of their own"
    if side.iterations > 1:
        text += f", of {side.iterations:,} iterations; amounts are per iteration"
    if given:
        text += f"; {given:,} were given those of a launch that is the same work (a representative)"
    if side.spread is not None and side.spread.relative is not None:
        spread = side.spread
        differ = formatting.percent(spread.relative)
        text += f". Measured launches of the same work differ by {differ} of all work"
        text += f" ({spread.metric})"
        widest = side.widest
        if widest is not None and widest.relative is not None:
            text += (
                f", of a single kind by at most {formatting.percent(widest.relative)} "
                f"({widest.metric})"
            )
    lines = [f"{text}."]
    if side.uncounted:
        lines.append(_uncounted_launches(side))
    elif side.absent:
        lines.append(
            f"{side.absent:,} more kernels of an iteration were not captured (a filter by "
            "name?): what holds them is unknown."
        )
    clock = {"base": "locked to their base", "none": "not locked"}
    on = side.device or "an unnamed device"
    lines.append(
        f"{on}, clocks {clock.get(side.clock_control or '', 'as ncu chose')}; "
        f"from {', '.join(side.sources)}."
    )
    if side.peaks:
        rates = ", ".join(f"{k} {_rate(k, v)}" for k, v in side.peaks.items())
        lines.append(f"Peaks: {rates} ({side.peaks_source}).")
    else:
        lines.append("The device's peaks are not known: no share of them, no bound.")
    if side.missing:
        lines.append(
            f"Not in this capture: {', '.join(side.missing)}. "
            "`layerline ncu --roofline` measures them."
        )
    return lines


def _rate(name: str, value: float) -> str:
    return f"{amount(value)}{'byte' if name == 'memory' else 'FLOP'}/s"


def amount(value: float | None) -> str:
    """``1234567.0`` → ``1.23 M``; three digits."""
    if value is None or not formatting.known(value):
        return formatting.UNKNOWN
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * 0.9995:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _of_hundred(value: float | None) -> str:
    return formatting.percent(None if value is None else value / 100)
