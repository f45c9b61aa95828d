"""A sweep over batches: its document, and a point beside the run's own latency.

Where the batch is the run's own, one engine was measured twice. Both are of the same model, batch
and options, in processes of their own, one after the other. Where their intervals do not meet,
neither covers what another process may measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from msgspec import Struct, field

from .documents import Document
from .documents.forms import Amount, Count

NS_PER_MS = 1_000_000


def remark(
    label: str, batch: int, swept: Mapping[str, Any] | None, own: Mapping[str, Any] | None
) -> str | None:
    """A sentence where the two differ by more than their intervals; None where they do not, or one
    is not known. `swept` and `own`: median, low and high, in ns."""
    if swept is None or own is None:
        return None
    if None in [one.get(k) for one in (swept, own) for k in ("median", "low", "high")]:
        return None
    if swept["low"] <= own["high"] and own["low"] <= swept["high"]:
        return None
    return (
        f"{label} at batch {batch} took {_text(swept)} here and {_text(own)} in the run itself: "
        "they differ by more than their intervals. This machine is not steady from one process to "
        "the next; the sweep and the run compare no closer than that."
    )


def _text(one: Mapping[str, Any]) -> str:
    median, low, high = (_ms(one[k]) for k in ("median", "low", "high"))
    return f"{median} ms ({low} to {high})"


def _ms(ns: float) -> str:
    value = ns / NS_PER_MS
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


class SweepSummary(Struct, kw_only=True):
    """The latencies of one point in ns, and their number."""

    n: Count = 0
    median: Count | None = None
    low: Count | None = None
    high: Count | None = None
    p90: Count | None = None
    p99: Count | None = None


class SweepMemory(Struct, kw_only=True):
    """What one point took of memory, in bytes; what is known of the first is shown."""

    device_bytes: Amount | None = None
    context_bytes: Amount | None = None
    peak_host_bytes: Amount | None = None


class SweepPoint(Struct, kw_only=True):
    """One engine at one batch."""

    backend: str
    precision: str
    batch: Count
    sequence: Count
    source: str
    clock: str
    ended_by: str | None = None
    summary: SweepSummary = field(default_factory=SweepSummary)
    throughput_per_second: Amount | None = None
    relative_width: Amount | None = None
    target: Amount | None = None
    memory: SweepMemory = field(default_factory=SweepMemory)


class SweepSkipped(Struct, kw_only=True):
    """One engine at one batch that was not measured."""

    what: str
    why: str
    fix: str | None = None


class Sweep(Document, kw_only=True):
    """A run's engines at other batches."""

    FIX: ClassVar[str] = "sweep again"

    points: list[SweepPoint]
    skipped: list[SweepSkipped] = field(default_factory=list)
