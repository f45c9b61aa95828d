"""Which iteration and phase the host's work in a profiler trace is of, by the ranges marking them.

Such a range is a window. What runs inside it on its own thread is of it, and what other threads of
its process begin meanwhile: PyTorch runs the backward of what ran on a device on a thread of its
own, which has no ranges.
"""

from __future__ import annotations

import heapq
from collections import Counter

import numpy as np

from ....core.own_ranges import ITERATION, PHASE
from ....core.tables import PHASES
from .events import HOST, RANGE, UNKNOWN, Events, Ints, integer
from .nesting import Nesting

ITERATIONS = (ITERATION, "ProfilerStep#")


def windows(events: Events, nesting: Nesting) -> tuple[Ints, Ints]:
    """Phase (index into `tables.PHASES`) and iteration of every host event, -1 where unknown.

    By the ranges around it on its own thread, else by the window of its process in which it began:
    the innermost. It is unknown where there is none, and where windows overlap and none is inside
    all others on one thread.
    """
    phase, iteration = (_placed(events, nesting, marks) for marks in _marks(events.names))
    return phase, iteration


def iteration_number(name: str) -> int | None:
    """The number in the name of an iteration's range, null for other ranges."""
    for prefix in ITERATIONS:
        rest = name.removeprefix(prefix)
        if rest != name and rest.isascii() and rest.isdigit():
            number = integer(rest)
            return None if number == UNKNOWN else number
    return None


def _marks(names: list[str]) -> tuple[Ints, Ints]:
    """The phase and the iteration that a range with each name marks; -1 where it marks none.

    Where a trace has Layerline's iterations the steps of the profiler around them are none: those
    are numbered from another start.
    """
    phases = {PHASE + name: code for code, name in enumerate(PHASES)}
    numbers = [iteration_number(n) for n in names]
    own = [
        number if n.startswith(ITERATION) else None
        for n, number in zip(names, numbers, strict=True)
    ]
    if any(number is not None for number in own):
        numbers = own
    return (
        np.array([phases.get(n, UNKNOWN) for n in names], dtype=np.int64),
        np.array([UNKNOWN if n is None else n for n in numbers], dtype=np.int64),
    )


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
