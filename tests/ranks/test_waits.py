"""Waits, transfers and what of them is exposed, by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rank_tables import matched, one_clock, rows

from layerline.analysis.model.ranks import Clock
from layerline.analysis.ranks.waits import (
    NONE,
    Waits,
    difference,
    exposure,
    intersection,
    repeated,
    waits,
)
from layerline.core.intervals import union

NANOSECONDS = 1_700_000_000_000_000_000  # since 1970: no double tells one from the next


def pairs(of: tuple[np.ndarray, np.ndarray]) -> list[tuple[int, int]]:  # type: ignore[type-arg]
    return list(zip(of[0].tolist(), of[1].tolist(), strict=True))


def columns(*intervals: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
    return (
        np.array([a for a, _ in intervals], np.int64),
        np.array([b for _, b in intervals], np.int64),
    )


def test_a_rank_waits_until_the_last_has_begun_on_the_clock_of_all() -> None:
    """Rank 1 is 1,000 ahead: it begins at 40, 30 after rank 0; from 40 on it is transfer."""
    base = NANOSECONDS
    found = waits(
        rows((0, base + 10, base + 60), (1, base + 1040, base + 1062)),
        matched(7, 7),
        {0: Clock(0, 3, part=0), 1: Clock(1000, 5, part=0)},
    )
    assert found.start.tolist() == [base + 10, base + 40]
    assert found.end.tolist() == [base + 60, base + 62]
    assert found.latest.tolist() == [base + 40, base + 40]
    assert found.late.tolist() == [1, 1]
    assert found.wait.tolist() == [30, 0]
    assert found.transfer.tolist() == [21, 21]  # the mean of 20 and 22
    assert found.uncertainty.tolist() == [3 + 5, 5 + 5]


def test_a_transfer_that_ended_before_the_last_began_took_nothing() -> None:
    found = waits(rows((0, 0, 10), (1, 30, 35)), matched(0, 0), one_clock(2))
    assert found.transfer.tolist() == [0, 0]  # ended 20 before and 5 after


def test_a_communication_that_one_rank_is_known_of_is_transfer_alone() -> None:
    """Whether its clock can be compared with another does not matter, nor is another added."""
    for clock, uncertainty in ((Clock(), 0), (Clock(0, 2, part=0), 2)):
        found = waits(rows((0, 10, 60)), matched(0), {0: clock})
        assert (found.known.tolist(), found.late.tolist()) == ([True], [NONE])
        assert (found.wait.tolist(), found.transfer.tolist()) == ([0], [50])
        assert found.uncertainty.tolist() == [uncertainty]


def test_what_is_not_matched_or_of_clocks_that_cannot_be_compared_is_not_known() -> None:
    clocks = {
        0: Clock(0, 1, part=0), 1: Clock(0, 2, part=0), 2: Clock(0, 4, part=1),
        3: Clock(), 4: Clock(),
    }  # fmt: skip
    found = waits(
        rows(
            (0, 1, 9), (2, 4, 9),  # of two parts
            (3, 1, 9), (4, 4, 9),  # of none
            (0, 11, 19), (1, None, None),  # one has no interval
            (1, 31, 39),  # not matched
            (0, 41, 49), (1, 44, 49),
        ),
        matched(0, 0, 1, 1, 2, 2, -1, 3, 3),
        clocks,
    )  # fmt: skip
    assert found.known.tolist() == [False] * 7 + [True] * 2
    assert found.late.tolist() == [NONE] * 7 + [1, 1]
    assert found.wait.tolist() == [0] * 7 + [3, 0]
    assert found.transfer.tolist() == [0] * 7 + [5, 5]
    assert found.latest.tolist() == [1, 4, 1, 4, 11, 0, 31, 44, 44]
    assert found.end.tolist() == [9, 9, 9, 9, 19, 0, 39, 49, 49]
    assert found.uncertainty.tolist() == [1, 4, 0, 0, 1, 2, 2, 1 + 2, 2 + 2]


def test_columns_are_whole_numbers_also_of_no_rows() -> None:
    some = waits(rows((0, 0, 10), (1, 3, 10)), matched(0, 0), one_clock(2))
    for found in (waits(rows(), matched(), {}), some):
        numbers = (found.start, found.end, found.latest, found.late)
        for column in (*numbers, found.transfer, found.uncertainty, found.wait):
            assert column.dtype == np.int64
        assert found.known.dtype == np.bool_


def of(*those: tuple[int, int, int | None]) -> Waits:
    """Of rows of start, end and latest start; None where they are not known."""
    start, end = columns(*((a, b) for a, b, _ in those))
    known = np.array([latest is not None for _, _, latest in those], bool)
    latest = np.array([a if last is None else last for a, _, last in those], np.int64)
    none = np.zeros(len(those), np.int64)
    return Waits(start, end, latest, none, known, none, none)


def all_of(waits_: Waits) -> np.ndarray:  # type: ignore[type-arg]
    return np.arange(len(waits_.start))


def test_what_is_exposed_is_wait_until_the_last_began_then_transfer_and_else_of_nobody() -> None:
    """From 0 to 100, of which it waits 40; 10 to 30 and 50 to 120 are exposed."""
    waited = of((500, 600, 550), (0, 100, 40))
    found = exposure(waited, np.array([1]), columns((10, 30), (50, 120)))
    assert pairs(found.wait) == [(10, 30)]
    assert pairs(found.transfer) == [(50, 100)]
    assert pairs(found.unknown) == [(100, 120)]
    assert (found.exposed.tolist(), found.exposed_wait.tolist()) == ([70], [20])


def test_where_one_transfers_nothing_waits_and_the_first_answers_for_the_wait_of_several() -> None:
    """The second, given first, transfers from 30 to 80, the first from 60 on."""
    waited = of((20, 80, 30), (0, 100, 60))
    found = exposure(waited, all_of(waited), columns((0, 200)))
    assert pairs(found.wait) == [(0, 30)]
    assert pairs(found.transfer) == [(30, 100)]
    assert pairs(found.unknown) == [(100, 200)]
    assert found.exposed.tolist() == [60, 100]
    assert found.exposed_wait.tolist() == [0, 30]


def test_of_waits_that_begin_together_each_answers_for_what_the_shorter_left() -> None:
    waited = of((0, 60, 50), (0, 60, 20), (0, 60, 50), (55, 70, 65))
    found = exposure(waited, all_of(waited), columns((0, 50), (60, 65)))
    # From 20 on the second transfers, to 60.
    assert pairs(found.wait) == [(0, 20), (60, 65)]
    assert found.exposed_wait.tolist() == [0, 20, 0, 5]
    waited = of((0, 60, 50), (0, 15, 20))  # the second ended before: it waits to its end
    found = exposure(waited, all_of(waited), columns((0, 60)))
    assert pairs(found.wait) == [(0, 50)]
    assert found.exposed_wait.tolist() == [35, 15]
    assert pairs(found.transfer) == [(50, 60)]


def test_what_is_not_matched_neither_waits_nor_answers() -> None:
    waited = of((0, 90, None), (10, 60, 40))
    found = exposure(waited, all_of(waited), columns((0, 90)))
    assert pairs(found.unknown) == [(0, 10), (60, 90)]
    assert found.exposed.tolist() == [90, 50]
    assert found.exposed_wait.tolist() == [0, 30]


def test_of_no_communication_all_that_is_exposed_is_of_nobody() -> None:
    waited = of()
    found = exposure(waited, all_of(waited), columns((0, 9)))
    assert (found.exposed.tolist(), found.exposed_wait.tolist()) == ([], [])
    assert found.exposed_wait.dtype == np.int64
    assert (pairs(found.wait), pairs(found.transfer)) == ([], [])
    assert pairs(found.unknown) == [(0, 9)]


def test_of_rows_of_one_kernel_the_first_has_its_exposed_time() -> None:
    """The second and the fourth are one, whatever each waits for; the last only begins so."""
    waited = of((0, 10, 5), (10, 60, 50), (70, 80, 70), (10, 60, 20), (10, 61, 50))
    found = exposure(waited, all_of(waited), columns((0, 40)))
    assert found.exposed.tolist() == [10, 30, 0, 0, 30]
    assert repeated(waited.start, waited.end).tolist() == [False, False, False, True, False]
    assert repeated(waited.start[:0], waited.end[:0]).tolist() == []


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5)


def points(of_: tuple[np.ndarray, np.ndarray]) -> set[int]:  # type: ignore[type-arg]
    return {p for a, b in pairs(of_) for p in range(a, b)}


@given(spans, spans)
def test_intersection_and_difference_hold_the_points_that_they_should(
    one: list[tuple[int, int]], two: list[tuple[int, int]]
) -> None:
    a, b = union(*columns(*one)), union(*columns(*two))
    assert points(intersection(a, b)) == points(a) & points(b)
    assert points(difference(a, b)) == points(a) - points(b)
    for found in (intersection(a, b), difference(a, b)):
        assert pairs(found) == pairs(union(*found))  # disjoint, in order
