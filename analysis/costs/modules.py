"""Blocks: the smallest sets of modules whose time is exact.

Units are the module paths that operations name (also those of modules with children: the
residual addition of ``transformer.h.0`` is its own). Units that share a layer are linked; a
connected component is a block. No layer crosses a block's border, so its time needs no split, and
the blocks of one side add up to all its resolved time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from ...core.module_paths import ancestors, depth
from ...core.resolve.flow import connected
from ...core.stats import less
from ..model.comparison import Cost
from .iterations import Key, Sums, stat


def blocks(keys: Iterable[Key]) -> list[tuple[str, ...]]:
    """The connected components, each sorted, in the order of their first members."""
    linked = [key.modules for key in keys if key.modules]
    pairs = ((modules[0], other) for modules in linked for other in modules[1:])
    return [tuple(block) for block in connected(sorted({*chain(*linked)}), pairs)]


def bounds(
    sums: Sums, regions: Sequence[Collection[str]], total: int | None = None
) -> list[Cost | None]:
    """Cost of each region, a set of units (module paths that operations name); shares of `total`.

    None for a region that no operation of this side touches.
    """
    units = {u: i for i, u in enumerate(sums.units())}
    chosen = [i for i, k in enumerate(sums.keys) if k.modules is not None]
    if not chosen:
        return [None] * len(regions)
    serves = np.zeros((len(chosen), len(units)))
    for row, i in enumerate(chosen):
        serves[row, [units[m] for m in sums.keys[i].modules or ()]] = 1
    holds = np.zeros((len(regions), len(units)))
    for r, region in enumerate(regions):
        holds[r, [units[u] for u in region if u in units]] = 1
    members = holds @ serves.T  # how many of a key's modules lie in the region
    touched = members > 0
    whole = members == serves.sum(axis=1)
    # Integers below 2**53 (104 days in ns) are exact in float64, and so are their sums.
    times = sums.matrix[chosen].astype(np.float64)
    own, upper = (x.astype(np.float64) @ times for x in (whole, touched))
    reaches: list[bool] = np.any(touched, axis=1).tolist()
    result: list[Cost | None] = []
    for reached, low, high in zip(reaches, map(stat, own), map(stat, upper), strict=True):
        if reached and low is not None and high is not None:
            result.append(Cost(low, high, high.median / total if total else None))
        else:
            result.append(None)
    return result


def subtree_regions(modules: Sequence[str], units: Iterable[str]) -> list[list[str]]:
    """For every module, the units in its subtree."""
    found: dict[str, list[str]] = {m: [] for m in modules}
    for unit in units:
        for above in ancestors(unit):
            if above in found:
                found[above].append(unit)
    return [found[m] for m in modules]


def rows(
    side: Mapping[str, Any], sums: Sums, modules: Sequence[str], classes: Mapping[str, str | None]
) -> list[dict[str, Any]]:
    """Rows of the `modules` table for one side and phase.

    `side` holds the columns side, source, precision and phase. `own_x + shared_x` is the upper
    bound's x, for the median and both ends of the interval.
    """
    regions = subtree_regions(modules, sums.units())
    found = []
    for module, cost in zip(modules, bounds(sums, regions), strict=True):
        if cost is None:
            continue
        own, upper = cost.own, cost.upper
        found.append(
            {
                **side,
                "module": module,
                "module_class": classes.get(module),
                "depth": depth(module),
                "own_ns": own.median,
                "own_low_ns": own.low,
                "own_high_ns": own.high,
                "shared_ns": cost.shared,
                "shared_low_ns": less(upper.low, own.low),
                "shared_high_ns": less(upper.high, own.high),
                "iterations": own.n,
            }
        )
    return found
