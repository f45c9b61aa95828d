"""PyTorch's CUDA allocator snapshots: what memory is held, and by whom.

Made by ``torch.cuda.memory._dump_snapshot`` (a pickle) or ``_snapshot()`` saved as JSON. The
pickle is loaded without importing or calling anything (`pickle`). The quirks:

- before 2.1 the snapshot was the list of segments itself, blocks had no address (they follow one
  another from the segment's) and kept their frames and real size in `history`;
- frames are of Python, C++ or both, innermost first, and missing unless recording was on;
- `device_traces` (alloc, free, segment_alloc, ...) is a ring buffer that forgets the oldest;
- `time_us` is microseconds since the epoch; here nanoseconds.

Tables: `blocks` (one row per block of every segment), `segments`, and `events` (the traces).
Sizes are bytes. Facts: bytes reserved, allocated (blocks in use), and requested by the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....core.errors import InputError
from ..base import Artefact, Head, int64, schema
from ..bounded import MIB, parse_json, read_bytes, valid_text
from . import pickle

KIND = "memory-snapshot"
DESCRIPTION = "PyTorch CUDA allocator snapshot (pickle or JSON)"

LIMIT = 512 * MIB
_IN_USE = ("active_allocated", "active_awaiting_free", "active_pending_free")

BLOCKS = schema(
    "source text, device int, segment int, segment_type text, stream int, address int, size int, "
    "requested_size int, state text, frames coded"
)
SEGMENTS = schema(
    "source text, device int, address int, size int, allocated_size int, active_size int, "
    "requested_size int, stream int, segment_type text, expandable bool, blocks int, frames coded"
)
EVENTS = schema(
    "source text, device int, event int, action text, address int, size int, stream int, "
    "time_ns int, frames coded"
)
MAX_ROWS = 2_000_000  # of blocks, segments and events in all


def sniff(head: Head) -> bool:
    """Any pickle of protocol 2 to 5 (others are refused by name), or a snapshot as JSON."""
    if head.data[:1] == b"\x80":
        return head.data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    text = head.stripped
    if text.startswith("{"):
        return '"segments"' in text[:4096] and (
            '"segment_type"' in text or '"device_traces"' in text
        )
    return text.startswith("[") and '"segment_type"' in text[:4096] and '"blocks"' in text


def read(path: Path) -> Artefact:
    """The blocks, segments and events; InputError for any other pickle or JSON."""
    data = read_bytes(path, LIMIT)
    is_pickle = data[:1] == b"\x80"
    snapshot = pickle.load(data, path) if is_pickle else parse_json(data, path)
    if isinstance(snapshot, list):  # before 2.1
        snapshot = {"segments": snapshot}
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise InputError(
            f"holds {type(snapshot).__name__}, not an allocator snapshot (no `segments`)",
            file=path,
        )
    _check_size(snapshot, path)
    return _artefact(path, snapshot)


def _check_size(snapshot: dict[str, Any], path: Path) -> None:
    """Counts rows before any is made: a list may also be in there many times by reference."""
    lists = [s.get("blocks") for s in snapshot["segments"] if isinstance(s, dict)]
    traces = snapshot.get("device_traces")
    lists += [snapshot["segments"], *(traces if isinstance(traces, list) else ())]
    rows = sum(len(entries) for entries in lists if isinstance(entries, list))
    if rows > MAX_ROWS:
        raise InputError(
            f"holds {rows:,} blocks and events, {MAX_ROWS:,} are read",
            file=path,
            fix="record fewer: _record_memory_history(max_entries=...)",
        )


def _artefact(path: Path, snapshot: dict[str, Any]) -> Artefact:
    source = path.name
    segments = _dicts(snapshot["segments"], "segments", path)
    blocks = [block for segment in segments for block in _blocks(segment, path)]
    traces = snapshot.get("device_traces") or []
    if not isinstance(traces, list):
        raise InputError("has device_traces that are no list", file=path)
    events = [
        {"device": device, "event": number, **_event(event)}
        for device, trace in enumerate(traces)
        for number, event in enumerate(_dicts(trace, "device_traces", path))
    ]
    tables = {
        "blocks": _table(source, blocks, BLOCKS),
        "segments": _table(source, [_segment(s, path) for s in segments], SEGMENTS),
    }
    if events:
        tables["events"] = _table(source, events, EVENTS)
    notes = []
    mismatch = sum(1 for s in segments if not _adds_up(s, path))
    if mismatch:
        notes.append(f"In {mismatch} segments the blocks do not add up to the segment's size.")
    if not any(b["frames"] for b in blocks):
        notes.append("No frames of blocks: torch.cuda.memory._record_memory_history was not on.")
    used = [b for b in blocks if b["state"] in _IN_USE]
    facts = {
        "devices": sorted({d for s in segments if (d := int64(s.get("device"))) is not None}),
        "segments": len(segments),
        "blocks": len(blocks),
        "events": len(events),
        "reserved_bytes": _sum(int64(s.get("total_size")) for s in segments),
        "in_use_bytes": _sum(b["size"] for b in used),
        "requested_bytes": _sum(b["requested_size"] for b in used),
        "settings": _scalars(snapshot.get("allocator_settings")),
    }
    return Artefact(KIND, tables, facts, notes)


def _dicts(items: Any, what: str, path: Path) -> list[dict[str, Any]]:
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise InputError(f"has {what} that are no list of objects", file=path)
    return items


def _sum(values: Iterable[int | None]) -> int | None:
    """The sum; None where one of them is not known."""
    every = list(values)
    known = [value for value in every if value is not None]
    return sum(known) if len(known) == len(every) else None


def _text(value: Any) -> str | None:
    return valid_text(value) if isinstance(value, str) else None


def _blocks(segment: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    start = int64(segment.get("address"))
    at = start
    rows = []
    for block in _dicts(segment.get("blocks", []), "blocks", path):
        size = int64(block.get("size"))
        history = block.get("history")
        old = history[-1] if isinstance(history, list) and history else None
        old = old if isinstance(old, dict) else {}
        address = int64(block.get("address"))
        requested = int64(block.get("requested_size"))
        rows.append(
            {
                "device": int64(segment.get("device")),
                "segment": start,
                "segment_type": _text(segment.get("segment_type")),
                "stream": int64(segment.get("stream")),
                "address": at if address is None else address,
                "size": size,
                "requested_size": int64(old.get("real_size")) if requested is None else requested,
                "state": _text(block.get("state")),
                "frames": _frame_text(block.get("frames") or old.get("frames")),
            }
        )
        at = None if at is None or size is None else int64(at + size)
    return rows


def _segment(segment: dict[str, Any], path: Path) -> dict[str, Any]:
    expandable = segment.get("is_expandable")
    same = ("device", "address", "allocated_size", "active_size", "requested_size", "stream")
    return {
        **{name: int64(segment.get(name)) for name in same},
        "size": int64(segment.get("total_size")),
        "segment_type": _text(segment.get("segment_type")),
        "expandable": expandable if isinstance(expandable, bool) else None,
        "blocks": len(_dicts(segment.get("blocks", []), "blocks", path)),
        "frames": _frame_text(segment.get("frames")),
    }


def _adds_up(segment: dict[str, Any], path: Path) -> bool:
    sizes = [int64(b.get("size")) for b in _dicts(segment.get("blocks", []), "blocks", path)]
    total = int64(segment.get("total_size"))
    return total is None or None in sizes or _sum(sizes) == total


def _event(event: dict[str, Any]) -> dict[str, Any]:
    microseconds = int64(event.get("time_us"))
    address = event.get("addr", event.get("device_free"))
    return {
        "action": _text(event.get("action")),
        "address": int64(address),
        "size": int64(event.get("size")),
        "stream": int64(event.get("stream")),
        "time_ns": None if microseconds is None else int64(microseconds * 1000),
        "frames": _frame_text(event.get("frames")),
    }


def _frame_text(frames: Any) -> str | None:
    """One line per frame, innermost first: ``name (file:line)``."""
    if not isinstance(frames, list):
        return None
    lines = []
    for frame in frames:
        if isinstance(frame, dict):
            name, file = _text(frame.get("name")) or "?", _text(frame.get("filename"))
            line = int64(frame.get("line"))
            where = f" ({file}:{line})" if file and file != "??" and line else ""
            lines.append(f"{name}{where}")
    return "\n".join(lines) or None


def _table(source: str, rows: list[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    values = {name: [row[name] for row in rows] for name in columns.names[1:]}
    return pa.table({"source": [source] * len(rows), **values}, schema=columns)


def _scalars(settings: Any) -> dict[str, Any]:
    if not isinstance(settings, dict):
        return {}
    return {
        str(_text(key)): _text(value) if isinstance(value, str) else value
        for key, value in settings.items()
        if isinstance(key, str) and isinstance(value, str | bool | int | float | None)
    }
