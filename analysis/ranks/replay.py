"""Steps replayed under an assumption: no straggler, free communication, perfect overlap.

Each rank is replayed by how far it is ahead of or behind what was recorded. What it did by itself
takes as long as it took; a communication begins when the last of its ranks does, and takes its
transfer; a rank that was blocked by it goes on when it ends. Where a communication was hidden, the
rank needs it no sooner than it ended. With nothing changed the replay gives what was recorded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from ...core.intervals import Ints
from ..model.ranks import PARTS, Straggler, WhatIf
from .accounting import BLOCKED, Ledger
from .imbalance import Average
from .matching import Matched
from .waits import Waits

_ISSUE, _END, _STEP = range(3)
_LOCAL = [k for k in range(len(PARTS)) if k not in BLOCKED]


@dataclass(frozen=True)
class Recording:
    """What is replayed. `moments`: time, kind of event, rank, row or step, and what the rank had
    done by itself until then; in order. By row: `rank`, `instance`, `local` (what its rank had done
    by itself when it began), `blocked`. `members`: the rows of each instance."""

    moments: Sequence[tuple[int, int, int, int, int]]
    ledgers: Sequence[Ledger]
    rank: Ints
    instance: Ints
    local: Ints
    blocked: Ints
    members: Mapping[int, list[int]]
    waits: Waits


def recording(rank: Ints, matched: Matched, waits: Waits, ledgers: Sequence[Ledger]) -> Recording:
    """The events of all ranks in order of time; of equal times, a begin stands before an end."""
    moments: list[tuple[int, int, int, int, int]] = []
    local = np.zeros(len(rank), dtype=np.int64)
    blocked = np.zeros(len(rank), dtype=np.int64)
    for one in ledgers:
        mine = one.rows
        local[mine] = one.at_start[:, _LOCAL].sum(axis=1)
        blocked[mine] = one.blocked
        known = waits.known[mine]
        for kind, times, tables in (
            (_ISSUE, waits.start, one.at_start),
            (_END, waits.end, one.at_end),
        ):
            done = tables[known][:, _LOCAL].sum(axis=1).tolist()
            each = zip(times[mine[known]].tolist(), mine[known].tolist(), done, strict=True)
            moments += [(time, kind, one.rank, row, at) for time, row, at in each]
        edges = dict(zip(one.step_start.tolist(), one.at_step_start, strict=True))
        edges |= dict(zip(one.step_end.tolist(), one.at_step_end, strict=True))
        moments += [
            (edge, _STEP, one.rank, k, int(edges[edge][_LOCAL].sum()))
            for k, edge in enumerate(sorted(edges))
        ]
    moments.sort()
    members = {number: rows.tolist() for number, rows in matched.instances.items()}
    return Recording(moments, ledgers, rank, matched.instance, local, blocked, members, waits)


@dataclass(frozen=True)
class Faster:
    """How much faster a rank is by itself: up to each moment, `saved` of what it does."""

    rank: int
    moments: Ints
    saved: Sequence[float]

    def less(self, until: int, done: int) -> int:
        """How much less time it takes for what was done before a moment."""
        k = int(np.searchsorted(self.moments, until, side="left"))
        return round(done * self.saved[k]) if k < len(self.saved) else 0


def replay(
    recorded: Recording, *, transfers: bool = True, faster: Faster | None = None
) -> dict[int, list[int]]:
    """The moments of each rank's step edges in the replay; without `transfers` these take no
    time."""
    ahead: dict[int, int] = defaultdict(int)
    done: dict[int, int] = {}
    began: dict[int, int] = {}
    edges: dict[int, list[int]] = defaultdict(list)
    latest_of = recorded.waits.latest
    for time, kind, rank, row, local in recorded.moments:
        if faster is not None and rank == faster.rank:
            ahead[rank] -= faster.less(time, local - done.get(rank, local))
            done[rank] = local
        if kind == _STEP:
            edges[rank].append(time + ahead[rank])
        elif kind == _ISSUE:
            began[row] = time + ahead[rank]
        else:
            took = time - int(latest_of[row])
            if took < 0:  # it ended before a peer began: a send that did not wait
                continue
            latest = max(began[r] for r in recorded.members[int(recorded.instance[row])])
            ready = time + ahead[rank] - int(recorded.blocked[row])
            ahead[rank] = max(latest + (took if transfers else 0), ready) - time
    return edges


def step_lengths(edges: Mapping[int, Sequence[int]], ledgers: Sequence[Ledger]) -> list[int]:
    """The mean length, over ranks, of each step."""
    lengths: dict[int | None, list[int]] = defaultdict(list)
    for one in ledgers:
        order = sorted({*one.step_start.tolist(), *one.step_end.tolist()})
        moment = dict(zip(order, edges[one.rank], strict=True))
        for k, number in enumerate(one.iterations):
            low, high = moment[int(one.step_start[k])], moment[int(one.step_end[k])]
            lengths[number].append(high - low)
    return [round(sum(v) / len(v)) for v in lengths.values()]


def what_if(recorded: Recording, straggler: Straggler | None) -> list[WhatIf]:
    """A step under each assumption: the median, as what the last one would have saved may end after
    it."""
    ledgers = recorded.ledgers
    as_it_was = step_lengths(replay(recorded), ledgers)

    found = []
    if straggler is not None:
        edges = replay(recorded, faster=as_the_others(recorded, straggler.rank))
        average = median if straggler.usual else fmean
        found = [_averaged("no straggler", step_lengths(edges, ledgers), as_it_was, average)]
    edges = replay(recorded, transfers=False)
    found.append(_averaged("free communication", step_lengths(edges, ledgers), as_it_was))
    found.append(_overlapped(recorded, ledgers, as_it_was))
    return found


def _averaged(
    name: str, by_step: Sequence[int], as_it_was: Sequence[int], average: Average = median
) -> WhatIf:
    now, unchanged = (round(average(x)) if x else 0 for x in (by_step, as_it_was))
    return WhatIf(name, now, unchanged, by_step)


def _overlapped(recorded: Recording, ledgers: Sequence[Ledger], as_it_was: Sequence[int]) -> WhatIf:
    """Every transfer hidden as far as there is something to hide it behind: a step lasts as long as
    the slowest rank computes, or its transfers take, whichever is longer."""
    waits = recorded.waits
    by_step: dict[int | None, list[int]] = defaultdict(list)
    for one in ledgers:
        start, end = waits.start[one.rows], waits.end[one.rows]
        moved = np.where(waits.known[one.rows], end - np.minimum(waits.latest[one.rows], end), 0)
        for k, number in enumerate(one.iterations):
            inside = (start >= one.step_start[k]) & (start < one.step_end[k])
            local = int(one.parts[k][_LOCAL].sum())
            by_step[number].append(max(local, int(moved[inside].sum())))
    slowest = [max(v) for v in by_step.values()]
    lengths = [min(a, b) for a, b in zip(slowest, as_it_was, strict=True)]
    return _averaged("perfect overlap", lengths, as_it_was)


def as_the_others(recorded: Recording, slow: int) -> Faster:
    """A rank that takes, from each of its group's collectives to the next, no longer by itself than
    the median of the others does. The group is the one that it meets in most."""
    moments, saved = [], []
    previous = {
        one.rank: int(one.at_step_start[0][_LOCAL].sum())
        for one in recorded.ledgers
        if len(one.at_step_start)
    }
    for row in _anchors(recorded, slow):
        members = recorded.members[int(recorded.instance[row])]
        took = {}
        for r in members:
            rank, local = int(recorded.rank[r]), int(recorded.local[r])
            if rank in previous:
                took[rank] = local - previous[rank]
            previous[rank] = local
        mine = took.pop(slow, None)
        spare = max(mine - float(np.median(list(took.values()))), 0.0) if mine and took else 0.0
        saved.append(spare / mine if mine else 0.0)
        moments.append(int(recorded.waits.start[row]))
    return Faster(slow, np.array(moments, dtype=np.int64), saved)


def _anchors(recorded: Recording, slow: int) -> list[int]:
    """The rank's rows among the ranks that it meets most often, in order."""
    rows: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row in np.flatnonzero((recorded.rank == slow) & recorded.waits.known).tolist():
        members = recorded.members[int(recorded.instance[row])]
        if len(members) > 1:
            rows[tuple(sorted(recorded.rank[members].tolist()))].append(row)
    most = max(rows.values(), key=len, default=[])
    return sorted(most, key=lambda row: int(recorded.waits.start[row]))
