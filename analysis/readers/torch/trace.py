"""torch.profiler traces (Chrome JSON from Kineto), of every age: CPU only, CUDA, ROCm.

One row for each CPU operator and each operation of a device (table `ops`). A device operation's
`correlation` leads to the runtime or driver call that launched it, and this to the operator
(`layer`) and the ranges around it; there is one innermost range, so nothing counts twice. An
operation whose launch is not in the trace keeps its row, with unknown range and layer. Runtime
calls and Python frames are no rows: their time is part of the operator that they run in.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ....core import tables
from ..base import Artefact, Head
from .events import (
    DEVICE,
    DEVICE_KINDS,
    OP,
    PYTHON,
    RUNTIME,
    UNKNOWN,
    Events,
    Ints,
    integer,
    kind_of,
    read_events,
)
from .nesting import Nesting, nest, windows

KIND = "torch-trace"
DESCRIPTION = "torch.profiler trace (Chrome JSON): CPU operators, kernels, ranges"

# Keys of a trace that say what it is of; host name, file name and the like are left out.
_FACTS = (
    "schemaVersion",
    "distributedInfo",
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "record_shapes",
    "with_stack",
    "with_modules",
    "profile_memory",
    "displayTimeUnit",
    "baseTimeNanoseconds",
)
_LIST = re.compile(r'\[\s*\{\s*"(ph|name|cat|pid|tid|ts|dur|args)"\s*:')
_EXECUTION = re.compile(r'"schema"\s*:\s*"\d[^"]*"')


def sniff(head: Head) -> bool:
    """A JSON object with traceEvents (or what Kineto writes before them), a bare list of such
    events, or a PyTorch execution trace, which `read` refuses by name."""
    if head.is_dir:
        return False
    text = head.json
    if text.startswith("{"):
        kineto = '"schemaVersion"' in text and '"deviceProperties"' in text
        execution = '"nodes"' in text and _EXECUTION.search(text) is not None
        return '"traceEvents"' in text or kineto or execution
    return _LIST.match(text) is not None and '"ph"' in text and '"ts"' in text


def read(path: Path) -> Artefact:
    """The `ops` of a trace; facts: versions, counts and totals for each kind; notes.

    InputError for what is no profiler trace or cut short. Phase and iteration are those of the
    range of Layerline (or ProfilerStep) in which the operation, or the call that launched it, began
    (`nesting.windows`); modules are not filled (`analysis.attribution.eager` gives them).
    """
    events = read_events(path)
    nesting = nest(events)
    launch, notes = launches(events)
    rows = np.flatnonzero((events.kind == OP) | np.isin(events.kind, DEVICE))
    notes = [*events.notes, *notes, *_left_out(events)]
    return Artefact(
        KIND,
        {"ops": tables.table("ops", columns(events, nesting, launch, rows))},
        facts(events),
        notes,
    )


def launches(events: Events) -> tuple[Ints, list[str]]:
    """For each event, the runtime or driver call that launched it; -1 for none. And notes.

    Several calls may carry one correlation (traces of several processes in one file, a counter
    that wrapped): the last that began before the operation is taken.
    """
    launch = np.full(len(events), UNKNOWN, dtype=np.int64)
    calls = np.flatnonzero((events.kind == RUNTIME) & (events.correlation != UNKNOWN))
    calls = calls[np.lexsort((events.start[calls], events.correlation[calls]))]
    device = np.flatnonzero(np.isin(events.kind, DEVICE))
    keys = events.correlation[calls]
    wanted = events.correlation[device]
    low = np.searchsorted(keys, wanted, side="left")
    high = np.searchsorted(keys, wanted, side="right")
    known = (high > low) & (wanted != UNKNOWN)
    launch[device[known]] = calls[low[known]]
    for at in np.flatnonzero(known & (high - low > 1)):
        several = calls[low[at] : high[at]]
        before = several[events.start[several] <= events.start[device[at]]]
        launch[device[at]] = before[-1] if len(before) else several[0]
    missing = int((~known).sum())
    notes = []
    if missing:
        notes.append(
            f"{missing} of {len(device)} device operations have no launch in the trace; "
            "their range is unknown"
        )
    return launch, notes


def columns(events: Events, nesting: Nesting, launch: Ints, rows: Ints) -> dict[str, Any]:
    """Columns of `ops` for the events `rows`; see the module's text for what they hold."""
    kind = events.kind[rows]
    device = kind != OP
    host = np.where(device, launch[rows], rows)  # where on the host it comes from
    linked = host != UNKNOWN
    at = np.where(linked, host, 0)
    duration = events.duration[rows]
    operator = np.where(linked & device, nesting.operator[at], UNKNOWN)
    path = np.where(linked, nesting.path[at], UNKNOWN)
    innermost = np.array([*(name for _, name in nesting.paths), UNKNOWN], dtype=np.int64)[path]
    phase, iteration = (np.where(linked, v[at], UNKNOWN) for v in windows(events, nesting))
    kinds = np.where(device, kind - min(DEVICE_KINDS) + 1, 0)
    distributed = events.head.get("distributedInfo")
    rank = distributed.get("rank") if isinstance(distributed, dict) else None
    thread = np.array([number(p) for p in events.places], dtype=np.int64)
    stream = np.where(
        events.stream[rows] != UNKNOWN, events.stream[rows], thread[events.thread[rows]]
    )
    ordinal = np.where(
        events.device[rows] != UNKNOWN, events.device[rows], thread[events.process[rows]]
    )
    process = thread[events.process[at]]
    return {
        "source": constant(events.path.name, len(rows)),
        "phase": coded(phase, list(tables.PHASES)),
        "iteration": masked(iteration),
        "kind": coded(kinds, ["op", *DEVICE_KINDS.values()]),
        "name": coded(events.name[rows], events.names),
        "start_ns": pa.array(events.start[rows]),
        "duration_ns": masked(duration),
        "self_ns": masked(np.where(device | (duration == UNKNOWN), UNKNOWN, nesting.self_ns[rows])),
        "device": masked(np.where(device, ordinal, UNKNOWN)),
        "stream": masked(np.where(device, stream, UNKNOWN)),
        "process": masked(np.where(linked, process, UNKNOWN)),
        "rank": constant(rank if isinstance(rank, int) else None, len(rows), pa.int64()),
        "correlation": masked(np.where(device, events.correlation[rows], UNKNOWN)),
        "range": coded(innermost, events.names),
        "range_path": path_lists(events, nesting, path, linked),
        "layer": coded(np.where(operator == UNKNOWN, UNKNOWN, events.name[operator]), events.names),
    }


