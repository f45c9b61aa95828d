"""The host side of a capture by nsys: what the host did while it issued an iteration, and whether
the device had to wait for it.

An iteration lasts, here, from the first call that launched one of its operations to the end of the
last of these calls or of the last operation, whichever is later, but not beyond the first launch of
the next iteration, which the host may issue before the device is done. All times are unions of
intervals within it, on the threads that launched, so that nothing is counted twice:

- issue: from the first launching call to the end of the last;
- launches: calls into CUDA whose name has "launch"; copies: "memcpy" or "memset"; synchronising:
  "synchronize"; other CUDA calls;
- libraries: calls into cuBLAS and cuDNN, with the launches in them;
- waits: calls of the system that wait (`WAITS`), of at least 1 us (`readers.nsys.host`);
- device: busy (some operation runs, on any stream), idle (no operation between the first and the
  last), gaps, and of the idle time what passed before the next operation's launch had returned:
  there the device waited for the host, else for the order of its work.

Tracing makes calls several times as expensive and the kernels not: the issue time is an upper
bound, the busy time is not affected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.intervals import length
from ...core.tables import DEVICE_KINDS, by_value, of_kinds
from ..readers.nsys import schema
from ..readers.nsys.host import CUDA, LIBRARIES, SYSTEM, Host, HostCalls
from ..readers.nsys.source import NULL

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

WAITS = frozenset(
    [
        *("poll", "ppoll", "select", "pselect", "epoll_wait", "epoll_pwait"),
        *("sem_wait", "sem_timedwait", "sem_clockwait"),
        *("pthread_cond_wait", "pthread_cond_timedwait", "pthread_cond_clockwait"),
        *("pthread_mutex_lock", "pthread_mutex_timedlock", "pthread_join", "pthread_barrier_wait"),
        *("pthread_rwlock_rdlock", "pthread_rwlock_wrlock", "pthread_spin_lock"),
        *("sleep", "usleep", "nanosleep", "clock_nanosleep", "sched_yield", "wait", "waitpid"),
    ]
)
# Of a call into CUDA the first that its name holds.
KINDS = {"launch": "launch", "memcpy": "copy", "memset": "copy", "synchronize": "synchronise"}
CALLS = ("launch", "copy", "synchronise", "other")


@dataclass(frozen=True)
class Measured:
    """Values by name, one per iteration (ns, or counts); None is unknown, `missing` says why.

    Counts: launches (calls that launched an operation), operations, gaps. Times: issue, busy, span,
    idle, idle_for_host; launch, copy, synchronise, other (calls into CUDA); cuBLAS, cuDNN; waits.
    """

    iterations: Sequence[int]
    values: Mapping[str, Sequence[int] | None]
    missing: Mapping[str, str] = field(default_factory=dict)


def measure(ops: pa.Table, host: Host, pieces: Sequence[int] = ()) -> Measured | None:
    """What the host did in each iteration of `ops` (table `ops`, of a capture by nsys).

    `pieces`: when the parts of an iteration begin on the host, where something else runs between
    them that is not in `ops`. Then each is taken by itself, and an iteration is their sum.
    None where no operation of an iteration has a launch in the capture, or where launches of
    several processes cannot be told apart.
    """
    calls = host.calls.get(CUDA)
    ops = ops.select(["kind", "iteration", "start_ns", "duration_ns", "correlation", "process"])
    rows = of_kinds(ops, DEVICE_KINDS, "iteration", "start_ns", "duration_ns")
    if calls is None or not len(calls) or not len(rows):
        return None
    launch = _launches(rows, calls)
    if launch is None or not (launch >= 0).any():
        return None
    start = rows["start_ns"].to_numpy()
    end = start + rows["duration_ns"].to_numpy()
    views = _views(host)
    known: list[tuple[int, tuple[int, int], Integers, dict[str, int]]] = []
    piece = np.searchsorted(np.sort(pieces), calls.start[launch], side="right")
    for number, here in by_value(rows["iteration"].to_numpy()):
        if (launch[here] < 0).any():
            continue  # an iteration with an operation that nobody launched has no known begin
        for _, part in by_value(piece[here]):
            at = here[part]
            window, own = _iteration(start[at], end[at], launch[at], calls)
            known.append((number, window, np.unique(calls.thread[launch[at]]), own))
    if not known:
        return None
    begins = sorted(begin for _, (begin, _), _, _ in known)
    numbers = list(dict.fromkeys(number for number, *_ in known))
    values: dict[str, list[int]] = {}
    for number, (begin, last), threads, own in known:
        window = (begin, min([last, *begins[bisect_right(begins, begin) :][:1]]))
        own |= {k: v.within(window, threads) for k, v in views.items()}
        for name, value in own.items():
            of_iterations = values.setdefault(name, [0] * len(numbers))
            of_iterations[numbers.index(number)] += value
    missing = dict(host.missing)
    absent = {k: None for k in (*LIBRARIES, "waits") if k not in values}
    if SYSTEM in missing:
        missing["waits"] = missing.pop(SYSTEM)
    return Measured(numbers, {**values, **absent}, missing)


def _launches(rows: pa.Table, calls: HostCalls) -> Integers | None:
    """Index of the call that launched each operation, -1 for none; of equal ids the latest.

    Correlation ids are unique within a process only: where operations do not tell theirs, there
    may be one process alone.
    """
    correlation = pc.fill_null(rows["correlation"], NULL).to_numpy()
    of_call = (calls.thread >> schema.PROCESS_SHIFT) & schema.PROCESS_MASK
    known = rows["process"].null_count == 0
    if not known and len(np.unique(of_call)) > 1:
        return None
    of_row = np.full(len(rows), of_call[0])
    if known:  # with or without the machine's bits of globalPid
        of_row = rows["process"].to_numpy() & schema.PROCESS_MASK
    launch = np.full(len(rows), -1, np.int64)
    for process in np.unique(of_row).tolist():
        own_rows = np.flatnonzero(of_row == process)
        of = np.flatnonzero((of_call == process) & (calls.correlation != NULL))
        of = of[np.argsort(calls.correlation[of], kind="stable")]  # by start within an id
        ids = calls.correlation[of]
        at = np.searchsorted(ids, correlation[own_rows], side="right") - 1
        hit = (at >= 0) & (ids[np.maximum(at, 0)] == correlation[own_rows]) if len(ids) else at >= 0
        launch[own_rows[hit]] = of[at[hit]]
    return launch


def _iteration(
    start: Integers, end: Integers, launch: Integers, calls: HostCalls
) -> tuple[tuple[int, int], dict[str, int]]:
    """Begin and end, and the values that the operations and their launches alone tell."""
    issuing = np.unique(launch)
    begin, issued = int(calls.start[issuing].min()), int(calls.end[issuing].max())
    order = np.argsort(start, kind="stable")
    start, end, returned = start[order], end[order], calls.end[launch[order]]
    done = np.maximum.accumulate(end)
    gap = np.maximum(start[1:] - done[:-1], 0)
    waited = np.clip(returned[1:] - done[:-1], 0, gap)
    span = int(done[-1] - start[0])
    return (begin, max(issued, int(done[-1]))), {
        "launches": len(issuing),
        "operations": len(start),
        "issue": issued - begin,
        "span": span,
        "busy": span - int(gap.sum()),
        "idle": int(gap.sum()),
        "idle_for_host": int(waited.sum()),
        "gaps": int((gap > 0).sum()),
    }


class _View:
    """Calls of one sort, by start, to be cut to a window."""

    def __init__(self, calls: HostCalls, chosen: Flags) -> None:
        self._start, self._end = calls.start[chosen], calls.end[chosen]
        self._thread = calls.thread[chosen]
        self._latest = np.maximum.accumulate(self._end) if len(self._end) else self._end

    def within(self, window: tuple[int, int], threads: Integers) -> int:
        """Union of the calls on `threads` within the window, in ns, each thread by itself."""
        low = int(np.searchsorted(self._latest, window[0], side="right"))
        high = int(np.searchsorted(self._start, window[1], side="left"))
        if low >= high:
            return 0
        start = np.maximum(self._start[low:high], window[0])
        end = np.minimum(self._end[low:high], window[1])
        thread = self._thread[low:high]
        return sum(length(start[thread == t], end[thread == t]) for t in threads.tolist())


def _views(host: Host) -> dict[str, _View]:
    """The sorts of calls that are shown, as far as the capture has them."""
    cuda, system = host.calls[CUDA], host.calls.get(SYSTEM)
    kind_of = np.array([CALLS.index(_kind(n)) for n in cuda.names] or [0])[cuda.name]
    views = {kind: _View(cuda, kind_of == code) for code, kind in enumerate(CALLS)}
    for library in LIBRARIES:
        calls = host.calls.get(library)
        if calls is not None:
            views[library] = _View(calls, np.full(len(calls), True))
    if system is not None:
        waits = np.array([n in WAITS for n in system.names] or [False])[system.name]
        views["waits"] = _View(system, waits)
    return views


def _kind(name: str) -> str:
    low = name.casefold()
    return next((kind for part, kind in KINDS.items() if part in low), "other")
