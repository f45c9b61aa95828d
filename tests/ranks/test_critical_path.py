"""The critical path through ranks, by hand: from the end of a step back to what it waited for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rank_tables import Row, capture, matched, one_clock, rows

from layerline.analysis.model.ranks import (
    COMMUNICATION,
    COMPUTE,
    HOST,
    RankCapture,
)
from layerline.analysis.ranks.accounting import ledger
from layerline.analysis.ranks.critical_path import critical_path
from layerline.analysis.ranks.waits import waits

Found = dict[tuple[int, str], int]


def path(
    captures: Sequence[RankCapture], communications: Sequence[Row], instance: Sequence[int]
) -> Found:
    clocks, table = one_clock(len(captures)), rows(*communications)
    waited = waits(table, matched(*instance), clocks)
    rank = table["rank"].to_numpy()
    ledgers = [
        ledger(c, clocks[c.rank], waited, np.flatnonzero(rank == c.rank))[0] for c in captures
    ]
    return dict(critical_path(waited, ledgers))


def test_before_a_wait_the_path_is_on_the_rank_that_began_last() -> None:
    """Rank 0 waits from 30 to 50 for rank 1, where the host is late until 20."""
    one = capture(0, [(1, 0, 100)], [(COMPUTE, 30), (COMMUNICATION, 60), (COMPUTE, 100)])
    two = capture(1, [(1, 0, 95)], [(HOST, 20), (COMPUTE, 50), (COMMUNICATION, 60), (COMPUTE, 95)])
    expected = {(0, "compute"): 40, (0, "transfer"): 10, (1, "compute"): 30, (1, "idle_host"): 20}
    assert path([one, two], [(0, 30, 60), (1, 50, 60)], [0, 0]) == expected
    # In whatever order they are given.
    assert path([two, one], [(1, 50, 60), (0, 30, 60)], [0, 0]) == expected


def test_of_ranks_that_end_together_it_is_the_first() -> None:
    captures = [capture(r, [(1, 0, 10)], [(COMPUTE, 10)]) for r in (1, 0)]
    assert path(captures, [], []) == {(0, "compute"): 10}


def test_every_step_is_followed_to_where_it_began_on_the_rank_that_the_path_came_to() -> None:
    """Two steps of 50 and 40; rank 1 lists them in another order, and begins 5 later.

    In the first, rank 1 is late (25 against 10); in the second rank 0 (80 against 60)."""
    one = capture(
        0, [(1, 0, 50), (2, 50, 90)],
        [(COMPUTE, 10), (COMMUNICATION, 30), (COMPUTE, 80), (COMMUNICATION, 85), (COMPUTE, 90)],
    )  # fmt: skip
    two = capture(
        1, [(2, 45, 88), (1, 5, 45)],
        [(HOST, 25), (COMMUNICATION, 30), (COMPUTE, 60), (COMMUNICATION, 85), (COMPUTE, 88)],
    )  # fmt: skip
    found = path([one, two], [(0, 10, 30), (1, 25, 30), (0, 80, 85), (1, 60, 85)], [0, 0, 1, 1])
    assert found == {
        (0, "transfer"): 5 + 5,
        (0, "compute"): 20 + (30 + 5),
        (1, "idle_host"): 20,
    }
    assert sum(found.values()) == 45 + 40  # rank 1's first step began at 5


def test_a_transfer_that_began_before_the_step_ends_the_path_where_the_step_begins() -> None:
    """The communication is from 10 on transfer, the step from 20."""
    one = capture(0, [(1, 20, 50)], [(COMMUNICATION, 30), (COMPUTE, 50)])
    two = capture(1, [(1, 20, 40)], [(COMMUNICATION, 30), (COMPUTE, 40)])
    found = path([one, two], [(0, 5, 30), (1, 10, 30)], [0, 0])
    assert found == {(0, "compute"): 20, (0, "transfer"): 10}


def test_a_communication_that_ended_before_the_step_is_not_of_its_path() -> None:
    one = capture(0, [(1, 20, 50)], [(COMMUNICATION, 30), (COMPUTE, 50)])
    two = capture(1, [(1, 20, 40)], [(COMMUNICATION, 30), (COMPUTE, 40)])
    found = path([one, two], [(0, 5, 20), (1, 10, 20)], [0, 0])
    assert found == {(0, "compute"): 20, (0, "communication"): 10}


def test_a_communication_of_one_rank_alone_leaves_the_path_there() -> None:
    one = capture(0, [(1, 0, 50)], [(COMPUTE, 10), (COMMUNICATION, 30), (COMPUTE, 50)])
    assert path([one], [(0, 10, 30)], [0]) == {(0, "compute"): 30, (0, "transfer"): 20}


def test_what_no_partner_is_known_of_is_communication_on_the_rank_itself() -> None:
    one = capture(0, [(1, 0, 50)], [(COMPUTE, 10), (COMMUNICATION, 30), (COMPUTE, 50)])
    assert path([one], [(0, 10, 30)], [-1]) == {(0, "compute"): 30, (0, "communication"): 20}


def test_a_communication_that_compute_hides_blocks_nothing() -> None:
    """Rank 0 computes while rank 1 is late: the path stays on rank 0."""
    one = capture(0, [(1, 0, 60)], [(COMPUTE, 60)])
    two = capture(1, [(1, 0, 50)], [(HOST, 40), (COMMUNICATION, 50)])
    assert path([one, two], [(0, 10, 50), (1, 40, 50)], [0, 0]) == {(0, "compute"): 60}


def test_of_several_communications_the_path_takes_the_last_that_had_ended() -> None:
    """Rank 0 is blocked to 20 and to 60; rank 1, late at the second, was blocked to 30 by rank 2,
    of which the host was late."""
    one = capture(
        0, [(1, 0, 70)],
        [(COMPUTE, 10), (COMMUNICATION, 20), (COMPUTE, 40), (COMMUNICATION, 60), (COMPUTE, 70)],
    )  # fmt: skip
    two = capture(
        1, [(1, 0, 65)],
        [(COMPUTE, 12), (COMMUNICATION, 30), (COMPUTE, 50), (COMMUNICATION, 60), (COMPUTE, 65)],
    )  # fmt: skip
    three = capture(2, [(1, 0, 66)], [(HOST, 24), (COMMUNICATION, 30), (HOST, 66)])
    found = path(
        [one, two, three],
        [(0, 40, 60), (0, 10, 20), (1, 50, 60), (1, 12, 30), (2, 24, 30)],
        [1, 0, 1, 2, 2],
    )
    assert found == {
        (0, "compute"): 10, (0, "transfer"): 10,
        (1, "compute"): 20, (1, "transfer"): 6,
        (2, "idle_host"): 24,
    }  # fmt: skip


def test_a_step_may_end_with_a_communication() -> None:
    one = capture(0, [(1, 0, 30)], [(COMPUTE, 10), (COMMUNICATION, 30)])
    two = capture(1, [(1, 0, 30)], [(HOST, 20), (COMMUNICATION, 30)])
    found = path([one, two], [(0, 10, 30), (1, 20, 30)], [0, 0])
    assert found == {(0, "transfer"): 10, (1, "idle_host"): 20}


def test_a_transfer_that_blocked_for_a_moment_is_on_the_path_from_its_beginning() -> None:
    """Rank 0 computes until 29, and for one more after the end."""
    one = capture(0, [(1, 0, 31)], [(COMPUTE, 29), (COMMUNICATION, 30), (COMPUTE, 31)])
    two = capture(1, [(1, 0, 30)], [(HOST, 25), (COMMUNICATION, 30)])
    found = path([one, two], [(0, 10, 30), (1, 25, 30)], [0, 0])
    assert found == {(0, "compute"): 1, (0, "transfer"): 5, (1, "idle_host"): 25}


def test_a_wait_for_a_transfer_that_took_no_time_leads_to_the_rank_that_was_late() -> None:
    one = capture(0, [(1, 0, 60)], [(COMPUTE, 10), (COMMUNICATION, 30), (COMPUTE, 60)])
    two = capture(1, [(1, 0, 50)], [(HOST, 30), (COMPUTE, 50)])
    found = path([one, two], [(0, 10, 30), (1, 30, 30)], [0, 0])
    assert found == {(0, "compute"): 30, (0, "transfer"): 0, (1, "idle_host"): 30}


def test_the_path_does_not_turn_round_at_a_communication_that_took_no_time() -> None:
    """Both end at 30, when rank 1 began: what rank 0 waited there has no known way on, but the one
    before, which transferred from 5 to 10, has."""
    one = capture(
        0, [(1, 0, 30)],
        [(COMPUTE, 2), (COMMUNICATION, 10), (COMPUTE, 20), (COMMUNICATION, 30)],
    )  # fmt: skip
    two = capture(1, [(1, 0, 30)], [(HOST, 5), (COMMUNICATION, 10), (COMPUTE, 30)])
    found = path([one, two], [(0, 2, 10), (1, 5, 10), (0, 20, 30), (1, 30, 30)], [0, 0, 1, 1])
    assert found == {
        (0, "communication"): 10, (0, "compute"): 10, (0, "transfer"): 5, (1, "idle_host"): 5,
    }  # fmt: skip
    one = capture(0, [(1, 0, 30)], [(COMPUTE, 10), (COMMUNICATION, 30)])
    found = path([one, two], [(0, 10, 30), (1, 30, 30)], [0, 0])
    assert found == {(0, "compute"): 10, (0, "communication"): 20}
