"""Which communications of several ranks are one: by group and sequence number, else by order.

A collective is one instance: a row of each rank of its group. Rows with a sequence number belong to
the same one where group and number agree. Without numbers (torch before 2.12, gloo) the k-th row of
a group within a step is the k-th of every rank, where all ranks that are there have the same
operations in the same order in that step; otherwise none of that step is matched. A send is matched
with the recv of its peer: the k-th to a rank with the k-th there from this one, in a group and
step. What has no partner keeps instance -1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.intervals import Ints
from ...core.tables import by_value
from ..model.ranks import GROUPED, POINT_TO_POINT, Group

SEQUENCE, ORDER = "sequence", "order"
_KEYS = ("rank", "group", "operation", "sequence", "iteration", "peer", "start", "end", "issued")


@dataclass(frozen=True)
class Matched:
    """Per row of the collectives of all ranks: its instance (-1: none) and by what it was matched
    ("" : not). `complete`: whether every rank of the group is among the rows. `notes`: why groups
    of rows stayed without partners."""

    instance: Ints
    by: Sequence[str]
    complete: Sequence[bool]
    notes: Sequence[str]

    @cached_property
    def instances(self) -> Mapping[int, Ints]:
        """The rows of each instance, in its order."""
        return {number: rows for number, rows in by_value(self.instance) if number >= 0}


def together(captures: Sequence[tuple[int, pa.Table]]) -> pa.Table:
    """The collectives of all ranks as one table, with the column `rank` and `source_row`."""
    tables = []
    for rank, table in captures:
        columns = [pa.repeat(pa.scalar(rank, pa.int64()), len(table))]
        tables.append(table.append_column("rank", columns[0]))
    return pa.concat_tables(tables)


def match(rows: pa.Table, groups: Mapping[str, Group], ranks: Sequence[int]) -> Matched:
    """The instances of all rows; `ranks` are those whose captures are there."""
    n = len(rows)
    instance = np.full(n, -1, dtype=np.int64)
    by = [""] * n
    complete = [False] * n
    notes: list[str] = []
    columns = {name: rows[name].to_pylist() for name in _KEYS}
    places: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i in range(n):
        if columns["group"][i] is not None and columns["start"][i] is not None:
            places[columns["group"][i]][columns["rank"][i]].append(i)
    count = 0
    for key, of_rank in places.items():
        group = groups.get(key)
        members = _members(group, ranks)
        alone = group is not None and group.ranks is not None and len(group.ranks) == 1
        for partners, how, whole in (
            *_collectives(of_rank, members, columns, notes, key),
            *_sends(of_rank, columns),
        ):
            if len(partners) < 2 and not alone:
                continue
            for i in partners:
                instance[i], by[i], complete[i] = count, how, whole
            count += 1
    return Matched(instance, by, complete, notes)


def _members(group: Group | None, ranks: Sequence[int]) -> list[int] | None:
    """The ranks of a group whose captures are there; None where its ranks are not known."""
    if group is None or group.ranks is None:
        return None
    return [r for r in group.ranks if r in set(ranks)]


Partners = tuple[list[int], str, bool]


def _collectives(
    of_rank: Mapping[int, list[int]],
    members: list[int] | None,
    columns: Mapping[str, list[Any]],
    notes: list[str],
    key: str,
) -> list[Partners]:
    """Rows that are one collective, for one group."""
    there = members if members is not None else sorted(of_rank)
    result: list[Partners] = []
    numbered: dict[tuple[int, str], list[int]] = defaultdict(list)
    ordered: dict[Any, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    twice: set[tuple[int, str]] = set()
    for rank, mine in of_rank.items():
        seen: set[tuple[int, str]] = set()
        for i in sorted(mine, key=lambda i: columns["issued"][i] or columns["start"][i]):
            operation = columns["operation"][i]
            if operation in POINT_TO_POINT or operation == GROUPED:
                continue
            number = columns["sequence"][i]
            if number is None:
                ordered[columns["iteration"][i]][rank].append(i)
                continue
            place = (number, operation)
            if place in seen:
                twice.add(place)
            seen.add(place)
            numbered[place].append(i)
    for place, partners in numbered.items():
        if place not in twice:
            result.append((partners, SEQUENCE, len(partners) == len(there)))
    for iteration, lists in ordered.items():
        names = {r: [columns["operation"][i] for i in lists.get(r, [])] for r in there}
        distinct = {tuple(v) for v in names.values()}
        if len(distinct) == 1:
            present = [lists[r] for r in there if r in lists]
            whole = len(present) == len(there)
            result += [(list(rows), ORDER, whole) for rows in zip(*present, strict=True)]
        else:
            counts = ", ".join(f"rank {r} {len(v)}" for r, v in list(names.items())[:8])
            step = "" if iteration is None else f" in step {iteration}"
            notes.append(
                f"the collectives of group {key}{step} have no numbers and differ between ranks "
                f"({counts}): none of them is matched"
            )
    return result


def _sends(of_rank: Mapping[int, list[int]], columns: Mapping[str, list[Any]]) -> list[Partners]:
    """Pairs of a send and its recv."""
    lanes: dict[tuple[Any, int, int], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for rank, mine in of_rank.items():
        for i in sorted(mine, key=lambda i: columns["issued"][i] or columns["start"][i]):
            operation, peer = columns["operation"][i], columns["peer"][i]
            if operation not in POINT_TO_POINT or peer is None:
                continue
            lane = (rank, peer) if operation == "send" else (peer, rank)
            lanes[columns["iteration"][i], *lane][operation == "recv"].append(i)
    result: list[Partners] = []
    for sends, recvs in lanes.values():
        if len(sends) == len(recvs):
            result += [([a, b], ORDER, True) for a, b in zip(sends, recvs, strict=True)]
    return result
