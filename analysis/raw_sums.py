"""Sums over raw captures, for closure check (i): plain readers that share no code with the others.

They know as little as they can: no names, no modules, no iterations, only which entries are
operations and how long they took. So a reader that drops or doubles an entry is caught.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

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


def onnxruntime(path: Path) -> dict[str, int]:
    """{"node": ns}: the node executions of an ONNX Runtime profile (``dur`` is in microseconds)."""
    total = 0
    for event in _json(path):
        if event.get("cat") == "Node" and event.get("name", "").endswith("_kernel_time"):
            total += event["dur"] * 1000
    return {"node": total}


def torch_trace(path: Path, window: str | None = None) -> dict[str, int]:
    """{"kernel", "memcpy", "memset"} of a torch.profiler trace, or, without any, {"op": ns}.

    Operators of one thread nest, so the sum of their self times is the length of the union of
    their intervals. With `window`, the prefix of a range's name, only operators that start in
    such a range count (``layerline/iteration/``).
    """
    events = [e for e in _json(path)["traceEvents"] if e.get("ph") == "X"]
    device: dict[str, int] = {}
    for event in events:
        kind = _DEVICE.get(str(event.get("cat")))
        if kind:
            device[kind] = device.get(kind, 0) + _ns(event["dur"])
    if device:
        return device
    windows = None
    if window is not None:
        windows = [
            (_ns(e["ts"]), _ns(e["ts"]) + _ns(e["dur"]))
            for e in events
            if str(e.get("name", "")).startswith(window)
        ]
    threads: dict[Any, list[tuple[int, int]]] = {}
    for event in events:
        if event.get("cat") == "cpu_op":
            start = _ns(event["ts"])
            if windows is None or any(a <= start < b for a, b in windows):
                interval = (start, start + _ns(event["dur"]))
                threads.setdefault((event.get("pid"), event.get("tid")), []).append(interval)
    return {"op": sum(_union(intervals) for intervals in threads.values())}


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
