"""Grid, block, registers and shared memory of kernels, from the raw capture.

The table of operations has none of them: kernels are found in the capture again, by start and
correlation id. nsys: gridX … of CUPTI_ACTIVITY_KIND_KERNEL; torch.profiler: ``grid``, ``block``,
``registers per thread``, ``shared memory`` of a kernel's ``args`` (libkineto, output_json.cpp).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError
from ..readers.nsys import schema, sqlite
from ..readers.nsys.source import NULL as NO_VALUE
from ..readers.nsys.source import Query
from ..readers.torch.events import UNKNOWN, Events, Geometry
from .operations import Extra, combined, equal_rows
from .tracks import About, Ints

_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_MORE = {
    "registersPerThread": "registers_per_thread",
    "staticSharedMemory": "static_shared_bytes",
    "dynamicSharedMemory": "dynamic_shared_bytes",
}


def read(path: Path, start: Ints, correlation: Ints, events: Events | None = None) -> Extra | None:
    """The geometry of the operations with these starts (ns) and correlation ids; None where the
    capture tells none. Of a profiler trace it is in its `events`."""
    if path.suffix == ".sqlite":
        launches = _nsys(path, start)
    elif events is not None:
        launches = _torch(events)
    else:
        return None
    if launches is None:
        return None
    at, ids, code, values = launches
    return Extra(np.append(code, -1)[equal_rows((at, ids), (start, correlation))], values)


def _nsys(path: Path, start: Ints) -> tuple[Ints, Ints, Ints, list[About]] | None:
    try:
        with sqlite.source(path) as source:
            table = source.find(schema.KERNELS, (*_SIZES, "start", "correlationId"))
            if table is None:
                return None
            sizes = [*_SIZES, *source.present(table, tuple(_MORE))]
            raw = source.read(Query(table, ("start", "correlationId"), sizes))
    except InputError:
        return None
    # Only what can be asked for: a capture has many iterations.
    rows = np.flatnonzero(np.isin(raw["start"], start))
    code, first = combined([raw[c][rows].astype(np.int64) for c in sizes])
    values = [_about_nsys({c: raw.values[c][int(raw[c][rows[r]])] for c in sizes}) for r in first]
    return raw["start"][rows], raw["correlationId"][rows], code, values


def _about_nsys(of: dict[str, Any]) -> About:
    about: dict[str, Any] = {}
    for name in ("grid", "block"):
        sizes = [of[f"{name}{axis}"] for axis in "XYZ"]
        if NO_VALUE not in sizes:
            about[name] = "x".join(map(str, sizes))
    about |= {_MORE[c]: int(v) for c, v in of.items() if c in _MORE and v != NO_VALUE}
    return about


def _torch(events: Events) -> tuple[Ints, Ints, Ints, list[About]] | None:
    rows = np.flatnonzero((events.geometry != UNKNOWN) & (events.correlation != UNKNOWN))
    values = [_about_torch(g) for g in events.geometries]
    at, ids = events.start[rows], events.correlation[rows]
    return at, ids, events.geometry[rows].astype(np.int64), values


def _about_torch(of: Geometry) -> About:
    about = {
        "grid": "x".join(map(str, of.grid)),
        "block": "x".join(map(str, of.block)),
        "registers_per_thread": of.registers,
        "shared_bytes": of.shared,
    }
    return {k: v for k, v in about.items() if v is not None}
