"""A step of all ranks on one clock, in pieces of equal length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from ...core.intervals import Measure
from ..model.ranks import PARTS, Clock
from .matching import Matched
from .waits import Waits

PIECES = 400
MOST_STEPS = 12
MOST_ENDS = 48

Window = tuple[int | None, int, int]


def windows(
    steps: Mapping[int, pa.Table], clocks: Mapping[int, Clock], common: Sequence[int | None]
) -> list[Window]:
    """Iteration, earliest start and latest end of the steps that are shown: all, or evenly some."""
    chosen = common
    if len(common) > MOST_STEPS:
        places = np.linspace(0, len(common) - 1, MOST_STEPS).round().astype(int)
        chosen = [common[i] for i in dict.fromkeys(places.tolist())]
    result = []
    for number in chosen:
        low, high = [], []
        for rank, table in steps.items():
            offset = clocks[rank].offset
            for row in table.to_pylist():
                if number is None or row["iteration"] == number:
                    low.append(row["start"] - offset)
                    high.append(row["end"] - offset)
        result.append((number, min(low), max(high)))
    return result


def pieces(measures: Sequence[Measure], window: Window) -> list[int]:
    """The part that prevails in each piece of a window; -1 where nothing is known."""
    _, low, high = window
    edges = np.linspace(low, high, PIECES + 1).astype(np.int64)
    each = np.stack([np.diff(m.until(edges)) for m in measures[: len(PARTS)]])
    first = each.argmax(axis=0)
    result: list[int] = np.where(each.max(axis=0) > 0, first, -1).tolist()
    return result


def ends(matched: Matched, waits: Waits, shown: Sequence[Window]) -> list[list[int]]:
    """When collectives ended, by window: those that joined the most ranks, of these the longest
    waits."""
    wait, every = waits.wait, []
    for members in matched.instances.values():
        if len(members) > 1:
            first = int(waits.end[members[0]])
            moment = first + round(float((waits.end[members] - first).mean()))
            every.append((-len(members), -int(wait[members].max()), moment))
    every.sort()
    return [_of_most([e for e in every if low <= e[2] <= high]) for _, low, high in shown]


def _of_most(found: Sequence[tuple[int, int, int]]) -> list[int]:
    return sorted(moment for n, _, moment in found[:MOST_ENDS] if n == found[0][0])
