"""Of each communication: how long a rank waited for its peers, and how long the transfer took.

With aligned clocks a rank waits from its own start to the latest start of the instance; from then
on it is transfer. Where a rank of the group has no capture the latest start may have been later:
waits are at least what is told here. Only matched rows have either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.intervals import Ints, Measure, moments, union
from ..model.ranks import Clock
from .clocks import aligned
from .exposed import inside
from .matching import Matched

NONE = -1
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Waits:
    """Per row, on the clock of all: `start`, `end`, `latest` (the instance's latest start) and
    `late` (the rank that started then, NONE without a wait); `known`: the row is matched, and the
    ranks' clocks can be compared. `uncertainty`: of what two clocks tell, ns."""

    start: Ints
    end: Ints
    latest: Ints
    late: Ints
    known: Flags
    transfer: Ints
    uncertainty: Ints

    @property
    def wait(self) -> Ints:
        """The wait of each row; 0 where it is not known."""
        return np.where(self.known, np.maximum(self.latest - self.start, 0), 0)


def waits(rows: pa.Table, matched: Matched, clocks: Mapping[int, Clock]) -> Waits:
    """Wait and transfer of all rows."""
    rank = rows["rank"].to_numpy()
    has = rows["start"].is_valid().to_numpy()
    start = aligned(rows["start"].fill_null(0).to_numpy(), rank, clocks)
    end = aligned(rows["end"].fill_null(0).to_numpy(), rank, clocks)
    n = len(rank)
    clock = [clocks[r] for r in rank.tolist()]
    parts = np.array([NONE if c.part is None else c.part for c in clock])
    widths = np.array([c.uncertainty or 0 for c in clock], dtype=np.int64)
    uncertainty = widths.copy()
    latest, late = start.copy(), np.full(n, NONE)
    known = np.zeros(n, dtype=bool)
    transfer = np.zeros(n, dtype=np.int64)
    for rows_ in matched.instances.values():
        apart = parts[rows_[0]] == NONE or (parts[rows_] != parts[rows_[0]]).any()
        if not has[rows_].all() or (apart and len(rows_) > 1):
            continue
        last = rows_[np.argmax(start[rows_])]
        known[rows_] = True
        latest[rows_] = start[last]
        # A mean of absolute times would lose nanoseconds in floating point.
        transfer[rows_] = max(round(float((end[rows_] - start[last]).mean())), 0)
        if len(rows_) > 1:
            late[rows_] = rank[last]
            uncertainty[rows_] += widths[last]
    return Waits(start, end, latest, late, known, transfer, uncertainty)


@dataclass(frozen=True)
class Exposure:
    """Of one rank's rows: exposed time (of `repeated` ones 0), and exposed wait for which the row's
    late rank answers. `wait`, `transfer`, `unknown`: the exposed communication of the rank as
    intervals."""

    exposed: Ints
    exposed_wait: Ints
    wait: tuple[Ints, Ints]
    transfer: tuple[Ints, Ints]
    unknown: tuple[Ints, Ints]


def exposure(waits_: Waits, mine: Ints, exposed: tuple[Ints, Ints]) -> Exposure:
    """How the exposed communication of a rank (intervals on the clock of all) divides.

    A moment in which any communication of the rank transfers is transfer; else one in which a
    matched one waits is wait, of the one that began first; the rest is of no known partner."""
    start, end = waits_.start[mine], waits_.end[mine]
    latest = np.minimum(waits_.latest[mine], end)
    known = waits_.known[mine]
    of_transfer = union(latest[known], end[known])
    of_wait = union(start[known], latest[known])
    transfer = intersection(exposed, of_transfer)
    rest = difference(exposed, of_transfer)
    wait = intersection(rest, of_wait)
    unknown = difference(rest, of_wait)
    all_, waiting = Measure(*exposed), Measure(*wait)
    order = np.lexsort((latest, start))
    low, high = start[order], np.where(known, latest, start)[order]
    before = np.concatenate(([np.iinfo(np.int64).min], np.maximum.accumulate(high)[:-1]))
    answered = np.zeros(len(mine), dtype=np.int64)
    answered[order] = waiting.between(np.maximum(low, before), high)
    exposed_ns = np.where(repeated(start, end), 0, all_.between(start, end))
    return Exposure(exposed_ns, answered, wait, transfer, unknown)


def repeated(start: Ints, end: Ints) -> Flags:
    """Which of a rank's rows have the interval of one before: they are of one kernel, as sends and
    receives that NCCL does together are. Its time is that of the first alone."""
    order = np.lexsort((end, start))
    same = (np.diff(start[order]) == 0) & (np.diff(end[order]) == 0)
    result = np.zeros(len(start), dtype=bool)
    result[order[1:]] = same
    return result


def intersection(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """What lies in both of two sets of disjoint ordered intervals."""
    return _combined(a, b, lambda x, y: x & y)


def difference(a: tuple[Ints, Ints], b: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """What lies in the first and not in the second."""
    return _combined(a, b, lambda x, y: x & ~y)


def _combined(
    a: tuple[Ints, Ints], b: tuple[Ints, Ints], both: Callable[[Flags, Flags], Flags]
) -> tuple[Ints, Ints]:
    points = moments(*a, *b)
    starts = points[:-1]
    keep = both(inside(starts, *a), inside(starts, *b))
    return union(starts[keep], points[1:][keep])
