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

import numpy as np

_DEVICE = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_NSYS = {
    "kernel": "CUPTI_ACTIVITY_KIND_KERNEL",
    "memcpy": "CUPTI_ACTIVITY_KIND_MEMCPY",
    "memset": "CUPTI_ACTIVITY_KIND_MEMSET",
}


def _json(path: Path) -> Any:
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    return json.loads(data)


def onnxruntime(path: Path, warmup: int = 0) -> dict[str, int]:
    """{"node": ns}: node executions of an ONNX Runtime profile (``dur`` is in microseconds).

    Only those that start in a ``model_run``, the first `warmup` runs left out. Nodes of subgraphs
    lie inside the node that runs them: the length of the union per thread counts them once.
    """
    events = _json(path)
    runs = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e.get("name") == "model_run")
    nodes: dict[Any, list[tuple[int, int]]] = {}
    for event in events:
        if event.get("cat") == "Node" and event.get("name", "").endswith("_kernel_time"):
            interval = (event["ts"], event["ts"] + event["dur"])
            nodes.setdefault((event.get("pid"), event.get("tid")), []).append(interval)
    if runs:
        nodes = {k: _starting_in(v, runs[warmup:]) for k, v in nodes.items()}
    return {"node": 1000 * sum(_union(intervals) for intervals in nodes.values())}


@dataclass(frozen=True)
class TorchSums:
    """`sums`: {"kernel", "memcpy", "memset"} or, without a device, {"op"}, in ns. `steps`: wall
    ns of each iteration's range by its number."""

    sums: dict[str, int]
    steps: dict[int, int]


def torch_trace(path: Path, window: str = "layerline/iteration/") -> TorchSums:
    """Sums of a torch.profiler trace and the length of its iterations.

    Operators of one thread nest, so the sum of their self times is the length of the union of
    their intervals. Where the trace has ranges whose name begins with `window`, only operators
    that start in one count.
    """
    device: dict[str, int] = {}
    steps: dict[int, int] = {}
    windows: list[tuple[int, int]] = []
    threads: dict[Any, list[tuple[float, float]]] = {}
    for event in _json(path)["traceEvents"]:
        if event.get("ph") != "X":
            continue
        category = event.get("cat")
        if category == "cpu_op":
            place = (event.get("pid"), event.get("tid"))
            threads.setdefault(place, []).append((event["ts"], event["dur"]))
        elif category in _DEVICE:
            kind = _DEVICE[category]
            device[kind] = device.get(kind, 0) + _ns(event["dur"])
        elif category == "user_annotation" and str(event.get("name")).startswith(window):
            start, length = _ns(event["ts"]), _ns(event["dur"])
            windows.append((start, start + length))
            number = event["name"].removeprefix(window)
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
    """Nanoseconds of kernels, copies and sets in an nsys sqlite export; absent tables left out."""
    found = {}
    uri = f"{path.resolve().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as database:
        names = {n for (n,) in database.execute("SELECT name FROM sqlite_master")}
        for kind, table in _NSYS.items():
            if table in names:
                query = f'SELECT TOTAL("end" - start) FROM {table}'
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
