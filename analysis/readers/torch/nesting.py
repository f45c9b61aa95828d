"""How the host events of a profiler trace nest on their threads, and which step they are of.

`nest` finds every event's parent and the time that each operator spends outside of nested
operators; `windows` the phase and iteration, by the ranges that mark them. All of it is arrays: a
trace of a few steps has 100,000 events, and it is nested several times.
"""

from __future__ import annotations

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....core.own_ranges import ITERATION, PHASE
from ....core.tables import PHASES
from .events import HOST, OP, PYTHON, RANGE, RUNTIME, STEP, UNKNOWN, Events, Ints, integer

MODULE_FRAME = "nn.Module: "
ITERATIONS = (ITERATION, STEP)

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Nesting:
    """How host events nest: arrays over all events; -1 for none, and for device events.

    What encloses an event is what runs on its thread when it begins. `order`: host events, parents
    before children. `parent`: the innermost enclosing event; its own parent may have ended before
    the event begins (a Python frame that outlives the operator in which it began), so ask
    `innermost` for what is further out. `operator`: the innermost enclosing operator, the event
    itself where it is one. `self_ns`: time in which an operator is the innermost one that runs on
    its thread. `path`: into `paths`, whose entries are (outer path, name code); path -1 is outside
    of all ranges.
    """

    start: Ints
    end: Ints
    order: Ints
    parent: Ints
    operator: Ints
    self_ns: Ints
    path: Ints
    paths: list[tuple[int, int]]

    def innermost(self, flags: Flags, *, around: bool = False) -> Ints:
        """The innermost event with a flag that encloses each event, -1 for none; an event with the
        flag is its own, or with `around` the next one further out."""
        return _innermost(flags, self.parent, self.start, self.end, around)


def nest(events: Events) -> Nesting:
    """Nest the host events of each thread by their times.

    An event belongs to the latest one that began before it and has not ended. Equal times are
    told apart by the profiler's index, then by the file's order; a runtime call is never outside
    of an operator with the same times. Rounded times may overlap by a bit: each moment belongs to
    the operator that began last, so that the self times of a thread's operators add up to the
    time in which any of them runs.
    """
    host = np.flatnonzero(events.kind <= RUNTIME)
    start, end = events.start, events.end
    order = host[
        np.lexsort(
            (
                host,
                events.index[host],
                events.kind[host] == RUNTIME,
                -end[host],
                start[host],
                events.thread[host],
                events.process[host],
            )
        )
    ]
    parent = np.full(len(events), UNKNOWN, dtype=np.int64)
    where = events.process[order].astype(np.int64) << 32 | events.thread[order].astype(np.int64)
    for part in np.split(order, np.flatnonzero(np.diff(where)) + 1):
        outer = _running(start[part], end[part])
        parent[part] = np.where(outer >= 0, part[outer], UNKNOWN)
    is_operator = events.kind == OP
    frames = np.array([name.startswith(MODULE_FRAME) for name in events.names], dtype=bool)
    is_range = (events.kind == RANGE) | ((events.kind == PYTHON) & frames[events.name])
    outer = _innermost(is_operator, parent, start, end, around=True)
    path, paths = _paths(events, order, is_range, _innermost(is_range, parent, start, end, True))
    return Nesting(
        start=start,
        end=end,
        order=order,
        parent=parent,
        operator=np.where(is_operator, np.arange(len(events)), outer),
        self_ns=np.where(is_operator, _self_times(start, end, np.where(is_operator, outer, -1)), 0),
        path=path,
        paths=paths,
    )


def _innermost(flags: Flags, parent: Ints, start: Ints, end: Ints, around: bool) -> Ints:
    """See `Nesting.innermost`."""
    if not flags.any():
        return np.full(len(flags), -1)
    # Each event points to itself where it has the flag, else outwards; pointers are followed two,
    # four, eight steps at a time. The last entry is where those end that are in nothing.
    beyond = np.append(parent, -1)
    pointers = np.append(np.where(flags, np.arange(len(flags)), parent), -1)
    while True:
        further = pointers[pointers]
        if np.array_equal(further, pointers):
            break
        pointers = further
    found = pointers[beyond[:-1]] if around else pointers[:-1].copy()
    # All that runs when an event begins is in the chain of its parents, with what has ended since
    # a parent began: that is passed over.
    rest = np.flatnonzero(found != np.arange(len(found)))
    while True:
        rest = rest[found[rest] >= 0]
        rest = rest[end[found[rest]] <= start[rest]]
        if not len(rest):
            return found
        found[rest] = pointers[beyond[found[rest]]]


