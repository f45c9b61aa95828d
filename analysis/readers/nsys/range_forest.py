"""Which range holds a moment: ranges as a forest, looked up by binary search.

The rule. A range holds the moments t of its thread with start <= t < end. Of the ranges that hold
a moment, the innermost is the one that started last; of those that started together, the one that
ends first; then a push/pop range before a start/end range; then the later row of the capture.
The path is all of them in that order, outermost first. It is a total order, so each moment has
exactly one innermost range, also where start/end ranges overlap, and sums over innermost ranges
count nothing twice.

Ranges that cross (one starts inside another and ends after it) are cut where the other ends: the
pieces are nested again and all of a range's pieces stand for it (`uncross`).
All times are integer nanoseconds. Everything is vectorised over the ranges of one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ....core.errors import InputError

Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]
Flags = npt.NDArray[np.bool_]

# Real captures cut a range a few times at most; n ranges that all cross give n * n / 2 pieces.
MAX_PIECES_PER_RANGE = 64
MAX_PIECES = 20_000_000


@dataclass(frozen=True)
class Forest:
    """The ranges of one thread, nested.

    Arrays over pieces, sorted by the rule above (a parent before its children): `start`, `end`,
    `parent` (index of the piece around, -1 for none), `owner` (the caller's index of the range a
    piece belongs to). `levels`: indices of the pieces per depth, outermost first.
    """

    start: Integers
    end: Integers
    parent: Indices
    owner: Indices
    levels: tuple[Indices, ...]

    def innermost(self, moments: Integers) -> Indices:
        """Index of the innermost piece that holds each moment, -1 where none does."""
        piece = (np.searchsorted(self.start, moments, side="right") - 1).astype(np.int32)
        # The last piece that started is over in most of the misses; its parent may not be.
        at = np.flatnonzero(piece >= 0)
        while len(at):
            over = self.end[piece[at]] <= moments[at]
            at = at[over]
            piece[at] = self.parent[piece[at]]
            at = at[piece[at] >= 0]
        return piece

    def nearest(self, chosen: Flags) -> Indices:
        """Per piece the nearest chosen piece among itself and those around it; -1 for none."""
        result = np.full(len(self.start), -1, np.int32)
        for level, pieces in enumerate(self.levels):
            own = chosen[pieces]
            around = result[self.parent[pieces]] if level else np.int32(-1)
            result[pieces] = np.where(own, pieces, around)
        return result

    def outermost(self, chosen: Flags) -> Indices:
        """Per piece the outermost chosen piece among itself and those around it; -1 for none."""
        result = np.full(len(self.start), -1, np.int32)
        for level, pieces in enumerate(self.levels):
            own = np.where(chosen[pieces], pieces, -1)
            if level:
                around = result[self.parent[pieces]]
                own = np.where(around >= 0, around, own)
            result[pieces] = own
        return result


@dataclass(frozen=True)
class Nesting:
    """Paths of names: every piece of a forest has one, given by number.

    `parent[p]` is the number of the path around path p (-1 for none) and `name[p]` the code of
    its last name. Numbers are dense, so that few distinct paths stand for many ranges.
    """

    parent: list[int]
    name: list[int]

    def names(self, path: int) -> list[int]:
        """Codes of the names of a path, outermost first; empty for -1."""
        codes = []
        while path >= 0:
            codes.append(self.name[path])
            path = self.parent[path]
        return codes[::-1]


def plant(start: Integers, end: Integers, loose: Flags | None = None) -> Forest:
    """Nest the ranges of one thread.

    `loose` marks start/end ranges (for the order of ranges with equal times). Ranges that end at
    or before their start hold no moment and get no piece.
    """
    owner = np.flatnonzero(end > start).astype(np.int32)
    start, end = start[owner], end[owner]
    order = _order(start, end, None if loose is None else loose[owner])
    if order is not None:
        start, end, owner = start[order], end[order], owner[order]
    depth, parent, levels = _nest(start, end)
    inside = parent >= 0
    crossing = np.zeros(len(start), np.bool_)
    crossing[inside] = end[inside] > end[parent[inside]]
    if crossing.any():
        start, end, owner = uncross(start, end, owner, crossing)
        depth, parent, levels = _nest(start, end)
    del depth
    return Forest(start, end, parent, owner, levels)


def paths(forest: Forest, name: Indices) -> tuple[Indices, Nesting]:
    """The path of names of every piece; `name` holds the code of each piece's name."""
    number = np.full(len(forest.start), -1, np.int32)
    parents: list[int] = []
    names: list[int] = []
    width = int(name.max(initial=0)) + 2
    for level, pieces in enumerate(forest.levels):
        around = number[forest.parent[pieces]].astype(np.int64) if level else np.int64(-1)
        key = (around + 1) * width + name[pieces] + 1
        distinct, inverse = np.unique(key, return_inverse=True)
        number[pieces] = inverse + len(parents)
        parents.extend(int(k) // width - 1 for k in distinct)
        names.extend(int(k) % width - 1 for k in distinct)
    return number, Nesting(parents, names)


def _order(start: Integers, end: Integers, loose: Flags | None) -> Integers | None:
    """Indices that sort by the rule, None where the ranges are sorted already."""
    steps = np.diff(start)
    if (steps > 0).all():
        return None
    if (steps < 0).any():
        order = np.argsort(start, kind="stable")
        if (np.diff(start[order]) > 0).all():
            return order
    keys: Sequence[npt.NDArray[np.int64] | Flags] = (
        [-end, start] if loose is None else [~loose, -end, start]
    )
    return np.lexsort(keys)


def _nest(start: Integers, end: Integers) -> tuple[Indices, Indices, tuple[Indices, ...]]:
    """Depth, parent and pieces per depth of sorted, nested ranges.

    The depth is the number of ranges that started before and have not ended; the parent is the
    last range before of one depth less. Both are wrong where ranges cross, and then (and only
    then) some range ends after its parent.
    """
    n = len(start)
    ended = np.searchsorted(np.sort(end), start, side="right")
    depth = (np.arange(n) - ended).astype(np.int32)
    deepest = int(depth.max(initial=-1))
    narrow = depth.astype(np.int16) if deepest < np.iinfo(np.int16).max else depth
    by_depth = np.argsort(narrow, kind="stable").astype(np.int32)
    cuts = np.cumsum(np.bincount(depth, minlength=deepest + 1))[:-1]
    levels = tuple(np.split(by_depth, cuts)) if n else ()
    parent = np.full(n, -1, np.int32)
    for above, here in pairwise(levels):
        parent[here] = above[np.searchsorted(above, here) - 1]
    return depth, parent, levels


def join(forests: Sequence[Forest]) -> Forest:
    """Forests side by side as one (not for `innermost`: moments belong to one thread)."""
    if len(forests) == 1:
        return forests[0]
    if not forests:
        none, index = np.empty(0, np.int64), np.empty(0, np.int32)
        return Forest(none, none, index, index, ())
    offsets = np.cumsum([0, *(len(f.start) for f in forests)])[:-1]
    parent = [
        np.where(f.parent >= 0, f.parent + o, -1) for f, o in zip(forests, offsets, strict=True)
    ]
    levels = []
    for depth in range(max(len(f.levels) for f in forests)):
        here = [
            f.levels[depth] + o
            for f, o in zip(forests, offsets, strict=True)
            if depth < len(f.levels)
        ]
        levels.append(np.concatenate(here).astype(np.int32))
    return Forest(
        np.concatenate([f.start for f in forests]),
        np.concatenate([f.end for f in forests]),
        np.concatenate(parent).astype(np.int32),
        np.concatenate([f.owner for f in forests]).astype(np.int32),
        tuple(levels),
    )


def uncross(
    start: Integers, end: Integers, owner: Indices, crossing: npt.NDArray[np.bool_]
) -> tuple[Integers, Integers, Indices]:
    """Start, end and owner of the pieces, sorted by start and then by nesting.

    Start/end ranges may overlap in any way, and push/pop ranges of different NVTX domains may cross
    too. Where range A ends inside range B (which started inside A), B is cut at A's end. At every
    moment the pieces that hold it belong to the same ranges, in the same order, as before.

    The ranges come sorted by the rule; `crossing` marks at least the first range
    that crosses another in each group of ranges without a gap. Only such groups are walked
    through. Raises InputError where more pieces would come out than any capture needs.
    """
    # A new group begins where everything before has ended.
    reach = np.maximum.accumulate(end)
    begins = np.concatenate(([True], start[1:] >= reach[:-1]))
    group = np.cumsum(begins) - 1
    crossed = np.zeros(int(group[-1]) + 1, np.bool_)
    crossed[group[crossing]] = True
    walk = crossed[group]
    pieces = _cut(start[walk], end[walk], owner[walk])
    keep = ~walk
    new_start = np.concatenate((start[keep], pieces[0]))
    new_end = np.concatenate((end[keep], pieces[1]))
    new_owner = np.concatenate((owner[keep], pieces[2]))
    # Pieces with equal starts keep their nesting: the walk lists the outer one first.
    order = np.argsort(new_start, kind="stable")
    return new_start[order], new_end[order], new_owner[order]


def _cut(start: Integers, end: Integers, owner: Indices) -> tuple[Integers, Integers, Indices]:
    starts, ends = start.tolist(), end.tolist()
    limit = min(MAX_PIECES, 1000 + MAX_PIECES_PER_RANGE * len(starts))
    piece_start: list[int] = []
    piece_end: list[int] = []
    piece_range: list[int] = []
    # The stack, outermost first: pieces, and the earliest end among each and those below it.
    open_pieces: list[int] = []
    earliest: list[int] = []

    def begin(which: int, at: int) -> None:
        if len(piece_start) >= limit:
            raise InputError(
                "has ranges that cross each other without end", fix="capture fewer iterations"
            )
        open_pieces.append(len(piece_start))
        earliest.append(min(ends[which], earliest[-1]) if earliest else ends[which])
        piece_start.append(at)
        piece_end.append(ends[which])
        piece_range.append(which)

    def close_until(moment: int) -> None:
        """Take off what ends by `moment`; what lies above something that ended is cut there."""
        while open_pieces and earliest[-1] <= moment:
            first = earliest[-1]
            lowest = len(open_pieces) - 1
            while lowest and earliest[lowest - 1] == first:
                lowest -= 1
            above = open_pieces[lowest:]
            del open_pieces[lowest:], earliest[lowest:]
            for p in above:
                piece_end[p] = first
            for p in above:
                which = piece_range[p]
                if ends[which] > first:
                    begin(which, first)

    for which, at in enumerate(starts):
        close_until(at)
        begin(which, at)
    if starts:
        close_until(max(ends))
    kept = [i for i, (a, b) in enumerate(zip(piece_start, piece_end, strict=True)) if b > a]
    return (
        np.asarray([piece_start[i] for i in kept], np.int64),
        np.asarray([piece_end[i] for i in kept], np.int64),
        owner[np.asarray([piece_range[i] for i in kept], np.int64)],
    )
