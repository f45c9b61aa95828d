"""The critical path through the ranks: from the end of a step back to what it waited for.

At a moment on a rank, what the rank did by itself since it was last blocked is on the path; so is
the transfer that blocked it; and before that the path is on the rank that began this communication
last. It ends where the step began on the rank that it has come to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ...core.intervals import Ints
from ..model.ranks import PARTS
from .accounting import BLOCKED, Ledger
from .waits import NONE, Waits


def critical_path(waits: Waits, ledgers: Sequence[Ledger]) -> Counter[tuple[int, str]]:
    """Time on the path of all steps, by rank and part; the whole is what the steps took. Every
    rank has the same steps."""
    paths = {one.rank: _Path(one, waits) for one in ledgers}
    result: Counter[tuple[int, str]] = Counter()
    for number in ledgers[0].iterations:
        places = {one.rank: one.iterations.index(number) for one in ledgers}
        ends = {one.rank: int(one.step_end[places[one.rank]]) for one in ledgers}
        begins = {one.rank: int(one.step_start[places[one.rank]]) for one in ledgers}
        last = max(ends, key=lambda r: (ends[r], -r))
        _walk(paths, begins, last, ends[last], result)
    return result


class _Path:
    """Where a rank was blocked: the ends of the communications that blocked it, in order."""

    def __init__(self, ledger: Ledger, waits: Waits) -> None:
        rows = ledger.rows
        blocking = waits.known[rows] & (ledger.blocked > 0)
        blocking &= waits.latest[rows] <= waits.end[rows]
        places = np.flatnonzero(blocking)
        places = places[np.argsort(waits.end[rows[places]])]  # no two end together
        self.end = waits.end[rows[places]]
        self.latest, self.late = waits.latest[rows[places]], waits.late[rows[places]]
        self.at_end = ledger.at_end[places]
        # What the rank had done at the moments from which a path can come to it.
        moments = np.concatenate((waits.start[rows], ledger.step_start, ledger.step_end))
        tables = np.concatenate((ledger.at_start, ledger.at_step_start, ledger.at_step_end))
        order = np.argsort(moments)
        self._moments, self._tables = moments[order], tables[order]

    def done(self, moment: int) -> Ints:
        """What the rank had done until a moment at which a row or step begins, or a step ends."""
        table: Ints = self._tables[np.searchsorted(self._moments, moment)]
        return table


def _walk(
    paths: Mapping[int, _Path],
    begins: Mapping[int, int],
    rank: int,
    moment: int,
    result: Counter[tuple[int, str]],
) -> None:
    done = paths[rank].done(moment)
    while True:
        path, start = paths[rank], begins[rank]
        k = int(np.searchsorted(path.end, moment, side="right")) - 1
        while k >= 0 and path.latest[k] >= moment:
            k -= 1  # nothing that begins here led here
        end = int(path.end[k]) if k >= 0 else start
        if end <= start:
            _add(result, rank, done - path.done(start))
            return
        _add(result, rank, done - path.at_end[k])
        latest = max(int(path.latest[k]), start)
        result[rank, "transfer"] += end - latest
        late = int(path.late[k])
        if latest == start:
            return
        rank, moment = (rank if late == NONE else late), latest
        done = paths[rank].done(moment)


def _add(result: Counter[tuple[int, str]], rank: int, parts: Ints) -> None:
    for k, name in enumerate(PARTS):
        if parts[k] > 0:
            # What still blocks here is not told by a matched communication's end.
            result[rank, "communication" if k in BLOCKED else name] += int(parts[k])