def _running(start: Ints, end: Ints) -> Ints:
    """For each event of a thread, in order, the latest one before it that ends after it starts.

    The one on top of a stack from which what has ended is taken. A tree of the largest end of
    blocks of 1, 2, 4, ... events is climbed until a block before the event holds one that ends
    late enough, and then descended to the last one in it.
    """
    n = len(start)
    largest = [end]
    while len(largest[-1]) > 1:
        below = largest[-1]
        pairs = np.append(below, np.iinfo(np.int64).min) if len(below) % 2 else below
        largest.append(pairs.reshape(-1, 2).max(axis=1))
    latest = np.full(n, UNKNOWN, dtype=np.int64)
    todo, block = np.arange(n), np.arange(n)  # the block that ends where the event begins
    at: list[tuple[Ints, Ints]] = []  # by level: events whose block there is the one, and it
    for ends in largest:
        odd = block & 1 == 1
        hit = odd.copy()
        hit[odd] = ends[block[odd] - 1] > start[todo[odd]]
        at.append((todo[hit], block[hit] - 1))
        rest = ~hit & (block > 1)
        todo, block = todo[rest], block[rest] >> 1
    event, block = np.empty(0, np.int64), np.empty(0, np.int64)
    for level in range(len(largest) - 1, -1, -1):
        ends = largest[level]
        if len(event):
            block = block * 2 + 1
            late = block < len(ends)
            late[late] = ends[block[late]] > start[event[late]]
            block = np.where(late, block, block - 1)
        event = np.concatenate((event, at[level][0]))
        block = np.concatenate((block, at[level][1]))
    latest[event] = block
    return latest


def _paths(
    events: Events, order: Ints, is_range: Flags, around: Ints
) -> tuple[Ints, list[tuple[int, int]]]:
    """`path` and `paths` of `Nesting`, from the range `around` each event: paths are numbered as
    they are met."""
    start, end = events.start, events.end
    known: dict[tuple[int, int], int] = {}
    code = np.full(len(events) + 1, UNKNOWN, dtype=np.int64)  # of a range: with it, as it begins
    until = np.full(len(events) + 1, np.iinfo(np.int64).max)  # until when all of this path runs

    def at(range_: int, moment: int) -> int:
        """The path inside a range at a moment: without the outer ranges that have ended."""
        names = []
        while moment >= until[range_]:
            if end[range_] > moment:
                names.append(int(events.name[range_]))
            range_ = int(around[range_])
        path = int(code[range_])
        for name in reversed(names):
            path = known.setdefault((path, name), len(known))
        return path

    for i in order[is_range[order]].tolist():
        outer, name = int(around[i]), int(events.name[i])
        code[i] = known.setdefault((at(outer, int(start[i])), name), len(known))
        until[i] = min(end[i], until[outer])
    path = code[np.where(is_range, np.arange(len(events)), around)]
    late = np.flatnonzero(~is_range & (start >= until[around]))
    for i in late.tolist():
        path[i] = at(int(around[i]), int(start[i]))
    return path, list(known)


def _self_times(start: Ints, end: Ints, parent: Ints) -> Ints:
    """The time in which each operator is the last one that began and has not ended."""
    inside = np.flatnonzero(parent >= 0)
    outer = parent[inside]
    # Until when an event or something in it runs: longer than the event itself only where they
    # overlap.
    until = end.copy()
    while True:
        before = until.copy()
        np.maximum.at(until, outer, until[inside])
        if np.array_equal(before, until):
            break
    alone = end - start
    np.subtract.at(alone, outer, np.minimum(until[inside], end[outer]) - start[inside])
    return alone


# --- phases and iterations ------------------------------------------------------------------------


