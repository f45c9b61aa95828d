"""The batch sweep as rows of text, for the renderers."""

from __future__ import annotations

from typing import Any, TypedDict

from .. import formatting
from ..model.comparison import Comparison, Sweep, SweepBest, SweepPoint
from . import cells

TITLE = "Batch sweep"
LEAD = (
    "Each batch is an engine of its own, measured without a profiler. Throughput is the batch "
    "over the median latency, one inference at a time; with a full queue: as many inferences as "
    "the device takes without waiting for each. The interval is that of the median, at 95 %."
)
HEAD = ("engine", "batch", "latency", "95 %", "p90", "p99", "sequences/s", "tokens/s",
        "tokens/s, 95 %", "tokens/s, full queue", "memory", "clock")  # fmt: skip
TEXT_COLUMNS = (0, 11)
_MEMORY = {
    "device_bytes": "on the device, all",
    "context_bytes": "on the device, beside the weights",
    "peak_host_bytes": "of the process, at most",
}


class Row(TypedDict):
    """A line of the table: a cell per heading, in the order of `HEAD`; `best` marks the most."""

    cells: list[str]
    source: str
    best: bool


def section(comparison: Comparison) -> dict[str, Any] | None:
    """Head, rows, sentences and notes as text; None where the run has no sweep."""
    sweep = comparison.sweep
    if sweep is None:
        return None
    best = {(b.key, b.batch) for b in sweep.best}
    return {
        "title": TITLE,
        "lead": LEAD,
        "head": HEAD,
        "text_columns": TEXT_COLUMNS,
        "rows": [
            {
                "cells": _cells(p),
                "source": p.source,
                "best": (p.key, p.batch) in best,
            }
            for p in sweep.points
        ],
        # Without sides these are the headline.
        "sentences": sentences(sweep) if comparison.sides else [],
        "notes": _notes(sweep),
    }


def sentences(sweep: Sweep) -> list[str]:
    """The best batch of each engine, and what else is to be said."""
    return [*map(sentence, sweep.best), *sweep.remarks]


def _cells(p: SweepPoint) -> list[str]:
    latency = p.latency
    interval = cells.interval(latency)
    if p.target_met is False:
        interval += ", wider than asked"
    return [
        p.label,
        f"{p.batch:,}",
        formatting.time(latency.median),
        interval,
        formatting.time(p.p90_ns),
        formatting.time(p.p99_ns),
        rate(p.sequences_per_second),
        rate(p.tokens_per_second),
        rates(p.tokens_low, p.tokens_high),
        rate(p.queue_tokens_per_second),
        _bytes(p.memory_bytes),
        p.clock,
    ]


def _bytes(value: int | None) -> str:
    return formatting.UNKNOWN if value is None else f"{value / 2**20:,.0f} MiB"


def _notes(sweep: Sweep) -> list[str]:
    kinds = dict.fromkeys(p.memory_of for p in sweep.points if p.memory_of)
    told = []
    for kind in kinds:
        labels = dict.fromkeys(p.label for p in sweep.points if p.memory_of == kind)
        told.append(f"Memory of {', '.join(labels)}: {_MEMORY[kind]}.")
    for s in sweep.skipped:
        fix = f" To have it: {s.fix}." if s.fix else ""
        told.append(f"Not measured: {s.what}: {s.why}.{fix}")
    return told


def rate(value: float | None) -> str:
    """``1234567.8`` → ``1.23 M``."""
    if value is None or not formatting.known(value):
        return formatting.UNKNOWN
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k"), (1, "")):
        if value >= size * 0.9995:
            scaled = value / size
            decimals = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{scaled:.{decimals}f}{unit}"
    return f"{value:.3g}"


def rates(low: float | None, high: float | None) -> str:
    """An interval of rates; "–" where there is none."""
    if low is None or high is None:
        return formatting.UNKNOWN
    return f"{rate(low)} – {rate(high)}"


def sentence(best: SweepBest) -> str:
    """Which batch does the most, and how sure that is."""
    text = f"{best.label}: {rate(best.tokens_per_second)} tokens/s at batch {best.batch}"
    interval = rates(best.tokens_low, best.tokens_high)
    if interval != formatting.UNKNOWN:
        text += f" (95 % interval {interval})"
    if best.of == 1:
        return f"{text}, the only batch that was measured."
    if best.alike:
        others = ", ".join(str(b) for b in best.alike)
        return f"{text}, the most; not distinguishable from batch {others}."
    if best.last:
        return f"{text}, the most, and the largest that was measured: a larger one may do more."
    return f"{text}, the most of {best.of} batches."