def number(place: Any) -> int:
    """A process or thread as number; many traces have texts like "stream 7"."""
    if isinstance(place, str):
        digits = re.search(r"\d+$", place)
        return integer(digits.group()) if digits else UNKNOWN
    return integer(place)


def masked(values: npt.NDArray[Any]) -> pa.Array:
    """Integers, `UNKNOWN` as null."""
    return pa.array(values.astype(np.int64), mask=np.asarray(values == UNKNOWN))


def coded(codes: npt.NDArray[Any], texts: list[str]) -> pa.Array:
    """Texts by their codes, `UNKNOWN` as null; each text is stored once until written."""
    indices = pa.array(codes.astype(np.int32), mask=np.asarray(codes == UNKNOWN))
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string())).cast(pa.string())


def constant(value: Any, length: int, kind: pa.DataType | None = None) -> pa.Array:
    """One value for all rows."""
    if value is None:
        return pa.nulls(length, kind or pa.string())
    return pa.repeat(pa.scalar(value, kind or pa.string()), length)


def path_lists(
    events: Events, nesting: Nesting, path: npt.NDArray[Any], linked: npt.NDArray[Any]
) -> pa.Array:
    """The names of a path's ranges, outermost first; empty outside of ranges, null if unknown."""
    lists: list[list[str]] = []
    for outer, name in nesting.paths:
        lists.append([*(lists[outer] if outer >= 0 else ()), events.names[name]])
    lists.append([])
    indices = np.where(path == UNKNOWN, len(lists) - 1, path)
    return pa.array(lists, pa.list_(pa.string())).take(pa.array(indices, mask=np.asarray(~linked)))


def facts(events: Events) -> dict[str, Any]:
    """What the trace is of, and the count and total of what it holds (closure check i)."""
    known: dict[str, Any] = {k: events.head[k] for k in _FACTS if k in events.head}
    devices = events.head.get("deviceProperties")
    if isinstance(devices, list):
        known["gpus"] = sorted(
            {str(d["name"]) for d in devices if isinstance(d, dict) and "name" in d}
        )
    known["events"] = events.counts
    known["totals"] = {
        label: {
            "count": int(of.sum()),
            "duration_ns": int(events.duration[of & (events.duration != UNKNOWN)].sum()),
        }
        for label, of in (
            ("op", events.kind == OP),
            *((label, events.kind == number) for number, label in DEVICE_KINDS.items()),
        )
    }
    return known


def _left_out(events: Events) -> list[str]:
    """What is in the file but no row, in words."""
    notes = []
    frames = int((events.kind == PYTHON).sum())
    if frames:
        notes.append(f"{frames} Python frames are no rows; those of modules are ranges")
    foreign: Counter[str] = Counter()
    for key, count in events.counts.items():
        category = key.removeprefix("X").strip()
        if key.startswith("X") and kind_of(category, "", None) == UNKNOWN:
            foreign[category or "without category"] += count
    if foreign:
        listed = ", ".join(f"{n} {category}" for category, n in foreign.most_common(6))
        notes.append(f"events of other categories are no rows: {listed}")
    return notes
