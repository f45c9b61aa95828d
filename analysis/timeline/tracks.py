"""What a timeline is made of: groups (one per side) of tracks of slices or of counter values.

Times are integer nanoseconds of the capture's own clock until they are written. A slice has a
name, arguments that many slices share (`about`) and integers of its own (`own`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        """The earliest time on this track or below it; null where it is empty."""
        found = [b for t in self.below if (b := t.starts()) is not None]
        if self.slices is not None and len(self.slices):
            found.append(int(self.slices.start.min()))
        if self.values is not None and len(self.values.time):
            found.append(int(self.values.time.min()))
        return min(found, default=None)


@dataclass(frozen=True)
class Group:
    """One side: its tracks, when its first measured operation began (`zero`), and what is to be
    said about it (`notes`: each one line; `facts` go into the file)."""

    key: str
    label: str
    zero: int
    tracks: Sequence[Track]
    facts: Mapping[str, Any]
    notes: Sequence[str] = ()

    def before(self) -> int:
        """How long before `zero` its first event is."""
        found = [s for t in self.tracks if (s := t.starts()) is not None]
        return max(0, self.zero - min(found, default=self.zero))
