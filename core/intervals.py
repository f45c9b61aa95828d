"""Unions of intervals, as columns of starts and ends: what runs at the same time counts once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def union(starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The union of intervals as disjoint intervals in order: their starts and ends.

    An interval that ends where it starts, or before, is none.
    """
    some = ends > starts
    starts, ends = starts[some], ends[some]
    if not len(starts):
        return starts, ends
    order = np.argsort(starts, kind="stable")
    starts, until = starts[order], np.maximum.accumulate(ends[order])
    first = np.concatenate(([True], starts[1:] > until[:-1]))
    last: npt.NDArray[np.bool_] = np.concatenate((first[1:], [True]))
    return starts[first], until[last]


def length(starts: Ints, ends: Ints) -> int:
    """How long the union of intervals is."""
    starts, ends = union(starts, ends)
    return int((ends - starts).sum())


def covered(starts: Ints, ends: Ints, low: int, high: int) -> int:
    """How much of [low, high] disjoint ordered intervals cover."""
    return int(np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0).sum())
