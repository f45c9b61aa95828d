"""Sums over raw captures, for closure check (i): plain readers that share no code with the others.

They know as little as they can: no names, no modules, no iterations, only which entries are
operations and how long they took. So a reader that drops or doubles an entry is caught.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from ...core.errors import InputError
from ...core.own_ranges import ITERATION

# A raw JSON capture above it is not read a second time for check (i).
RAW_LIMIT_BYTES = 300_000_000
# Traces compress to about a twentieth.
COMPRESSION = 20
_DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_NSYS = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memset": "CUPTI_ACTIVITY_KIND_MEMSET",
}


class _Event(msgspec.Struct, gc=False):
    """What is looked at of an event; its other members are skipped by the parser."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None


class _Trace(msgspec.Struct):
    traceEvents: list[_Event]  # noqa: N815 (the format's name)


def small(path: Path) -> bool:
    """Whether a raw JSON file is worth being read whole once more."""
    size = path.stat().st_size * (COMPRESSION if path.suffix == ".gz" else 1)
    return size <= RAW_LIMIT_BYTES


def _events(path: Path) -> list[_Event]:
    """The events of a trace, a list or an object with a list.

    The file is parsed whole, in one call: the readers cut theirs into chunks, repair them and take
    other members, so what they lose or double there is not lost or doubled here. Of the parser
    they share it is only that numbers and texts are what they are; another one (json) takes nine
    times as long, and is used for what is not strict JSON (bare NaN).
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    try:
        found = msgspec.json.decode(data, type=_Trace | list[_Event])
    except msgspec.DecodeError:
        try:
            found = msgspec.convert(json.loads(data), type=_Trace | list[_Event])
        except (ValueError, RecursionError) as e:
            raise InputError(
                f"has events of another form ({e})", file=path, fix="measure it again"
            ) from None
    return found.traceEvents if isinstance(found, _Trace) else found


def onnxruntime(path: Path, warmup: int = 0) -> dict[str, int]:
    """{"node": ns}: node executions of an ONNX Runtime profile (``dur`` is in microseconds).

    Only those that start in a ``model_run``, the first `warmup` runs left out. Nodes of subgraphs
    lie inside the node that runs them: the length of the union per thread counts them once.
    """
    events = _events(path)
    runs = sorted((e.ts, e.ts + e.dur) for e in events if e.name == "model_run")
    nodes: dict[Any, list[tuple[int, int]]] = {}
    for event in events:
        if event.cat == "Node" and str(event.name).endswith("_kernel_time"):
            nodes.setdefault((event.pid, event.tid), []).append((event.ts, event.ts + event.dur))
    if runs:
        nodes = {k: _starting_in(v, runs[warmup:]) for k, v in nodes.items()}
    return {"node": 1000 * sum(_union(intervals) for intervals in nodes.values())}


@dataclass(frozen=True)
class TorchSums:
    """`sums`: {"kernel", "memcpy", "memset"} or, without a device, {"op"}, in ns. `steps`: wall
    ns of each iteration's range by its number."""

    sums: dict[str, int]
    steps: dict[int, int]


def torch_trace(path: Path) -> TorchSums:
    """Sums of a torch.profiler trace and the length of its iterations.

    Operators of one thread nest, so the sum of their self times is the length of the union of
    their intervals. Where the trace has iterations, only operators that start in one count.
    """
    device: dict[str, int] = {}
    steps: dict[int, int] = {}
    windows: list[tuple[int, int]] = []
    threads: dict[Any, list[tuple[float, float]]] = {}
    for event in _events(path):
        if event.ph != "X":
            continue
        category = event.cat
        if category == "cpu_op":
            threads.setdefault((event.pid, event.tid), []).append((event.ts, event.dur))
        elif category in _DEVICE:
            kind = _DEVICE[category]
            device[kind] = device.get(kind, 0) + _ns(event.dur)
        elif category == "user_annotation" and str(event.name).startswith(ITERATION):
            start, length = _ns(event.ts), _ns(event.dur)
            windows.append((start, start + length))
            number = event.name.removeprefix(ITERATION)
            if number.isdecimal():
                steps[int(number)] = length
    if device:
        return TorchSums(device, steps)
    return TorchSums({"op": sum(_host_ns(v, sorted(windows)) for v in threads.values())}, steps)


def _host_ns(times: list[tuple[float, float]], windows: list[tuple[int, int]]) -> int:
    """Length of the union of one thread's operators, (start, duration) in microseconds; of those
    that start in a window, where there are windows."""
    spans = np.rint(np.array(times, dtype=np.float64) * 1000).astype(np.int64)
    starts, ends = spans[:, 0], spans[:, 0] + spans[:, 1]
    if windows:
        borders = np.array(windows, dtype=np.int64)
        k = np.searchsorted(borders[:, 0], starts, side="right") - 1
        inside = (k >= 0) & (starts <= borders[k, 1])
        starts, ends = starts[inside], ends[inside]
    if not len(starts):
        return 0
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], ends[order]
    reached = np.concatenate((starts[:1], np.maximum.accumulate(ends)[:-1]))
    return int(np.maximum(ends - np.maximum(starts, reached), 0).sum())


def _starting_in(
    intervals: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The intervals that start in one of the windows (sorted, disjoint)."""
    starts = [w[0] for w in windows]
    found = []
    for interval in intervals:
        k = bisect_right(starts, interval[0]) - 1
        if k >= 0 and interval[0] <= windows[k][1]:
            found.append(interval)
    return found


def nsys(path: Path) -> dict[str, int]:
    """Nanoseconds of kernels, copies and sets in an nsys sqlite export; absent tables left out.

    Rows that are equal in every column count once. That they may be is looked at first: to compare
    all columns takes six times as long.
    """
    found = {}
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        names = {n for (n,) in database.execute("SELECT name FROM sqlite_master")}
        for kind, table in _NSYS.items():
            if table in names:
                alike = f'SELECT 1 FROM {table} GROUP BY start, "end" HAVING COUNT(*) > 1'
                (some,) = database.execute(f"SELECT EXISTS ({alike})").fetchone()
                rows = f"(SELECT DISTINCT * FROM {table})" if some else table
                query = f'SELECT TOTAL("end" - start) FROM {rows}'
                found[kind] = int(database.execute(query).fetchone()[0])
    return {k: v for k, v in found.items() if v}


def _union(intervals: list[tuple[int, int]]) -> int:
    length, reached = 0, None
    for start, end in sorted(intervals):
        if reached is None or start > reached:
            length += end - start
            reached = end
        elif end > reached:
            length += end - reached
            reached = end
    return length


def _ns(microseconds: float | str) -> int:
    """Exact enough: traces give microseconds with three decimals."""
    return round(float(microseconds) * 1000)