def windows(events: Events, nesting: Nesting) -> tuple[Ints, Ints]:
    """Phase (index into `tables.PHASES`) and iteration of every host event, -1 where unknown.

    A range that marks one is a window. What runs inside it on its own thread is of it, and what
    other threads of its process begin meanwhile: PyTorch runs the backward of what ran on a device
    on a thread of its own, which has no ranges. Of several windows the innermost counts. An event
    outside of all windows is unknown, and so is one where windows overlap and none is inside all
    others on one thread.
    """
    phase, iteration = (_placed(events, nesting, marks) for marks in _marks(events.names))
    return phase, iteration


def iteration_number(name: str) -> int | None:
    """The number in the name of an iteration's range, None for other ranges."""
    for prefix in ITERATIONS:
        rest = name.removeprefix(prefix)
        if rest != name and rest.isascii() and rest.isdigit():
            number = integer(rest)
            return None if number == UNKNOWN else number
    return None


def _marks(names: list[str]) -> tuple[Ints, Ints]:
    """The phase and the iteration that a range with each name marks; -1 where it marks none.

    Where a trace has Layerline's iterations the profiler's steps around them do not count: they are
    numbered from another start.
    """
    phases = {PHASE + name: code for code, name in enumerate(PHASES)}
    numbers = [iteration_number(name) for name in names]
    iterations = np.array([UNKNOWN if n is None else n for n in numbers], dtype=np.int64)
    own = np.array([name.startswith(ITERATION) for name in names], dtype=bool)
    if (iterations[own] != UNKNOWN).any():
        iterations[~own] = UNKNOWN
    return np.array([phases.get(name, UNKNOWN) for name in names], dtype=np.int64), iterations


def _placed(events: Events, nesting: Nesting, marks: Ints) -> Ints:
    """The mark of the window of each host event; see `windows`."""
    of_path: list[int] = []
    for outer, name in nesting.paths:
        around = of_path[outer] if outer >= 0 else UNKNOWN
        of_path.append(around if marks[name] == UNKNOWN else int(marks[name]))
    values = np.array([*of_path, UNKNOWN], dtype=np.int64)[nesting.path]
    of_event = marks[events.name]
    of_host = np.isin(events.kind, HOST)
    at = np.flatnonzero((events.kind == RANGE) & (of_event != UNKNOWN))
    for process in np.unique(events.process[at]):
        mine = at[events.process[at] == process]
        todo = np.flatnonzero((values == UNKNOWN) & of_host & (events.process == process))
        since, valid = _pieces(events, mine, of_event)
        piece = np.searchsorted(since, events.start[todo], side="right") - 1
        values[todo] = np.where(piece >= 0, valid[piece], UNKNOWN)
    return values


def _pieces(events: Events, at: Ints, of_event: Ints) -> tuple[Ints, Ints]:
    """The moments at which one of the windows `at` begins or ends, and the mark that holds from
    there to the next.

    It is that of the window that began last, if it is also the first to end (then it lies in all
    others that are open) and all others are of its thread; else -1.
    """
    start, end, thread = events.start[at], events.end[at], events.thread[at]
    since = np.unique(np.concatenate((start, end)))
    valid = np.full(len(since), UNKNOWN, dtype=np.int64)
    # The next one last: of equal starts the longer, as in `nest`.
    coming = np.lexsort((events.index[at], -end, start))[::-1].tolist()
    begun: list[int] = []  # some of them may have ended, the last one has not
    ending: list[tuple[int, int]] = []  # a heap of those that are open
    on = Counter[int]()
    for piece, moment in enumerate(since.tolist()):
        while ending and ending[0][0] <= moment:
            on[int(thread[heapq.heappop(ending)[1]])] -= 1
        while begun and end[begun[-1]] <= moment:
            begun.pop()
        while coming and start[coming[-1]] == moment:
            window = coming.pop()
            if end[window] > moment:
                begun.append(window)
                heapq.heappush(ending, (int(end[window]), window))
                on[int(thread[window])] += 1
        if begun and end[begun[-1]] == ending[0][0] and on[int(thread[begun[-1]])] == len(ending):
            valid[piece] = of_event[at[begun[-1]]]
    return since, valid
