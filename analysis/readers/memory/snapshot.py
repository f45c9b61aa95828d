"""PyTorch's CUDA allocator snapshots: what memory is held, and by whom.

Made by ``torch.cuda.memory._dump_snapshot`` (a pickle) or ``_snapshot()`` saved as JSON. The
pickle is read without importing or calling anything, its events as columns (`stream`). The quirks:

- before 2.1 the snapshot was the list of segments itself, blocks had no address (they follow one
  another from the segment's) and kept their frames and real size in `history`;
- frames are of Python, C++ or both, innermost first, and missing unless recording was on;
- `device_traces` (alloc, free, segment_alloc, ...) is a ring buffer that forgets the oldest;
- `time_us` is microseconds since the epoch; here nanoseconds;
- `user_metadata` (torch 2.10) is a text that the program gave the allocator, the same for all
  events until it gives another; `metadata` here.

Tables: `blocks` (one row per block of every segment), `segments`, and `events` (the traces).
Sizes are bytes. Facts: bytes reserved, allocated (blocks in use), and requested by the program.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ....core.errors import InputError
from ....core.files import open_regular
from ....core.stats import sum_all
from ....core.tables import schema
from ..base import Artefact, Head, int64
from ..bounded import MAX_JSON_BYTES, MIB, compression_of, open_bytes, parse_json, read_bytes, shown
from .stream import Reader
from .trace import MAX_EVENTS, UNKNOWN, Shared, Texts, Trace, frame_text, text, too_many

KIND = "memory-snapshot"
DESCRIPTION = "PyTorch CUDA allocator snapshot (pickle or JSON)"

LIMIT = 512 * MIB  # of what is scrubbed
PICKLE_LIMIT = 3072 * MIB
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
    "source text, device int, event int, action coded, address int, size int, stream int, "
    "time_ns int, frames coded, metadata coded"
)
MAX_ROWS = 2_000_000  # of blocks and segments, and of a JSON file's events


def sniff(head: Head) -> bool:
    """Any pickle of protocol 2 to 5 (others are refused by name), or a snapshot as JSON."""
    if head.data[:1] == b"\x80":
        return head.data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    text = head.json
    if text.startswith("{"):
        return '"segments"' in text[:4096] and (
            '"segment_type"' in text or '"device_traces"' in text
        )
    return text.startswith("[") and '"segment_type"' in text[:4096] and '"blocks"' in text


def read(path: Path) -> Artefact:
    """The blocks, segments and events; InputError for any other pickle or JSON."""
    with open_regular(path) as raw:
        first = raw.read(8)
    if compression_of(first):
        with open_bytes(path) as stream:
            first = stream.read(1)
    is_pickle = first[:1] == b"\x80"
    data = read_bytes(path, PICKLE_LIMIT if is_pickle else MAX_JSON_BYTES)
    snapshot = Reader(data, path).read() if is_pickle else parse_json(data, path)
    del data
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
    for kind, most in ((list, MAX_ROWS), (Trace, MAX_EVENTS)):
        rows = sum(len(entries) for entries in lists if isinstance(entries, kind))
        if rows > most:
            raise too_many(path, rows, most)


def _artefact(path: Path, snapshot: dict[str, Any]) -> Artefact:
    source = path.name
    segments = _dicts(snapshot["segments"], "segments", path)
    blocks = [block for segment in segments for block in _blocks(segment, path)]
    tables = {
        "blocks": _table(source, blocks, BLOCKS),
        "segments": _table(source, [_segment(s, path) for s in segments], SEGMENTS),
    }
    events = _events(source, snapshot.get("device_traces") or [], path)
    if len(events):
        tables["events"] = events
    notes = []
    mismatch = sum(1 for s in segments if not _adds_up(s, path))
    if mismatch:
        notes.append(f"In {mismatch} segments the blocks do not add up to the segment's size.")
    if not any(b["frames"] for b in blocks) and events["frames"].null_count == len(events):
        notes.append("No frames of blocks: torch.cuda.memory._record_memory_history was not on.")
    used = [b for b in blocks if b["state"] in _IN_USE]
    facts = {
        "devices": sorted({d for s in segments if (d := int64(s.get("device"))) is not None}),
        "segments": len(segments),
        "blocks": len(blocks),
        "events": len(events),
        "reserved_bytes": sum_all(int64(s.get("total_size")) for s in segments),
        "in_use_bytes": sum_all(b["size"] for b in used),
        "requested_bytes": sum_all(b["requested_size"] for b in used),
        "settings": _scalars(snapshot.get("allocator_settings")),
    }
    return Artefact(KIND, tables, facts, notes)


def _events(source: str, traces: Any, path: Path) -> pa.Table:
    """The events of all devices; of JSON they are made into columns first."""
    if not isinstance(traces, list):
        raise InputError("has device_traces that are no list", file=path)
    parts = []
    shared = Shared()
    for device, listed in enumerate(traces):
        trace = listed
        if not isinstance(listed, Trace):
            trace = Trace(shared)
            for event in _dicts(listed, "device_traces", path):
                trace.add(event)
        if len(trace):
            parts.append(_columns(source, device, trace))
    if not parts:
        return EVENTS.empty_table()
    return pa.concat_tables(parts).unify_dictionaries()


def _columns(source: str, device: int, trace: Trace) -> pa.Table:
    n, shared = len(trace), trace.shared
    micros = np.frombuffer(trace.time_us, np.int64)
    unknown = (micros == UNKNOWN) | (np.abs(micros) > 2**63 // 1000)
    arrays = {
        "source": pa.repeat(pa.scalar(source), n),
        "device": pa.repeat(pa.scalar(device, pa.int64()), n),
        "event": pa.array(np.arange(n, dtype=np.int64)),
        "action": _coded(trace.action, shared.actions),
        **{k: _integers(np.frombuffer(getattr(trace, k), np.int64))
           for k in ("address", "size", "stream")},
        "time_ns": pa.array(np.where(unknown, 0, micros) * 1000, mask=unknown),
        "frames": _coded(trace.stack, shared.stacks),
        "metadata": _coded(trace.metadata, shared.metadata),
    }  # fmt: skip
    return pa.table(arrays, schema=EVENTS)


def _integers(values: Any) -> pa.Array:
    return pa.array(values, mask=values == UNKNOWN)


def _coded(codes: Any, texts: Texts) -> pa.Array:
    numbers = np.frombuffer(codes, np.int32)
    indices = pa.array(numbers, mask=numbers < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts.values, pa.string()))


_AGAIN = "record the snapshot again"


def _dicts(items: Any, what: str, path: Path) -> list[dict[str, Any]]:
    if not isinstance(items, list):
        raise InputError(f"{what} is {shown(items)}, no list", file=path, fix=_AGAIN)
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            what = f"{what}[{at}] is {shown(item)}, no object"
            raise InputError(what, file=path, fix=_AGAIN)
    return items


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
                "segment_type": text(segment.get("segment_type")),
                "stream": int64(segment.get("stream")),
                "address": at if address is None else address,
                "size": size,
                "requested_size": int64(old.get("real_size")) if requested is None else requested,
                "state": text(block.get("state")),
                "frames": frame_text(block.get("frames") or old.get("frames")),
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
        "segment_type": text(segment.get("segment_type")),
        "expandable": expandable if isinstance(expandable, bool) else None,
        "blocks": len(_dicts(segment.get("blocks", []), "blocks", path)),
        "frames": frame_text(segment.get("frames")),
    }


def _adds_up(segment: dict[str, Any], path: Path) -> bool:
    sizes = [int64(b.get("size")) for b in _dicts(segment.get("blocks", []), "blocks", path)]
    whole = int64(segment.get("total_size"))
    return whole is None or None in sizes or sum_all(sizes) == whole


def _table(source: str, rows: list[dict[str, Any]], columns: pa.Schema) -> pa.Table:
    values = {name: [row[name] for row in rows] for name in columns.names[1:]}
    return pa.table({"source": [source] * len(rows), **values}, schema=columns)


def _scalars(settings: Any) -> dict[str, Any]:
    if not isinstance(settings, dict):
        return {}
    return {
        str(text(key)): text(value) if isinstance(value, str) else value
        for key, value in settings.items()
        if isinstance(key, str) and isinstance(value, str | bool | int | float | None)
    }
