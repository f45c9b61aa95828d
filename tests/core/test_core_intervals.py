"""Unions of intervals against a count of the points that they hold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerline.core.intervals import Ints, Measure, covered, length, moments, union

Pairs = list[tuple[int, int]]
PAIRS = st.lists(st.tuples(st.integers(-9, 40), st.integers(-9, 40)), max_size=12)


def columns(pairs: Pairs) -> tuple[Ints, Ints]:
    made = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return made[:, 0], made[:, 1]


def points(pairs: Pairs) -> set[int]:
    return {t for low, high in pairs for t in range(low, high)}


def joined(pairs: Pairs) -> Pairs:
    starts, ends = union(*columns(pairs))
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def test_unions_by_hand() -> None:
    assert joined([(5, 9), (1, 3), (2, 6)]) == [(1, 9)]
    assert joined([(4, 6), (1, 2), (1, 3)]) == [(1, 3), (4, 6)]
    assert joined([(1, 9), (2, 3), (4, 5)]) == [(1, 9)]  # one holds the others
    assert joined([(1, 2), (2, 3)]) == [(1, 3)]  # those that touch are one
    assert joined([(7, 7), (3, 1)]) == joined([]) == []
    assert joined([(1, 4), (6, 6), (8, 9)]) == [(1, 4), (8, 9)]


@given(PAIRS)
def test_a_union_holds_the_same_points_in_disjoint_intervals_in_order(pairs: Pairs) -> None:
    found = joined(pairs)
    assert points(found) == points(pairs)
    assert all(low < high for low, high in found)
    assert all(a[1] < b[0] for a, b in pairwise(found))
    assert length(*columns(pairs)) == len(points(pairs))


@given(PAIRS, st.integers(-9, 40), st.integers(-9, 40))
def test_what_is_covered_is_the_points_of_both(pairs: Pairs, low: int, high: int) -> None:
    found = joined(pairs)
    inside = points(found) & set(range(low, high))
    assert covered(*columns(found), low, high) == len(inside)


@given(PAIRS, st.integers(-12, 45), st.integers(-12, 45))
def test_what_lies_between_two_moments_is_a_count_of_points(
    pairs: Pairs, low: int, high: int
) -> None:
    measure = Measure(*union(*columns(pairs)))
    assert measure.between([low], [high]).tolist() == [len(points(pairs) & set(range(low, high)))]
    assert measure.until([high]).tolist() == [len({t for t in points(pairs) if t < high})]


def test_a_measure_is_what_lies_before_a_moment_and_between_two() -> None:
    measure = Measure(np.array([10, 30]), np.array([20, 35]))
    assert measure.until([0, 10, 13, 20, 25, 30, 31, 35, 99]).tolist() == [
        0, 0, 3, 10, 10, 10, 11, 15, 15,
    ]  # fmt: skip
    assert measure.between([0, 15, 31], [12, 32, 10]).tolist() == [2, 7, 0]
    assert measure.until([]).tolist() == [] and measure.until([]).dtype == np.int64
    none = Measure(np.array([], np.int64), np.array([], np.int64))
    assert none.until([0, 9]).tolist() == [0, 0] and none.until([0]).dtype == np.int64
    assert none.between([0], [9]).tolist() == [0]


def test_a_measure_is_exact_where_no_double_is() -> None:
    base = 1_700_000_000_000_000_000
    measure = Measure(np.array([base + 1]), np.array([base + 4]))
    found = measure.until([base, base + 2, base + 9])
    assert found.tolist() == [0, 1, 3] and found.dtype == np.int64
    assert measure.between([base + 2], [base + 3]).tolist() == [1]


def test_moments_are_the_distinct_values_of_all_parts_in_order() -> None:
    parts = [np.array(part, np.int64) for part in ([5, 9, 9], [], [-3, 5], [7])]
    assert moments(*parts).tolist() == [-3, 5, 7, 9]
    none = moments(parts[1], parts[1])
    assert none.tolist() == [] and none.dtype == np.int64
