"""Which group a communication of gloo is of, where its trace does not say.

A process group's collectives run on threads of its own, made when the group is: the threads of a
rank, in order, are of its groups in order, at most `THREADS` of each. Where that leaves several
readings, shapes decide (a gathered tensor is as many times its input as the group has ranks), and
the other ranks: all members of a group have the same collectives in the same order. Sends and
receives run on the caller's thread: theirs is the kind of group in which each send has a receive.
What may still be of groups of different ranks stays unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..model.ranks import COLLECTIVES, POINT_TO_POINT, Group, Identity

THREADS = 2  # of a process group, by default (ProcessGroupGloo::Options)
MOST_READINGS = 20_000

_Signature = tuple[Any, ...]


@dataclass(frozen=True)
class _Reading:
    """A group for each thread, and what each group then did."""

    threads: Mapping[int, Group]
    did: Mapping[str, _Signature]


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
    readings = {r: list(_readings(rows[r], every[r])) for r in open_}
    _agree(readings, every)
    for rank, left in readings.items():
        for row in rows[rank]:
            groups = {reading.threads[row["stream"]] for reading in left} if _open(row) else set()
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


def _readings(rows: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> Iterator[_Reading]:
    """All ways to give the threads of a rank to its groups that shapes allow."""
    mine: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for row in rows:
        if _open(row):
            mine[row["stream"]].append(row)
    several = [g for g in groups if g.ranks is None or len(g.ranks) > 1]
    sizes = {t: {r["group_size"] for r in of} - {None} for t, of in mine.items()}
    every = _in_order(sorted(mine), several, sizes)
    for chosen in islice(every, MOST_READINGS):
        did: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for thread, group in chosen.items():
            did[group.key] += mine[thread]
        yield _Reading(chosen, {key: _signature(of) for key, of in did.items()})


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


def _signature(rows: Sequence[Mapping[str, Any]]) -> _Signature:
    ordered = sorted(rows, key=lambda r: r["issued"] or r["start"])
    return tuple((r["iteration"], r["operation"], r["module"], r["bytes"]) for r in ordered)


def _agree(readings: dict[int, list[_Reading]], groups: Mapping[int, Sequence[Group]]) -> None:
    """Keep the readings by which all members of each group did the same."""
    members: dict[str, list[int]] = defaultdict(list)
    for rank in readings:
        for group in groups[rank]:
            members[group.key].append(rank)
    changed = True
    while changed:
        changed = False
        for key, ranks in members.items():
            common = set.intersection(*({r.did.get(key, ()) for r in readings[m]} for m in ranks))
            for m in ranks:
                kept = [r for r in readings[m] if r.did.get(key, ()) in common]
                if len(kept) < len(readings[m]):
                    readings[m], changed = kept, True


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
