"""Series at the limits of their rank tests, against counts of all orders and plain sums."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from itertools import combinations, groupby, permutations
from statistics import NormalDist, fmean, median, pvariance

import pytest

from layerline.core import series


def runs_of(sides: Sequence[int]) -> int:
    return sum(1 for _ in groupby(sides))


def mean_and_variance_of_runs(above: int, below: int) -> tuple[float, float]:
    """Wald and Wolfowitz: of the runs of all orders of so many above and below."""
    n = above + below
    mean = 1 + 2 * above * below / n
    return mean, (mean - 1) * (mean - 2) / (n - 1)


@pytest.mark.parametrize(("above", "below"), [(3, 4), (2, 5), (4, 4)])
def test_the_oracle_of_runs_counts_all_orders(above: int, below: int) -> None:
    n = above + below
    orders = [[i in up for i in range(n)] for up in combinations(range(n), above)]
    runs = [runs_of(order) for order in orders]
    expected = mean_and_variance_of_runs(above, below)
    assert (fmean(runs), pvariance(runs)) == pytest.approx(expected)


def test_too_few_runs_is_the_runs_test_for_every_count_of_runs() -> None:
    """5 to 40 samples on each side, with each number of runs: 5 % on one side, half a run off."""
    limit = NormalDist().inv_cdf(0.05)
    for above in range(5, 41):
        for below in (above, above + 3):
            mean, variance = mean_and_variance_of_runs(above, below)
            for pairs in range(1, above + 1):
                signs = [1] * (above - pairs) + [1, -1] * pairs + [-1] * (below - pairs)
                z = (runs_of(signs) + 0.5 - mean) / math.sqrt(variance)
                assert series.too_few_runs(signs) == (z < limit), signs


def test_samples_all_on_one_side_have_too_few_to_tell() -> None:
    assert not series.too_few_runs([1] * 20) and not series.too_few_runs([-1] * 20)
    assert not series.too_few_runs([1, -1])
    assert series.signs([1, 2, 3]) == [-1, 0, 1]


def test_dependence_is_the_plain_sum_of_pairs_of_correlations() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(2000):
        n = rng.randrange(6, 30)
        samples = [x for x in rng.choices(range(5), k=n) for _ in range(rng.choice((1, 1, 4)))][:n]
        middle = median(samples)
        sign = [(x > middle) - (x < middle) for x in samples]
        expected = 1.0
        if series.too_few_runs(sign):
            c = [sum(a * b for a, b in zip(sign, sign[lag:], strict=False)) for lag in range(n)]
            total, pairs = 0, [c[lag] + c[lag + 1] for lag in range(0, n - 1, 2)]
            for pair in pairs:  # Geyer: up to the first that is not above 0
                if pair <= 0:
                    seen.add(pair == 0)
                    break
                total += pair
            expected = max(1.0, 2 * total / c[0] - 1)
            seen.add("between" if 1 < expected < 2 else "more")
        if len(set(samples)) > 1 and middle in samples:
            assert series.dependence(samples) == pytest.approx(expected), samples
    assert {True, False, "between", "more"} <= seen


@pytest.mark.parametrize(
    ("lengths", "products", "rank"),
    [
        # tau = 2 * (14 + 7) / 14 - 1 = 2; of 14 the rank is 3: 7.5 - 4.5 * sqrt(2) = 1.1
        ((3, 4, 4, 3), [14, 7, 0, -7], 1),
        # tau = 2 * 49 / 32 - 1 = 2.06; of 32 the rank is 10: 16.5 - 6.5 * sqrt(2.06) = 7.2
        ((4,) * 8, [32, 17, 2, -13], 7),
        # tau = 2 * 57 / 42 - 1 = 1.71; of 42 the rank is 15: 21.5 - 6.5 * sqrt(1.71) = 12.99
        ((3,) * 14, [42, 15, -12, -39], 12),
    ],
)
def test_the_ranks_go_out_from_the_middle_by_the_root(
    lengths: tuple[int, ...], products: list[int], rank: int
) -> None:
    low, high = iter(range(1, 100)), iter(range(101, 200))
    samples = [next((low, high)[i % 2]) for i, k in enumerate(lengths) for _ in range(k)]
    assert series._products(series.signs(samples))[:4] == products
    found, ordered = series.in_order(samples), sorted(samples)
    assert found is not None
    assert (found.low, found.high) == (ordered[rank - 1], ordered[-rank])


def test_processes_without_samples_have_no_part() -> None:
    latency = {"processes": [{"n": 3, "warmup": 1}, {"n": None}, {}]}
    assert series.sizes(latency) == [3, 0, 0]
    assert series.sizes(latency, "warmup") == [1, 0, 0]
    assert series.sizes({}) == [] and series.sizes({"processes": None}) == []
    assert series.split([1, 2, 3], [3, 0]) == [[1, 2, 3]]


def test_the_median_of_processes_is_that_of_their_medians() -> None:
    found = series.of_processes([1, 1, 1, 1, 1, 5, 9], [5, 1, 1])
    assert found is not None and found.median == 5


def test_no_interval_of_processes_reaches_zero() -> None:
    # Two, 200 apart: 12.706 * 200 / 2 = 1270.6 on both sides of the mean.
    assert series.between([1172, 1372]) == (1, 2543)
    assert series.between([1171, 1371]) is None
    # Three: s = 200, 4.303 * s / sqrt(3) = 496.9; s = 300: 745.3.
    assert series.between([400, 600, 800]) == (103, 1097)
    assert series.between([300, 600, 900]) is None


def score_of(samples: Sequence[int]) -> int:
    return sum((b > a) - (b < a) for a, b in combinations(samples, 2))


def variance_of_scores(samples: Sequence[int]) -> float:
    """Kendall: of the scores of all orders of these samples."""
    n = len(samples)
    ties = (len(list(group)) for _, group in groupby(sorted(samples)))
    return (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18


@pytest.mark.parametrize("samples", [(1, 2, 3, 4, 5, 6), (1, 1, 2, 3, 3, 3), (1, 1, 1, 1, 2, 2)])
def test_the_oracle_of_trends_counts_all_orders(samples: tuple[int, ...]) -> None:
    scores = [score_of(order) for order in permutations(samples)]
    assert fmean(scores) == 0
    assert pvariance(scores) == pytest.approx(variance_of_scores(samples))


def test_a_trend_is_the_rank_test_in_every_order_on_the_way_from_falling_to_rising() -> None:
    """Neighbours change places one by one, so the score takes every value: 1 % on both sides."""
    limit = NormalDist().inv_cdf(0.995)
    for n, levels in ((6, 6), (7, 7), (9, 4), (12, 12), (12, 3), (20, 20), (20, 5), (31, 9)):
        samples = sorted((i * levels // n for i in range(n)), reverse=True)
        deviation = math.sqrt(variance_of_scores(samples))
        turned = True
        while turned:
            score = score_of(samples)
            expected = (score > 0) - (score < 0) if (abs(score) - 1) / deviation > limit else 0
            assert series.trend(samples) == expected, samples
            place = next((i for i in range(n - 1) if samples[i] > samples[i + 1]), None)
            turned = place is not None
            if place is not None:
                samples[place : place + 2] = samples[place + 1], samples[place]
        assert samples == sorted(samples)


def test_of_more_than_a_thousand_samples_every_second_is_looked_at() -> None:
    drifting = [0 if i % 2 == 0 else i for i in range(1001)]
    assert series.trend(drifting[:1000]) == 1
    assert series.trend(drifting) == 0
    assert series.trend([]) == 0
