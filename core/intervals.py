"""Unions of intervals, as columns of starts and ends: what runs at the same time counts once."""

from __future__ import annotations

from collections.abc import Sequence

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


def moments(*parts: Ints) -> Ints:
    """The distinct values of parts that are in order, in order."""
    # A stable sort merges what is in order already.
    values = np.sort(np.concatenate(parts), kind="stable")
    return values[np.concatenate(([True], values[1:] != values[:-1]))] if len(values) else values


def length(starts: Ints, ends: Ints) -> int:
    """How long the union of intervals is."""
    starts, ends = union(starts, ends)
    return int((ends - starts).sum())


def covered(starts: Ints, ends: Ints, low: int, high: int) -> int:
    """How much of [low, high] disjoint ordered intervals cover."""
    return int(np.maximum(np.minimum(ends, high) - np.maximum(starts, low), 0).sum())


class Measure:
    """How much of a set of disjoint ordered intervals lies between two moments."""

    def __init__(self, starts: Ints, ends: Ints) -> None:
        self._starts, self._ends = starts, ends
        self._before = np.concatenate(([0], np.cumsum(ends - starts))).astype(np.int64)

    def until(self, moments: Ints | Sequence[int]) -> Ints:
        """What lies before each moment."""
        at = np.asarray(moments, dtype=np.int64)
        if not len(self._starts):
            return np.zeros(len(at), dtype=np.int64)
        last = np.maximum(np.searchsorted(self._starts, at) - 1, 0)
        part = np.clip(at - self._starts[last], 0, self._ends[last] - self._starts[last])
        done: Ints = self._before[last] + part
        return done

    def between(self, low: Ints | Sequence[int], high: Ints | Sequence[int]) -> Ints:
        """What lies between each low and high; 0 where high is before low."""
        length: Ints = np.maximum(self.until(high) - self.until(low), 0)
        return length
