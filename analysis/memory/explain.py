"""A snapshot, and what lies beside it, explained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.documents import Memory
from ...core.errors import InputError
from ..readers.base import Artefact
from . import beside, categories, history, peak, remedies, timeline


@dataclass(frozen=True)
class OutOfMemory:
    """The last time the allocator had not enough: bytes asked for, bytes free on the device."""

    asked: int
    free: int | None


@dataclass(frozen=True)
class Explained:
    """One device of one snapshot. `with_history`: whether it has events; without, the peak is not
    known, and `peak` is what was allocated when the snapshot was made. `alone`: why nothing of what
    lies beside it is used."""

    source: str
    rank: int | None
    told: categories.Told
    peak: peak.Peak
    timeline: timeline.Timeline
    remedies: list[remedies.Remedy]
    meta: Memory | None
    settings: dict[str, Any]
    notes: list[str]
    with_history: bool
    oom: OutOfMemory | None
    alone: str | None = None

    @property
    def device_bytes(self) -> int | None:
        """The memory of the device."""
        return None if self.meta is None else self.meta.device_bytes

    def table(self) -> pa.Table:
        """Its rows of the table `memory`."""
        return timeline.table(self.told, self.source, self.rank)

    def document(self) -> dict[str, Any]:
        """As JSON: the peak, what would lower it, the live memory of its step."""
        at = self.peak
        return {
            "schema_version": 1,
            "source": self.source,
            "rank": self.rank,
            "device": None if self.told.history.device < 0 else self.told.history.device,
            "iteration": at.step.number,
            "phase": at.phase,
            "allocated_bytes": at.allocated,
            "reserved_bytes": at.reserved,
            "fragmentation_bytes": at.fragmentation,
            "rounding_bytes": at.rounding,
            "categories": at.categories,
            "modules": [{"module": m, "bytes": b} for m, b in at.modules],
            "lines": [{"line": line, "bytes": b} for line, b in at.lines],
            "checks": [{**vars(c), "ok": c.ok} for c in at.checks],
            "remedies": [remedies.document(r) for r in self.remedies],
            "timeline": self.timeline.document(),
        }


def explain(
    artefact: Artefact,
    path: Path,
    meta: Memory | None = None,
    device: int | None = None,
    rank: int | None = None,
    tried: dict[str, remedies.Tried] | None = None,
) -> Explained:
    """One device, by default the one that was recorded, else the one with most memory. What is
    beside a snapshot and of another recording is not used. InputError where there is no such
    device, or nothing in the snapshot."""
    there = history.devices(artefact)
    if not there:
        raise InputError("holds no memory at all", file=path, fix="take it while tensors live")
    if device is not None and device not in there:
        listed = ", ".join(map(str, sorted(there)))
        raise InputError(f"has no device {device}", file=path, fix=f"it has {listed}")
    chosen = _recorded(meta, there) if device is None else device
    lives, other = history.build(artefact, chosen, meta), None
    if meta is not None and (other := beside.of_another(lives, meta)):
        lives, meta = history.build(artefact, chosen), None
    told = categories.tell(lives, meta)
    highest = peak.highest(told)
    found = remedies.with_tries(remedies.remedies(told, highest, meta), tried or {})
    return Explained(
        source=path.name,
        rank=rank,
        told=told,
        peak=highest,
        timeline=timeline.of_step(told, highest),
        remedies=found,
        meta=meta,
        settings=artefact.facts.get("settings") or {},
        alone=None
        if other is None
        else f"the JSON file beside it is of another recording: {other}",
        notes=_notes(artefact, lives, meta, chosen, there),
        with_history=bool(lives.events),
        oom=_oom(lives),
    )


def _recorded(meta: Memory | None, there: list[int]) -> int:
    """The device that was recorded, else the one with most memory."""
    kind, _, number = (meta.device or "" if meta else "").partition(":")
    if kind == "cuda" and number.isdecimal() and int(number) in there:
        return int(number)
    return there[0]


def _notes(
    artefact: Artefact, lives: history.History, meta: Memory | None, chosen: int, there: list[int]
) -> list[str]:
    notes = list(artefact.notes)
    if others := [str(d) for d in sorted(there) if d != chosen]:
        notes.append(
            f"This is device {chosen}; the snapshot is also of {', '.join(others)} (--device)."
        )
    if meta is not None and meta.most_events and lives.events >= meta.most_events:
        notes.append(
            f"The history is full ({lives.events:,} events): the oldest are lost, and part of the "
            "first step with them."
        )
    if lives.estimated:
        notes.append(
            f"The blocks of {lives.estimated} allocations are of unknown size, as the snapshot "
            "does not tell how memory lay when recording began: each may take up to a MiB more."
        )
    return notes


def _oom(lives: history.History) -> OutOfMemory | None:
    events = np.flatnonzero(lives.of_action("oom"))
    if not len(events):
        return None
    last = int(events[-1])
    free = int(lives.event_address[last])
    return OutOfMemory(int(lives.event_size[last]), free if free >= 0 else None)
