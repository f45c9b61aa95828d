"""Steps replayed under an assumption: no straggler, free communication, perfect overlap.

Each rank is replayed by how far it is ahead of or behind what was recorded. What it did by itself
takes as long as it took; a communication begins when the last of its ranks does, and takes its
transfer; a rank that was blocked by it goes on when it ends. Where a communication was hidden, the
rank needs it no sooner than it ended. A device begins nothing before its host asked for it, and
the host takes as long as it took; where it waited, it goes on when its device is as far. With
nothing changed the replay gives what was recorded.
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
from .exposed import NEVER
from .imbalance import Average
from .matching import Matched
from .waits import Waits, repeated

_CALL, _BEGIN, _END, _SYNC, _STEP = range(5)
_LOCAL = [k for k in range(len(PARTS)) if k not in BLOCKED]
NO_STRAGGLER = "no straggler"


@dataclass(frozen=True)
class Recording:
    """What is replayed. `moments`: time, kind of event, rank, what of it (a row; of a wait of the
    host its start; of a step's edge the host's), and what the rank had done by itself until then,
    None for a call; in order. By row: `rank`, `instance`, `local` (what its rank had done
    by itself when it began), `blocked`. `members`: the rows of each instance."""

    moments: Sequence[tuple[int, int, int, int, int | None]]
    ledgers: Sequence[Ledger]
    rank: Ints
    instance: Ints
    local: Ints
    blocked: Ints
    members: Mapping[int, list[int]]
    waits: Waits


def recording(rank: Ints, matched: Matched, waits: Waits, ledgers: Sequence[Ledger]) -> Recording:
    """The events of all ranks in order of time; of equal times, a begin stands before an end."""
    moments: list[tuple[int, int, int, int, int | None]] = []
    local = np.zeros(len(rank), dtype=np.int64)
    blocked = np.zeros(len(rank), dtype=np.int64)
    for one in ledgers:
        mine = one.rows
        local[mine] = one.at_start[:, _LOCAL].sum(axis=1)
        blocked[mine] = one.blocked
        known = waits.known[mine]
        for kind, times, tables in (
            (_BEGIN, waits.start, one.at_start),
            (_END, waits.end, one.at_end),
        ):
            done = tables[known][:, _LOCAL].sum(axis=1).tolist()
            each = zip(times[mine[known]].tolist(), mine[known].tolist(), done, strict=True)
            moments += [(time, kind, one.rank, row, at) for time, row, at in each]
        edges = dict(zip(one.step_end.tolist(), one.at_step_end, strict=True))
        edges |= dict(zip(one.step_start.tolist(), one.at_step_start, strict=True))
        on_host = dict.fromkeys(edges, NEVER)
        if (host := one.host) is not None:
            on_host |= dict(zip(one.step_end.tolist(), host.step_end.tolist(), strict=True))
            on_host |= dict(zip(one.step_start.tolist(), host.step_start.tolist(), strict=True))
            calls = zip(host.issued[known].tolist(), mine[known].tolist(), strict=True)
            moments += [(time, _CALL, one.rank, row, None) for time, row in calls]
            at = host.at_sync_end[:, _LOCAL].sum(axis=1).tolist()
            waited = zip(host.sync_end.tolist(), host.sync_start.tolist(), at, strict=True)
            moments += [(end, _SYNC, one.rank, start, done) for end, start, done in waited]
        moments += [
            (edge, _STEP, one.rank, min(on_host[edge], edge), int(table[_LOCAL].sum()))
            for edge, table in edges.items()
        ]
    moments.sort(key=lambda m: m[:4])
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
    ahead: dict[int, int] = defaultdict(int)  # of each device
    hosts: dict[int, int] = defaultdict(int)
    called: dict[int, int] = {}
    done: dict[int, int] = {}
    began: dict[int, int] = {}
    edges: dict[int, list[int]] = defaultdict(list)
    columns = (recorded.waits.latest, recorded.blocked, recorded.instance)
    latest_of, blocked, instance = (column.tolist() for column in columns)
    for time, kind, rank, row, local in recorded.moments:
        paced = faster is not None and rank == faster.rank  # its host is as fast as it has to be
        if faster is not None and paced and local is not None:
            ahead[rank] -= faster.less(time, local - done.get(rank, local))
            done[rank] = local
        if kind == _STEP:
            edge = time + ahead[rank]
            edges[rank].append(edge if paced or row == NEVER else max(edge, row + hosts[rank]))
        elif kind == _CALL:
            called[row] = time + hosts[rank]
        elif kind == _SYNC:
            hosts[rank] = max(time + ahead[rank], row + hosts[rank]) - time
        elif kind == _BEGIN:
            if not paced and row in called:
                ahead[rank] = max(ahead[rank], called[row] - time)
            began[row] = time + ahead[rank]
        else:
            took = time - latest_of[row]
            if took < 0:  # it ended before a peer began: a send that did not wait
                continue
            latest = max([began[r] for r in recorded.members[instance[row]]])
            ready = time + ahead[rank] - blocked[row]
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
        found = [_averaged(NO_STRAGGLER, step_lengths(edges, ledgers), as_it_was, average)]
    edges = replay(recorded, transfers=False)
    found.append(_averaged("free communication", step_lengths(edges, ledgers), as_it_was))
    found.append(_overlapped(recorded, ledgers, as_it_was))
    return found


def _averaged(
    name: str, by_step: Sequence[int], as_it_was: Sequence[int], average: Average = median
) -> WhatIf:
    kept = _kept(by_step, as_it_was)
    now, unchanged = (round(average(x)) if x else 0 for x in (kept, as_it_was))
    return WhatIf(name, now, unchanged, kept)


def _kept(by_step: Sequence[int], as_it_was: Sequence[int]) -> list[int]:
    """The steps, none longer than it was. A step that begins earlier than its hosts can follow is
    longer: what it loses, the steps before it had saved in vain, the latest first."""
    result, lost = [], 0
    for now, was in reversed(list(zip(by_step, as_it_was, strict=True))):
        saved = was - now - lost
        lost = max(-saved, 0)
        result.append(was - max(saved, 0))
    return result[::-1]


def _overlapped(recorded: Recording, ledgers: Sequence[Ledger], as_it_was: Sequence[int]) -> WhatIf:
    """Every transfer hidden as far as there is something to hide it behind: a step lasts as long as
    the slowest rank computes, its transfers take, or its host does, whichever is longest."""
    waits = recorded.waits
    by_step: dict[int | None, list[int]] = defaultdict(list)
    for one in ledgers:
        start, end = waits.start[one.rows], waits.end[one.rows]
        counted = waits.known[one.rows] & ~repeated(start, end)
        moved = np.where(counted, end - np.minimum(waits.latest[one.rows], end), 0)
        for k, number in enumerate(one.iterations):
            inside = (start >= one.step_start[k]) & (start < one.step_end[k])
            local = int(one.parts[k][_LOCAL].sum())
            hosts = 0 if one.host is None else one.host.at_step_end[k] - one.host.at_step_start[k]
            by_step[number].append(max(local, int(moved[inside].sum()), int(hosts)))
    slowest = [max(v) for v in by_step.values()]
    lengths = [min(a, b) for a, b in zip(slowest, as_it_was, strict=True)]
    return _averaged("perfect overlap", lengths, as_it_was)


def as_the_others(recorded: Recording, slow: int) -> Faster:
    """A rank that takes, from each of its group's collectives to the next, no longer by itself than
    the median of the others does, or their hosts do to ask for it. The group is the one that it
    meets in most."""
    moments, saved = [], []
    hosts = {one.rank: one.host for one in recorded.ledgers}
    place = {int(row): k for one in recorded.ledgers for k, row in enumerate(one.rows.tolist())}
    previous = {
        one.rank: int(one.at_step_start[0][_LOCAL].sum())
        for one in recorded.ledgers
        if len(one.at_step_start)
    }
    worked = {r: int(h.at_step_start[0]) for r, h in hosts.items() if h and len(h.at_step_start)}
    for row in _anchors(recorded, slow):
        members = recorded.members[int(recorded.instance[row])]
        device: dict[int, int] = {}
        took: dict[int, int] = {}
        for r in members:
            rank, local = int(recorded.rank[r]), int(recorded.local[r])
            if rank in previous:
                took[rank] = device[rank] = local - previous[rank]
            previous[rank] = local
            host = hosts[rank]
            if host is not None and rank in worked:
                at = int(host.at_issue[place[r]])
                took[rank] = max(took.get(rank, 0), at - worked[rank])
                worked[rank] = at
        mine, by_device = took.pop(slow, 0), device.get(slow, 0)
        spare = max(mine - float(np.median(list(took.values()))), 0.0) if took else 0.0
        saved.append(min(spare / by_device, 1.0) if by_device else 0.0)
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
