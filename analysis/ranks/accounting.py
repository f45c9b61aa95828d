"""What a rank's steps consist of, and how far each part had got at every communication.

The parts (`model.ranks.PARTS`) of a step add up to it exactly. Everything that is told of several
ranks is made of `Ledger`s, which have no segments any more: memory goes with the communications of
the job, not with its operations.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.intervals import Ints, Measure, union
from ..model.ranks import (
    COMMUNICATION,
    HOST,
    PART_OF_KIND,
    PARTS,
    Clock,
    RankCapture,
)
from .waits import Waits, exposure, intersection

# The parts, then what of the host's idle time was loading of data.
COLUMNS = (*PARTS, "data")
BLOCKED = [PARTS.index("wait"), PARTS.index("transfer")]

Table = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ledger:
    """One rank on the clock of all. `rows`: its rows among the collectives of all ranks. A table
    has a row for each moment and a column for each of COLUMNS: how much of it lies before;
    `at_latest`: before the last rank of the row began.
    `blocked`: for how long, since the row before ended, the rank did nothing but wait and transfer
    until each row ended. `exposed`, `exposed_wait`: of each row, ns."""

    rank: int
    rows: Ints
    iterations: tuple[int | None, ...]
    step_start: Ints
    step_end: Ints
    at_start: Table
    at_latest: Table
    at_end: Table
    at_step_start: Table
    at_step_end: Table
    blocked: Ints
    exposed: Ints
    exposed_wait: Ints

    @property
    def parts(self) -> Table:
        """The parts of each step."""
        return self.at_step_end - self.at_step_start


def ledger(
    capture: RankCapture, clock: Clock, waits: Waits, rows: Ints
) -> tuple[Ledger, list[Measure]]:
    """The ledger of a rank whose rows these are; and how to measure each of COLUMNS."""
    shift = clock.offset
    start = capture.segments["start"].to_numpy() - shift
    end = capture.segments["end"].to_numpy() - shift
    kind = capture.segments["kind"].to_numpy()
    of_rank = exposure(waits, rows, (start[kind == COMMUNICATION], end[kind == COMMUNICATION]))
    sets = {
        part: (start[kind == k], end[kind == k])
        for k, part in PART_OF_KIND.items()
        if k != COMMUNICATION
    }
    sets |= {
        "wait": of_rank.wait,
        "transfer": of_rank.transfer,
        "communication": of_rank.unknown,
        "data": intersection((start[kind == HOST], end[kind == HOST]), _data(capture.spans, shift)),
    }
    measures = [Measure(*sets[name]) for name in COLUMNS]

    def until(moments: Ints) -> Table:
        return np.stack([m.until(moments) for m in measures], axis=1)

    step_start = capture.steps["start"].to_numpy() - shift
    step_end = capture.steps["end"].to_numpy() - shift
    at_end = until(waits.end[rows])
    blocked = at_end[:, BLOCKED].sum(axis=1)
    own = Ledger(
        capture.rank,
        rows,
        tuple(capture.steps["iteration"].to_pylist()),
        step_start,
        step_end,
        until(waits.start[rows]),
        until(np.minimum(waits.latest[rows], waits.end[rows])),
        at_end,
        until(step_start),
        until(step_end),
        _blocked(waits.end[rows], waits.known[rows], blocked),
        of_rank.exposed,
        of_rank.exposed_wait,
    )
    return own, measures


def _data(spans: pa.Table, shift: int) -> tuple[Ints, Ints]:
    of_data = np.array([k == "data" for k in spans["kind"].to_pylist()], dtype=bool)
    start = spans["start"].to_numpy()[of_data] - shift
    return union(start, spans["end"].to_numpy()[of_data] - shift)


def _blocked(ends: Ints, known: npt.NDArray[np.bool_], blocked: Ints) -> Ints:
    """The blocked time that ended with each known row, of what was `blocked` until each end."""
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(ends[rows], kind="stable")]
    result = np.zeros(len(ends), dtype=np.int64)
    result[rows] = np.diff(blocked[rows], prepend=0)
    return result
