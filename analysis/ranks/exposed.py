"""What each moment of a rank is: compute, communication that no compute hides, copies, idle.

A partition: segments are disjoint, follow one another without holes, and add up exactly. Why a
device is idle is told by the call that launched what runs next: it began after the gap did (the
time before it: the host was late; from it on: launch), or before (dependency: the work was queued
and had to wait for another stream, or for what lies between two kernels).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.intervals import Ints, moments, union
from ..model.ranks import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    DEPENDENCY,
    HOST,
    LAUNCH,
    SEGMENTS,
    UNKNOWN,
)

Kinds = npt.NDArray[np.int8]
NEVER = int(np.iinfo(np.int64).min)  # of a launch: not known


@dataclass(frozen=True)
class Activity:
    """Operations of a rank: start and end, and their kind (COMPUTE, COMMUNICATION or COPY).
    `launched`: when the call that launched each began, `NEVER` where that is not known; None for
    what the host computes itself."""

    start: Ints
    end: Ints
    kind: Kinds
    launched: Ints | None = None


def inside(moments: Ints, starts: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Whether each moment lies in one of the disjoint ordered intervals [start, end)."""
    if not len(starts):
        return np.zeros(len(moments), dtype=bool)
    at = np.searchsorted(starts, moments, side="right") - 1
    return (at >= 0) & (ends[np.maximum(at, 0)] > moments)


def layered(
    layers: Sequence[tuple[Ints, Ints]], low: int, high: int
) -> tuple[Ints, Ints, npt.NDArray[np.int64]]:
    """[low, high) cut where the topmost of the layers changes: starts, ends, and the first layer
    that covers each piece; the number of layers where none does."""
    unions = [union(starts, ends) for starts, ends in layers]
    ends = np.array([low, high], dtype=np.int64)
    points = moments(ends, *(np.clip(e, low, high) for u in unions for e in u))
    if len(points) < 2:
        return points[:0], points[:0], points[:0]
    starts = points[:-1]
    top = np.full(len(starts), len(layers))
    for number in range(len(layers) - 1, -1, -1):
        top[inside(starts, *unions[number])] = number
    first = np.concatenate(([True], top[1:] != top[:-1]))
    at = np.flatnonzero(first)
    return starts[at], np.append(starts[at[1:]], points[-1]), top[at]


def segments(activity: Activity, low: int, high: int) -> pa.Table:
    """The partition of [low, high) (`model.ranks.SEGMENTS`)."""
    layers = [
        (activity.start[activity.kind == kind], activity.end[activity.kind == kind])
        for kind in (COMPUTE, COMMUNICATION, COPY)
    ]
    starts, ends, top = layered(layers, low, high)
    kinds = top.astype(np.int8)  # the layers are in the order of the kinds
    idle = kinds == len(layers)
    if activity.launched is None:
        kinds[idle] = HOST
    else:
        starts, ends, kinds = _explained(starts, ends, kinds, idle, activity)
    columns = [pa.array(starts), pa.array(ends), pa.array(kinds)]
    return pa.table(columns, schema=SEGMENTS)


def _explained(
    starts: Ints, ends: Ints, kinds: Kinds, idle: npt.NDArray[np.bool_], activity: Activity
) -> tuple[Ints, Ints, Kinds]:
    """The idle pieces with their cause; one that has two is cut."""
    assert activity.launched is not None
    order = np.lexsort((activity.launched, activity.start))
    begins, calls = activity.start[order], activity.launched[order]
    gaps = np.flatnonzero(idle)
    following = np.searchsorted(begins, ends[gaps], side="left")
    ended = following >= len(begins)
    call = np.full(len(gaps), NEVER)
    call[~ended] = calls[following[~ended]]
    kinds = kinds.copy()
    late = call > starts[gaps]
    why = np.where(late, LAUNCH, np.where(call == NEVER, UNKNOWN, DEPENDENCY))
    kinds[gaps] = np.where(ended, HOST, why)
    # The host was late where the call began within the gap: cut there.
    cut = gaps[late]
    moment = np.minimum(call[late], ends[cut])
    whole = moment == ends[cut]
    kinds[cut[whole]] = HOST
    cut, moment = cut[~whole], moment[~whole]
    ends_of_first, kinds_of_first = ends.copy(), kinds.copy()
    ends_of_first[cut], kinds_of_first[cut] = moment, HOST
    order = np.argsort(np.concatenate((starts, moment)))
    return (
        np.concatenate((starts, moment))[order],
        np.concatenate((ends_of_first, ends[cut]))[order],
        np.concatenate((kinds_of_first, kinds[cut]))[order],
    )
