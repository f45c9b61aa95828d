"""Errors of tensors against eager's, and the first module that makes one of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .tensors import Placed

# A module's own error is this many times what it was given.
JUMP = 4.0
_MASK = -1e30  # finite and so low: what overflows is infinite, so it is a mask


class Error(NamedTuple):
    """Of one tensor: the norm of the difference over that of the reference, None where it is not
    finite or the reference is 0; and how many entries are NaN or infinite on one side alone."""

    relative: float | None
    nonfinite: int

    @property
    def size(self) -> float:
        """For comparing: infinite where values are not finite."""
        return math.inf if self.nonfinite else self.relative or 0.0


def error(value: Any, reference: Any) -> Error | None:
    """None where there is no value, or of another shape."""
    if value is None or value.shape != reference.shape:
        return None
    a, b = value.astype(np.float64), reference.astype(np.float64)
    # An engine's mask may have the least half where eager's has the least float.
    # One that the graph adds to a bias before a module may be added inside of eager's.
    masked = (b <= -60_000) | ((a <= _MASK) & np.isfinite(a))
    finite = np.isfinite(a) & np.isfinite(b)
    nonfinite = int(np.count_nonzero((np.isfinite(a) != np.isfinite(b)) & ~masked))
    if nonfinite:
        return Error(None, nonfinite)
    x, y = np.where(finite & ~masked, a, 0), np.where(finite & ~masked, b, 0)
    scale = float(np.linalg.norm(y))
    return Error(float(np.linalg.norm(x - y)) / scale if scale else None, 0)


def error_in(placed: Placed, found: Mapping[str, Error | None]) -> Error | None:
    """The largest error of what a module is given, of what is known of it; None: nothing is."""
    known = [e for t in placed.reads if (e := found.get(t)) is not None]
    return max(known, key=lambda e: e.size, default=None)


def jumps(given: Error | None, got: Error | None, least: float) -> bool:
    """Whether a module makes an error of its own: above what is allowed, and well above what it
    was given, which has to be known."""
    if given is None or got is None:
        return False
    return got.size > least and given.size < math.inf and got.size > JUMP * given.size


def first(
    order: Sequence[Placed], found: Mapping[str, Error | None], least: float
) -> Placed | None:
    """The first module, parts before the whole, that makes an error of its own."""
    for p in order:
        got = None if p.output is None else found.get(p.output)
        if jumps(error_in(p, found), got, least):
            return p
    return None


def of_tensors(
    values: Mapping[str, Any], references: Mapping[str, Any], names: Iterable[str]
) -> dict[str, Error | None]:
    """The errors of these tensors; None where a value is missing."""
    return {n: error(values.get(n), references[n]) for n in names}
