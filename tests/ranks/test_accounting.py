"""What a rank's steps consist of, and how far each part had got, by hand."""

from __future__ import annotations

import numpy as np
from rank_tables import capture

from layerline.analysis.model.ranks import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    DEPENDENCY,
    HOST,
    LAUNCH,
    PARTS,
    UNKNOWN,
    Clock,
)
from layerline.analysis.ranks.accounting import COLUMNS, Ledger, ledger
from layerline.analysis.ranks.waits import Waits
from layerline.core.intervals import Measure

# Of three communications of the rank, between those of another: the first begins to transfer at
# 15, the third at 74; the second, which has no partner, ends within the third.
MINE = np.array([4, 1, 3])
ROWS = Waits(
    start=np.array([0, 60, 0, 70, 5]),
    end=np.array([99, 75, 99, 80, 30]),
    latest=np.array([9, 60, 9, 74, 15]),
    late=np.array([0, -1, 0, 1, 1]),
    known=np.array([True, False, True, True, True]),
    transfer=np.array([0, 0, 0, 6, 15]),
    uncertainty=np.zeros(5, np.int64),
)


def made() -> tuple[Ledger, list[Measure]]:
    """Its clock is 1,000 ahead."""
    of = capture(
        2,
        [(3, 0, 40), (4, 40, 85)],
        [
            (COMPUTE, 10), (COMMUNICATION, 30), (COPY, 35), (HOST, 50), (DEPENDENCY, 52),
            (LAUNCH, 53), (UNKNOWN, 57), (COMPUTE, 60), (COMMUNICATION, 80), (HOST, 85),
        ],
        [("data", 34, 45), ("forward", 46, 50), ("data", 40, 47)],
        ahead=1000,
    )  # fmt: skip
    return ledger(of, Clock(1000), ROWS, MINE)


def parts(**ns: int) -> list[int]:
    return [ns.get(name, 0) for name in COLUMNS]


def test_the_parts_of_a_step_add_up_to_it() -> None:
    own, _ = made()
    assert (own.rank, own.iterations, own.rows.tolist()) == (2, (3, 4), [4, 1, 3])
    assert (own.step_start.tolist(), own.step_end.tolist()) == ([0, 40], [40, 85])
    # Of the host's idle time, 35 to 50 and 80 to 85, a loader ran from 35 to 47.
    assert own.parts.tolist() == [
        parts(compute=10, wait=5, transfer=15, copy=5, idle_host=5, data=5),
        parts(
            compute=3, wait=4, transfer=6, communication=10,
            idle_host=15, idle_dependency=2, idle_launch=1, idle_unknown=4, data=7,
        ),
    ]  # fmt: skip
    assert own.parts[:, : len(PARTS)].sum(axis=1).tolist() == [40, 45]


def test_how_far_each_part_had_got_when_a_communication_began_and_ended() -> None:
    own, measures = made()
    first = {"compute": 10, "wait": 5, "transfer": 15}
    later = first | {"copy": 5, "idle_host": 15, "data": 12} | {
        "compute": 13, "idle_dependency": 2, "idle_launch": 1, "idle_unknown": 4,
    }  # fmt: skip
    lost = later | {"communication": 10}
    assert own.at_start.tolist() == [parts(compute=5), parts(**later), parts(**lost)]
    assert own.at_end.tolist() == [
        parts(**first),
        parts(**lost | {"wait": 9, "transfer": 16}),
        parts(**lost | {"wait": 9, "transfer": 21}),
    ]
    assert [int(m.until([80])[0]) for m in measures] == own.at_end[2].tolist()
    assert own.exposed.tolist() == [20, 15, 10]
    assert own.exposed_wait.tolist() == [5, 0, 4]


def test_what_blocked_is_told_of_matched_communications_in_the_order_of_their_ends() -> None:
    """Until 30 the rank had waited 5 and transferred 15; then 4 and 6."""
    own, _ = made()
    assert own.blocked.tolist() == [20, 0, 10]
    assert own.blocked.dtype == np.int64


def test_a_rank_without_communication_has_steps_all_the_same() -> None:
    nothing = Waits(*[np.zeros(0, np.int64)] * 4, np.zeros(0, bool), *[np.zeros(0, np.int64)] * 2)
    of = capture(0, [(None, 0, 9)], [(COMPUTE, 4), (HOST, 9)])
    own, _ = ledger(of, Clock(), nothing, np.zeros(0, np.int64))
    assert own.iterations == (None,)
    assert own.parts.tolist() == [parts(compute=4, idle_host=5)]
    assert own.blocked.tolist() == []


def test_of_communications_that_end_together_the_first_row_is_what_blocked() -> None:
    n = 600
    zero, end = np.zeros(n, np.int64), np.tile([20, 10], n // 2)
    waited = Waits(zero, end, zero, zero, np.ones(n, bool), end, zero)
    own, _ = ledger(capture(0, [(1, 0, 20)], [(COMMUNICATION, 20)]), Clock(), waited, np.arange(n))
    assert own.blocked.tolist() == [10, 10] + [0] * (n - 2)
