"""Intervals and percentiles against values worked out independently."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core import stats


# Table of order-statistic intervals for the median at 95 % (Conover, Practical Nonparametric
# Statistics, table A3: largest k with P(Bin(n, 1/2) <= k - 1) <= 0.025).
@pytest.mark.parametrize(
    ("n", "k"), [(5, None), (6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (20, 6), (30, 10), (100, 40)]
)
def test_interval_ranks_match_the_binomial_table(n, k):
    assert stats.interval_rank(n) == k


def test_few_samples_have_a_median_but_no_interval():
    s = stats.summarise([30, 10, 20])
    assert (s.median, s.low, s.high, s.n, s.relative_width) == (20, None, None, 3, None)


def test_no_samples_are_unknown_not_zero():
    assert stats.summarise([]) is None


def test_nearest_rank_percentiles_by_hand():
    s = stats.summarise(range(1, 101))
    assert (s.p90, s.p99, s.minimum, s.maximum, s.median) == (90, 99, 1, 100, 50)


def test_interval_of_known_samples():
    s = stats.summarise(range(1, 11))
    assert (s.low, s.high) == (2, 9)
    assert s.relative_width == pytest.approx(3.5 / 6)


def test_the_ratio_interval_holds_both_intervals():
    over, under = stats.summarise(range(100, 120)), stats.summarise(range(50, 70))
    value, low, high = stats.ratio(over, under)
    assert low == over.low / under.high
    assert high == over.high / under.low
    assert low <= value <= high
    assert stats.ratio(over, stats.Estimate()) is None
    assert stats.ratio(over, stats.summarise([0] * 10)) is None


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=300))
def test_the_interval_encloses_the_median_and_order_does_not_matter(samples):
    s = stats.summarise(samples)
    assert s == stats.summarise(samples[::-1])
    assert s.minimum <= s.median <= s.p90 <= s.p99 <= s.maximum or s.n < 3
    if s.low is not None:
        assert s.low <= s.median <= s.high


@given(st.integers(6, 400))
def test_interval_coverage_is_at_least_95_percent(n):
    k = stats.interval_rank(n)
    missed = 2 * sum(math.comb(n, i) for i in range(k)) / 2**n
    assert missed <= 0.05 + 1e-9


def test_a_sum_of_what_is_unknown_is_unknown():
    assert stats.sum_all(iter([2, 0, 5])) == 7
    assert stats.sum_all([2, None, 5]) is None
    assert stats.sum_all([0]) == stats.sum_all([]) == 0


def test_a_difference_of_what_is_unknown_is_unknown():
    assert stats.less(5, 2) == 3 and stats.less(0, 0) == 0
    assert [stats.less(a, b) for a, b in ((None, 2), (5, None), (None, None))] == [None] * 3
