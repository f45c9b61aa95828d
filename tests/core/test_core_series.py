"""Samples that depend on one another: wider intervals and trends, against values worked out."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core import series, stats


def autoregressive(n: int, phi: float, rng: random.Random) -> list[int]:
    """x(t) = phi x(t-1) + e(t) around a median of 10 ms, with a deviation of 0.1 ms."""
    x, found = rng.gauss(0, 1), []
    for _ in range(n):
        x = phi * x + rng.gauss(0, 1) * math.sqrt(1 - phi * phi)
        found.append(round(1e7 + 1e5 * x))
    return found


def test_runs_by_hand() -> None:
    # Ten below, then ten above: 2 runs of 11 expected, deviation sqrt(200 * 180 / (400 * 19)).
    assert series.too_few_runs([-1] * 10 + [1] * 10)
    assert not series.too_few_runs([-1, 1] * 10)  # too many are no reason for a wider interval
    # Three and three: 2 runs of 4 expected happen in one of ten orders, too often to tell.
    assert not series.too_few_runs([-1] * 3 + [1] * 3)
    assert not series.too_few_runs([0] * 30)


def test_dependence_by_hand() -> None:
    # Signs -1 -1 -1 -1 1 1 1 1 -1 -1 -1 -1 1 1 1 1: 4 runs of 9 expected. Their correlations,
    # with n in the denominator: lag 0 1, lag 1 (12 - 3) / 16, lag 2 (8 - 6) / 16,
    # lag 3 (4 - 9) / 16. Pairs: 25 / 16, then -3 / 16, which ends the sum: 2 * 25 / 16 - 1.
    samples = ([1] * 4 + [9] * 4) * 2
    assert series.signs(samples) == ([-1] * 4 + [1] * 4) * 2
    assert series.dependence(samples) == pytest.approx(2 * 25 / 16 - 1)


def test_the_ranks_of_a_dependent_series_are_further_from_the_middle() -> None:
    # As above with distinct samples. Of 16 the ranks are 4 and 13, 4.5 from the middle at 8.5;
    # sqrt(2.125) * 4.5 = 6.56, so rank 1.94 and down: the smallest and the largest.
    samples = [1, 2, 3, 4, 19, 18, 17, 16, 5, 6, 7, 8, 12, 13, 14, 15]
    plain, found = stats.summarise(samples), series.in_order(samples)
    assert plain is not None and found is not None
    assert (plain.low, plain.high) == (4, 16)
    assert (found.low, found.high, found.median) == (1, 19, plain.median)


def test_a_series_with_too_few_independent_samples_has_the_range_for_its_interval() -> None:
    found = series.in_order(list(range(12)))
    assert found is not None
    assert (found.low, found.high, found.n) == (0, 11, 12)


def test_intervals_of_dependent_series_cover_the_median() -> None:
    rng = random.Random(7)
    covered = {"independent": 0, "in order": 0}
    for _ in range(200):
        samples = autoregressive(200, 0.8, rng)
        for name, of in (("independent", stats.summarise), ("in order", series.in_order)):
            s = of(samples)
            assert s is not None and s.low is not None and s.high is not None
            covered[name] += s.low <= 10**7 <= s.high
    # Of 200 that should cover 190: intervals for independent samples are far too narrow.
    assert covered["independent"] < 140
    assert covered["in order"] > 175


def test_independent_samples_keep_their_interval_mostly() -> None:
    rng = random.Random(3)
    many = [[rng.randrange(10**6) for _ in range(60)] for _ in range(200)]
    changed = sum(series.in_order(s) != stats.summarise(s) for s in many)
    assert changed < 20  # one in twenty by the test's own level


@given(st.lists(st.integers(0, 10**9), max_size=120))
def test_the_interval_is_never_narrower_than_for_independent_samples(samples: list[int]) -> None:
    plain, found = stats.summarise(samples), series.in_order(samples)
    if plain is None or found is None:
        assert plain is found is None
        return
    assert (found.median, found.n, found.p99) == (plain.median, plain.n, plain.p99)
    assert 1 <= series.dependence(samples) <= max(1, len(samples))
    if found.low is not None and found.high is not None:
        assert plain.low is not None and plain.high is not None
        assert found.low <= plain.low <= plain.high <= found.high


def test_trends_by_hand() -> None:
    # Six that rise: S = 15, variance 6 * 5 * 17 / 18 = 28.3, z = 14 / 5.32 = 2.63, p = 0.0085.
    assert series.trend([1, 2, 3, 4, 5, 6]) == 1
    assert series.trend([6, 5, 4, 3, 2, 1]) == -1
    # One pair the other way round: S = 13, z = 2.25, p = 0.024.
    assert series.trend([2, 1, 3, 4, 5, 6]) == 0
    assert series.trend([5] * 50) == 0
    assert series.trend([1, 2, 3, 4, 5]) == 0  # too few to tell
    assert series.trend([12, 150] * 20) == 0  # two levels, but no drift
    assert series.trend(list(range(5000))) == 1


@given(st.lists(st.integers(0, 10**6), max_size=60))
def test_a_trend_turns_round_with_the_series(samples: list[int]) -> None:
    assert series.trend(samples) == -series.trend(samples[::-1])


@given(st.lists(st.sampled_from([-1, 0, 1]), min_size=1, max_size=80))
def test_products_by_transform_are_the_plain_sums(sign: list[int]) -> None:
    n = len(sign)
    plain = [sum(sign[i] * sign[i + lag] for i in range(n - lag)) for lag in range(n)]
    assert series._products(sign) == plain


def test_a_long_series_that_depends_on_itself_throughout_is_summed_to_the_end() -> None:
    # Signs of a ramp: n/2 times -1, then n/2 times 1. Its sums are n - 3 lag up to half and
    # lag - n beyond; positive pairs end at a third, and 2 * sum - 1 comes to about n / 3.
    assert series.dependence(range(300_000)) == pytest.approx(100_000, rel=1e-3)
