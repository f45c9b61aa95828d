"""Ranges that cross, cut into pieces that nest.

Start/end ranges may overlap in any way, and push/pop ranges of different NVTX domains may cross
too. Where range A ends inside range B (which started inside A), B is cut at A's end. At every
moment the pieces that hold it belong to the same ranges, in the same order, as before.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ....core.errors import InputError

Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

# Real captures cut a range a few times at most; n ranges that all cross give n * n / 2 pieces.
MAX_PIECES_PER_RANGE = 64
MAX_PIECES = 20_000_000


def uncross(
    start: Integers, end: Integers, owner: Indices, crossing: npt.NDArray[np.bool_]
) -> tuple[Integers, Integers, Indices]:
    """Start, end and owner of the pieces, sorted by start and then by nesting.

    The ranges come sorted by the rule of `range_forest`; `crossing` marks at least the first range
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
