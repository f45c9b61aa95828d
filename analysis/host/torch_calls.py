"""The host's calls of a capture by torch.profiler, in the form of those by nsys."""

from __future__ import annotations

import numpy as np

from ..readers.nsys import schema
from ..readers.nsys.host import CUDA, LIBRARIES, SYSTEM, Host, HostCalls
from ..readers.nsys.source import NULL
from ..readers.torch.events import RUNTIME, UNKNOWN, Events
from ..readers.torch.trace import number

TOOL = "torch.profiler"
NOT_RECORDED = f"{TOOL} does not record it"


def host(events: Events) -> Host:
    """Calls into the runtime and the driver of the device, by start."""
    rows = np.flatnonzero((events.kind == RUNTIME) & (events.duration != UNKNOWN))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    numbers = np.array([number(p) for p in events.places], dtype=np.int64)
    process = numbers[events.process[rows]] & schema.PROCESS_MASK
    correlation = events.correlation[rows]
    calls = HostCalls(
        events.start[rows],
        events.end[rows],
        process << schema.PROCESS_SHIFT | events.thread[rows].astype(np.int64),
        np.where(correlation == UNKNOWN, NULL, correlation),
        events.name[rows],
        events.names,
    )
    missing = dict.fromkeys((SYSTEM, *LIBRARIES), NOT_RECORDED)
    return Host({CUDA: calls}, missing, tool=TOOL)
