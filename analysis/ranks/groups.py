"""Which group a communication of gloo is of, where its trace does not say.

A process group's collectives run on threads of its own, made when the group is: the threads of a
rank, in order, are of its groups in order, at most `THREADS` of each. Where that leaves several
readings, shapes decide (a gathered tensor is as many times its input as the group has ranks), and
the other ranks: all members of a group have the same collectives in the same order, and no member
ends one before all have begun it, whatever their clocks differ by. A group of one rank has threads,
too; what may be of it or of a group in which ranks meet again and again is of the latter. Sends and
receives run on the caller's thread: theirs is the kind of group in which each send has a receive.
What may still be of groups of different ranks stays unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.intervals import Ints
from ..model.ranks import COLLECTIVES, POINT_TO_POINT, Group, Identity

THREADS = 2  # of a process group, by default (ProcessGroupGloo::Options)
MOST_READINGS = 20_000
LEAST = 3  # fewer meetings may be chance
CLOCK_NS = 20_000  # what the clock of a trace is off by, within it

_Reading = Mapping[int, Group]  # a group for each thread


@dataclass(frozen=True)
class _Done:
    """What some threads of a rank did, in order, and when."""

    what: Sequence[tuple[Any, ...]]
    start: Ints
    end: Ints

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> _Done:
        ordered = sorted(rows, key=lambda r: r["issued"] or r["start"])
        return cls(
            [(r["iteration"], r["operation"], r["module"], r["bytes"]) for r in ordered],
            np.array([r["start"] for r in ordered], dtype=np.int64),
            np.array([r["end"] for r in ordered], dtype=np.int64),
        )

    def met(self, other: _Done) -> bool:
        """Whether both can be the same collectives: by some difference of the clocks, each overlaps
        its counterpart."""
        if self.what != other.what:
            return False
        if not self.what:
            return True
        least, most = (self.start - other.end).max(), (self.end - other.start).min()
        return bool(least <= most + CLOCK_NS)


@dataclass
class _Rank:
    """A rank with communications of unknown groups: its `groups`, the `rows` of each thread, and
    the `readings` that are left."""

    groups: Sequence[Group]
    rows: Mapping[int, Sequence[Mapping[str, Any]]]
    readings: list[_Reading]
    _done: dict[tuple[int, ...], _Done] = field(default_factory=dict)

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> _Rank:
        """With all readings that shapes allow; none where these are too many to look at."""
        mine: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
        for row in rows:
            if _open(row):
                mine[row["stream"]].append(row)
        sizes = {t: {r["group_size"] for r in of} - {None} for t, of in mine.items()}
        every: list[_Reading] = list(
            islice(_in_order(sorted(mine), groups, sizes), MOST_READINGS + 1)
        )
        return cls(groups, mine, every if len(every) <= MOST_READINGS else [])

    def did(self, threads: tuple[int, ...]) -> _Done:
        if threads not in self._done:
            self._done[threads] = _Done.of([row for t in threads for row in self.rows[t]])
        return self._done[threads]


def told(
    collectives: Mapping[int, pa.Table], identities: Sequence[Identity]
) -> dict[int, pa.Table]:
    """The collectives of each rank, with the groups that can be told."""
    every = {one.rank: one.groups for one in identities if one.rank is not None}
    open_ = [
        rank
        for rank, table in collectives.items()
        if pc.any(pc.and_(pc.is_null(table["group"]), pc.equal(table["known_by"], "order"))).as_py()
    ]
    if not open_:
        return dict(collectives)
    rows = {rank: table.to_pylist() for rank, table in collectives.items()}
    ranks = {r: _Rank.of(rows[r], every[r]) for r in open_}
    ranks = {r: one for r, one in ranks.items() if one.readings}
    _agree(ranks)
    _prefer_meetings(ranks)
    for rank, one in ranks.items():
        for row in rows[rank]:
            groups = {reading[row["stream"]] for reading in one.readings} if _open(row) else set()
            if len({g.ranks for g in groups}) == 1:
                _be(row, min(groups, key=lambda g: g.name))
    _messages(rows, every)
    return {r: pa.Table.from_pylist(rows[r], schema=COLLECTIVES) for r in collectives}


def _open(row: Mapping[str, Any]) -> bool:
    return (
        row["group"] is None
        and row["operation"] not in POINT_TO_POINT
        and row["stream"] is not None
    )


def _be(row: dict[str, Any], group: Group) -> None:
    row["group"] = group.key
    if group.ranks is not None:
        row["group_size"] = len(group.ranks)


def _in_order(
    threads: Sequence[int], groups: Sequence[Group], sizes: Mapping[int, set[int]]
) -> Iterator[dict[int, Group]]:
    if not threads:
        yield {}
        return
    for at, group in enumerate(groups):
        for count in range(1, THREADS + 1):
            first = threads[:count]
            fits = all(
                not sizes[t] or (group.ranks is not None and sizes[t] == {len(group.ranks)})
                for t in first
            )
            if len(first) == count and fits:
                for rest in _in_order(threads[count:], groups[at + 1 :], sizes):
                    yield dict.fromkeys(first, group) | rest


def _threads(reading: _Reading, key: str) -> tuple[int, ...]:
    return tuple(thread for thread, group in reading.items() if group.key == key)


def _members(ranks: Mapping[int, _Rank]) -> dict[str, list[_Rank]]:
    members: dict[str, list[_Rank]] = defaultdict(list)
    for one in ranks.values():
        for group in one.groups:
            members[group.key].append(one)
    return members


def _agree(ranks: Mapping[int, _Rank]) -> None:
    """Keep the readings by which all members of each group did the same, together."""
    members, changed = _members(ranks), True
    while changed:
        changed = False
        for key, of in members.items():
            choices = [{_threads(r, key) for r in one.readings} for one in of]
            done = [[one.did(t) for t in own] for one, own in zip(of, choices, strict=True)]
            for one, own in zip(of, choices, strict=True):
                fits = {
                    t for t in own if all(any(one.did(t).met(d) for d in other) for other in done)
                }
                if fits != own:
                    one.readings = [r for r in one.readings if _threads(r, key) in fits]
                    changed = True


def _prefer_meetings(ranks: Mapping[int, _Rank]) -> None:
    """Keep the readings by which most communications are of groups in which ranks meet."""
    shared = {key for key, of in _members(ranks).items() if len(of) > 1}
    for one in ranks.values():
        meetings = [
            sum(
                count
                for key in {g.key for g in reading.values()} & shared
                if (count := len(one.did(_threads(reading, key)).what)) >= LEAST
            )
            for reading in one.readings
        ]
        most = max(meetings, default=0)
        one.readings = [r for r, n in zip(one.readings, meetings, strict=True) if n == most]
    _agree(ranks)


def _messages(
    rows: Mapping[int, list[dict[str, Any]]], groups: Mapping[int, Sequence[Group]]
) -> None:
    """Give sends and receives without a group the kind of group in which they meet."""
    lost = [
        (rank, row)
        for rank, mine in rows.items()
        for row in mine
        if row["group"] is None and row["operation"] in POINT_TO_POINT and row["peer"] is not None
    ]
    kinds = {g.about for rank, _ in lost for g in groups[rank]}
    fitting: list[dict[int, Group]] = []
    for kind in sorted(kinds):
        own = {r: [g for g in of if g.about == kind and g.ranks] for r, of in groups.items()}
        if any(len(own[rank]) != 1 for rank, _ in lost):
            continue
        of_rank = {rank: own[rank][0] for rank, _ in lost}
        if _meet(lost, of_rank):
            fitting.append(of_rank)
    if not fitting or len({tuple(sorted((r, g.ranks) for r, g in f.items())) for f in fitting}) > 1:
        return
    for rank, row in lost:
        group = fitting[0][rank]
        assert group.ranks is not None
        row["peer"] = group.ranks[row["peer"]]
        _be(row, group)


def _meet(lost: Sequence[tuple[int, Mapping[str, Any]]], of_rank: Mapping[int, Group]) -> bool:
    """Whether each send has its receive where the peers are numbers within these groups."""
    ways: Counter[tuple[str, int, int]] = Counter()
    for rank, row in lost:
        ranks = of_rank[rank].ranks
        if ranks is None or row["peer"] >= len(ranks) or ranks[row["peer"]] == rank:
            return False
        peer = ranks[row["peer"]]
        way = (rank, peer) if row["operation"] == "send" else (peer, rank)
        ways[(row["operation"], *way)] += 1
    there = set(of_rank)
    return all(
        ways["send", a, b] == ways["recv", a, b]
        for _, a, b in list(ways)
        if a in there and b in there
    )
