"""Which slices share a line: those of one lane lie one in the other or one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .tracks import Ints

Within = Callable[[int, int], bool]


def apart(_inner: int, _outer: int) -> bool:
    """No slice may lie on another: what overlaps gets a lane of its own (kernels)."""
    return False


def nested(_inner: int, _outer: int) -> bool:
    """A slice may lie on any that holds it (operators, calls, ranges of one thread)."""
    return True


def lanes(start: Ints, end: Ints, within: Within = nested, depth: Ints | None = None) -> list[Ints]:
    """The slices by lane, each in drawing order: an outer one before those that it holds.

    `within(inner, outer)` says whether a slice may lie on another that holds it in time. Of equal
    times the one of lower `depth`, then the first in the arrays, is the outer. Every slice is on
    exactly one lane, the first on which it fits.
    """
    keys = [np.arange(len(start)), -end, start]
    if depth is not None:
        keys.insert(1, depth)
    found: list[list[int]] = []
    open_: list[list[int]] = []
    starts, ends = start.tolist(), end.tolist()
    for i in np.lexsort(keys).tolist():
        begun, over = starts[i], ends[i]

        def fits(stack: list[int], i: int = i, begun: int = begun, over: int = over) -> bool:
            while stack and ends[stack[-1]] <= begun:
                stack.pop()
            return not stack or (over <= ends[stack[-1]] and within(i, stack[-1]))

        at = next((n for n, stack in enumerate(open_) if fits(stack)), len(open_))
        if at == len(open_):
            open_.append([])
            found.append([])
        found[at].append(i)
        open_[at].append(i)
    return [np.asarray(lane, np.int64) for lane in found]
