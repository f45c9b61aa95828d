"""What a rank's steps consist of, and how far each part had got at every communication.

The parts (`model.ranks.PARTS`) of a step add up to it exactly. Everything that is told of several
ranks is made of `Ledger`s, which have no segments any more: memory goes with the communications of
the job, not with its operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
class Host:
    """The host of a rank, on the clock of all. `issued`: when it asked for each of the rank's rows.
    `at_issue`, `at_step_start`, `at_step_end`: for how long it had worked until then, without what
    it waited.
    `sync_start`, `sync_end`: when it waited; `at_sync_end`: a table as of `Ledger`.
    `step_start`, `step_end`: the steps' ranges on it."""

    issued: Ints
    at_issue: Ints
    at_step_start: Ints
    at_step_end: Ints
    sync_start: Ints
    sync_end: Ints
    at_sync_end: Table
    step_start: Ints
    step_end: Ints


@dataclass(frozen=True)
class Ledger:
    """One rank on the clock of all. `rows`: its rows among the collectives of all ranks. A table
    has a row for each moment and a column for each of COLUMNS: how much of it lies before;
    `at_latest`: before the last rank of the row began.
    `host`: what the rank's host did; None where it computes itself.
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
    host: Host | None

    @property
    def parts(self) -> Table:
        """The parts of each step."""
        return self.at_step_end - self.at_step_start


def ledger(
    capture: RankCapture,
    clock: Clock,
    waits: Waits,
    rows: Ints,
    issued: pa.ChunkedArray | None = None,
) -> tuple[Ledger, list[Measure]]:
    """The ledger of a rank whose rows these are, and how to measure each of COLUMNS. `issued`: when
    its host asked for each row, on the rank's clock, null where that is not known."""
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
        "data": intersection(
            (start[kind == HOST], end[kind == HOST]), _spans(capture.spans, shift, "data")
        ),
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
        _host(capture, shift, waits.start[rows], issued, until),
    )
    return own, measures


def _host(
    capture: RankCapture,
    shift: int,
    begun: Ints,
    issued: pa.ChunkedArray | None,
    until: Callable[[Ints], Table],
) -> Host | None:
    """`begun`: when each row did; one of which nobody knows when it was asked for was then."""
    steps = capture.steps
    if steps["host_start"].null_count:
        return None
    low, high = _spans(capture.spans, shift, "sync")
    waiting = Measure(low, high)
    asked = begun
    if issued is not None:
        known = issued.is_valid().to_numpy()
        asked = np.where(known, np.minimum(issued.fill_null(0).to_numpy() - shift, begun), begun)
    start, end = (steps[c].to_numpy() - shift for c in ("host_start", "host_end"))
    return Host(
        asked,
        asked - waiting.until(asked),
        start - waiting.until(start),
        end - waiting.until(end),
        low,
        high,
        until(high),
        start,
        end,
    )


def _spans(spans: pa.Table, shift: int, kind: str) -> tuple[Ints, Ints]:
    chosen = spans.filter(pc.equal(spans["kind"], kind))
    return union(chosen["start"].to_numpy() - shift, chosen["end"].to_numpy() - shift)


def _blocked(ends: Ints, known: npt.NDArray[np.bool_], blocked: Ints) -> Ints:
    """The blocked time that ended with each known row, of what was `blocked` until each end."""
    rows = np.flatnonzero(known)
    rows = rows[np.argsort(ends[rows], kind="stable")]
    result = np.zeros(len(ends), dtype=np.int64)
    result[rows] = np.diff(blocked[rows], prepend=0)
    return result
