"""Sums of durations per layer and iteration, and their statistics, for millions of rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from ..core.stats import Stat, interval_rank, median, percentile

Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.int32]

_rank = lru_cache(maxsize=64)(interval_rank)


def per_layer(
    layer: Indices, iteration: Indices, duration: Integers, layers: int, iterations: int
) -> Iterator[Integers]:
    """Per layer its ns in each iteration, of the rows whose layer and iteration are not -1.

    A layer that did not run in an iteration took 0 ns there: that is known. One layer at a time,
    so that many layers and iterations need no more memory than their rows.
    """
    keep = (layer >= 0) & (iteration >= 0)
    if not keep.all():
        layer, iteration, duration = layer[keep], iteration[keep], duration[keep]
    narrow = layer.astype(np.int16) if layers <= np.iinfo(np.int16).max else layer
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(layer, minlength=layers))
    begin = 0
    for end in ends.tolist():
        rows = order[begin:end]
        begin = end
        total = np.zeros(iterations, np.int64)
        np.add.at(total, iteration[rows], duration[rows])
        yield total


def summarise(samples: Integers) -> Stat | None:
    """As `core.stats.summarise`, of an array; null when it is empty."""
    n = len(samples)
    if not n:
        return None
    ordered = np.sort(samples)
    k = _rank(n)
    chosen = {
        "p90": percentile(ordered, 0.90),  # type: ignore[arg-type]
        "p99": percentile(ordered, 0.99),  # type: ignore[arg-type]
        "median": median(ordered),  # type: ignore[arg-type]
        "minimum": ordered[0],
        "maximum": ordered[-1],
    }
    return Stat(
        n=n,
        low=None if k is None else int(ordered[k - 1]),
        high=None if k is None else int(ordered[n - k]),
        **{name: int(value) for name, value in chosen.items()},
    )
