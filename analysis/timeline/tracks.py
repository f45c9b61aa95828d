"""What a timeline is made of: groups (one per side) of tracks of slices or of counter values.

Times are integer nanoseconds of the capture's own clock until they are written. A slice has a
name, arguments that many slices share (`about`) and integers of its own (`own`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
NULL = int(np.iinfo(np.int64).min)  # in `own`: not known, so not written

Value = str | int | float | bool | Sequence[str]
About = Mapping[str, Value]


@dataclass(frozen=True)
class Flows:
    """Arrows: slice i has the ids ``ids[offsets[i]:offsets[i + 1]]``."""

    offsets: Ints
    ids: Ints


@dataclass(frozen=True)
class Slices:
    """Slices as columns. `name` and `about` are codes into `names` and `abouts`; `opens` are the
    arrows that leave a slice; each column of `closes` has one that ends in it (`NULL` for none)."""

    start: Ints
    end: Ints
    name: Ints
    names: Sequence[str]
    about: Ints
    abouts: Sequence[About]
    own: Mapping[str, Ints] = field(default_factory=dict)
    opens: Flows | None = None
    closes: Sequence[Ints] = ()

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class Values:
    """Values of a counter: each holds from its time to the next."""

    time: Ints
    value: npt.NDArray[np.float64]
    unit: str


@dataclass(frozen=True)
class Track:
    """One row of the timeline: slices in lanes (those of one lane nest), or a counter.

    `lanes[i]`: indices of the slices of lane i in drawing order. `below`: tracks under this one.
    """

    name: str
    description: str = ""
    slices: Slices | None = None
    lanes: Sequence[Ints] = ()
    values: Values | None = None
    below: Sequence[Track] = ()

    def starts(self) -> int | None:
        """The earliest time on this track or below it; None where it is empty."""
        starts = [b for t in self.below if (b := t.starts()) is not None]
        if self.slices is not None and len(self.slices):
            starts.append(int(self.slices.start.min()))
        if self.values is not None and len(self.values.time):
            starts.append(int(self.values.time.min()))
        return min(starts, default=None)


@dataclass(frozen=True)
class Group:
    """One side: its tracks, when its first measured operation began (`zero`), and notes on it
    (each one line; `facts` go into the file)."""

    label: str
    zero: int
    tracks: Sequence[Track]
    facts: Mapping[str, Any]
    notes: Sequence[str] = ()

    def before(self) -> int:
        """How long before `zero` its first event is."""
        starts = [s for t in self.tracks if (s := t.starts()) is not None]
        return max(0, self.zero - min(starts, default=self.zero))


Within = Callable[[int, int], bool]


def apart(_inner: int, _outer: int) -> bool:
    """No slice may lie on another: what overlaps gets a lane of its own (kernels)."""
    return False


def nested(_inner: int, _outer: int) -> bool:
    """A slice may lie on any that holds it (operators, calls, ranges of one thread)."""
    return True


def lanes(start: Ints, end: Ints, within: Within = nested, depth: Ints | None = None) -> list[Ints]:
    """The slices by lane, each in drawing order: an outer one before those that it holds. Those of
    one lane lie one in the other or one after the other.

    `within(inner, outer)` says whether a slice may lie on another that holds it in time. Of equal
    times the one of lower `depth`, then the first in the arrays, is the outer. Every slice is on
    exactly one lane, the first on which it fits.
    """
    keys = [np.arange(len(start)), -end, start]
    if depth is not None:
        keys.insert(1, depth)
    lanes: list[tuple[list[int], list[int]]] = []  # each with its slices that are open
    starts, ends = start.tolist(), end.tolist()
    for i in np.lexsort(keys).tolist():
        for lane in lanes:
            stack = lane[1]
            while stack and ends[stack[-1]] <= starts[i]:
                stack.pop()
            if not stack or (ends[i] <= ends[stack[-1]] and within(i, stack[-1])):
                break
        else:
            lane = ([], [])
            lanes.append(lane)
        for rows in lane:
            rows.append(i)
    return [np.asarray(lane, np.int64) for lane, _ in lanes]


def track_of(name: str, note: str, slices: Slices, rows: Ints, within: Within = nested) -> Track:
    """A track of some of the slices, in as many lanes as they need."""
    placed = lanes(slices.start[rows], slices.end[rows], within)
    return Track(name, note, slices, [rows[lane] for lane in placed])
