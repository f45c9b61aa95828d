"""What the host did for the chosen iteration: calls, ranges, and which call launched what.

From an nsys export (runtime and library calls, NVTX ranges) or a trace of torch.profiler (runtime
calls, record_function ranges). Shown is the time from the first launch of the iteration (or its
first host operator) to its last operation's end, on the threads that launched something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...core.errors import InputError
from ..readers.nsys import host as host_
from ..readers.nsys import schema, sqlite
from ..readers.torch import events as events_
from ..readers.torch.events import Events
from .operations import Operations, equal_rows, integers
from .tracks import NULL, About, Flows, Ints, Slices, Track, track_of

_CUT = {"cut": "reaches beyond what is shown; duration_ns and capture_ns are those of the whole"}


@dataclass(frozen=True)
class HostEvents:
    """Calls or ranges of a capture. ns; `process` and `correlation` are `NULL` where unknown."""

    what: str
    start: Ints
    end: Ints
    process: Ints
    thread: Ints
    correlation: Ints
    name: Ints
    names: Sequence[str]

    def take(self, rows: Ints) -> HostEvents:
        """These rows."""
        columns = ("start", "end", "process", "thread", "correlation", "name")
        return replace(self, **{c: getattr(self, c)[rows] for c in columns})


def read(path: Path, events: Events | None = None) -> list[HostEvents]:
    """Calls and ranges of a capture; nothing for a file that has none of either. `events` of a
    profiler trace that was read already."""
    if path.suffix == ".sqlite":
        return _nsys(path)
    if ".trace.json" in path.name:
        return _torch(events or events_.read_events(path))
    return []


def _nsys(path: Path) -> list[HostEvents]:
    from ..readers.nsys.load import load

    try:
        with sqlite.source(path) as source:
            host = host_.load(source)
            ranges = load(source, described=False)
    except InputError:
        return []  # who read the operations said what is wrong
    events = [
        HostEvents(
            f"{kind} calls",
            calls.start,
            calls.end,
            *_process_and_thread(calls.thread),
            calls.correlation,
            calls.name.astype(np.int64),
            calls.names,
        )
        for kind, calls in host.calls.items()
    ]
    nvtx = ranges.ranges
    if len(nvtx):
        place = _process_and_thread(np.asarray(nvtx.threads, np.int64)[nvtx.thread])
        unknown = np.full(len(nvtx), NULL)
        names = [*ranges.names, "(no name)"]
        name = np.where(nvtx.name < 0, len(names) - 1, nvtx.name).astype(np.int64)
        every = HostEvents("ranges", nvtx.start, nvtx.end, *place, unknown, name, names)
        events.append(every.take(np.flatnonzero(nvtx.end != NULL)))
    return events


def _process_and_thread(thread: Ints) -> tuple[Ints, Ints]:
    process = thread >> schema.PROCESS_SHIFT & schema.PROCESS_MASK
    return process, thread & schema.PROCESS_MASK


def _torch(events: Events) -> list[HostEvents]:
    places = [p if isinstance(p, int) else NULL for p in events.places]
    numbers = np.asarray([*places, NULL], np.int64)
    host_events = []
    for what, kind in (("CUDA calls", events_.RUNTIME), ("ranges", events_.RANGE)):
        every = HostEvents(
            what,
            events.start,
            events.end,
            numbers[events.process],
            numbers[events.thread],
            np.where(events.correlation == events_.UNKNOWN, NULL, events.correlation),
            events.name.astype(np.int64),
            events.names,
        )
        timed = (events.kind == kind) & (events.duration != events_.UNKNOWN)
        host_events.append(every.take(np.flatnonzero(timed)))
    return host_events


def launches(events: Sequence[HostEvents], ops: Operations) -> tuple[HostEvents, Ints] | None:
    """The calls that launch, and for each operation the row of its call, by process and correlation
    id, -1 for none; None where no call launched any."""
    for calls in events:
        if calls.what == "CUDA calls":
            call = _launched(calls, integers(ops.table["process"]), ops.slices.own["correlation"])
            if (call >= 0).any():
                return calls, call
    return None


def _launched(calls: HostEvents, process: Ints, correlation: Ints) -> Ints:
    known = np.flatnonzero(calls.correlation != NULL)
    # Of calls with the same id (runtime and driver) the first is the one that the program made.
    known = known[np.argsort(calls.start[known], kind="stable")]
    keys, wanted = [calls.correlation[known]], [correlation]
    # Ids are unique within a process; one process on either side needs no telling apart.
    if len(np.unique(calls.process)) > 1:
        keys.append(calls.process[known])
        wanted.append(process)
    return np.append(known, -1)[equal_rows(keys, wanted)]


def tracks(
    events: Sequence[HostEvents],
    launches: tuple[HostEvents, Ints],
    ops: Operations,
    others: Ints,
    since: int | None,
    first_arrow: int,
) -> list[Track]:
    """Tracks of calls and ranges. `others`: correlation ids of other iterations' operations, whose
    launches are not this one's; `since`: when its first host operator began."""
    calls, call = launches
    own = calls.take(np.unique(call[call >= 0]))
    low, last_launch = int(own.start.min()), int(own.end.max())
    low = low if since is None else min(low, since)
    high = max(last_launch, int(ops.slices.end.max()))
    threads = np.unique(own.thread)
    tracks = []
    for kind in events:
        shown = np.isin(kind.thread, threads)
        if kind.what == "ranges":
            shown &= (kind.start < last_launch) & (kind.end > low)
        else:
            shown &= (kind.start >= low) & (kind.start <= high)
            shown &= ~np.isin(kind.correlation, others)
        rows = np.flatnonzero(shown)
        opens = _arrows(call, rows, first_arrow) if kind is calls else None
        tracks += _by_thread(kind.take(rows), low, high, opens)
    return tracks


def _arrows(call: Ints, rows: Ints, first: int) -> Flows:
    """From each of `rows` (ascending) to the operations that it launched."""
    order = np.argsort(call, kind="stable")
    order = order[np.isin(call[order], rows)]
    offsets = np.append(np.searchsorted(call[order], rows), len(order))
    return Flows(offsets, order + first)


def _by_thread(kind: HostEvents, low: int, high: int, opens: Flows | None) -> list[Track]:
    start = np.maximum(kind.start, low)
    end = np.maximum(start, np.minimum(kind.end, high))
    cut = ((kind.start < low) | (kind.end > high)).astype(np.int64)
    abouts: list[About] = [{"is": kind.what}, {"is": kind.what, **_CUT}]
    slices = Slices(
        start=start,
        end=end,
        name=kind.name,
        names=[n or "(no name)" for n in kind.names],
        about=cut,
        abouts=abouts,
        own={
            "duration_ns": kind.end - kind.start,
            "capture_ns": kind.start,
            "correlation": kind.correlation,
        },
        opens=opens,
    )
    return [
        track_of(
            f"host {kind.what}, thread {'unknown' if thread == NULL else thread}",
            "",
            slices,
            np.flatnonzero(kind.thread == thread),
        )
        for thread in np.unique(kind.thread).tolist()
    ]
