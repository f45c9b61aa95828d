"""Student's t against its closed forms for few degrees of freedom, and at the ends of its range."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import pytest

from layerline.core.stats import Estimate, _beta, quantile, ratio, summarise, survival

# Distribution functions less a half (Johnson, Kotz and Balakrishnan, Continuous Univariate
# Distributions 2, chapter 28), u = t / sqrt(df), v = 1 / (1 + u * u).
CLOSED: dict[int, Callable[[float, float], float]] = {
    1: lambda u, v: math.atan(u) / math.pi,
    2: lambda u, v: u * math.sqrt(v) / 2,
    3: lambda u, v: (u * v + math.atan(u)) / math.pi,
    4: lambda u, v: u * math.sqrt(v) * (2 + v) / 4,
    5: lambda u, v: (u * v * (1 + 2 * v / 3) + math.atan(u)) / math.pi,
    6: lambda u, v: u * math.sqrt(v) * (8 + 4 * v + 3 * v * v) / 16,
}


@pytest.mark.parametrize("df", CLOSED)
def test_the_tail_is_that_of_the_closed_form(df: int) -> None:
    for t in (0.0, 1e-6, 0.1, 0.5, 0.9, 1.0, 1.5, 2.0, 3.0, 7.0, 20.0):
        u = t / math.sqrt(df)
        expected = 0.5 - CLOSED[df](u, 1 / (1 + u * u))
        assert survival(t, df) == pytest.approx(expected, rel=1e-9, abs=1e-12), t
        assert survival(-t, df) == pytest.approx(1 - expected, rel=1e-9), t


def test_the_beta_function_with_one_whole_power_is_a_power() -> None:
    for x in (0.01, 0.2, 0.5, 0.8, 0.99):
        for a in (0.5, 1.0, 3.0, 12.5):
            assert _beta(x, a, 1.0) == pytest.approx(x**a, rel=1e-12)
            assert _beta(x, 1.0, a) == pytest.approx(1 - (1 - x) ** a, rel=1e-12)
            assert _beta(x, a, a) + _beta(1 - x, a, a) == pytest.approx(1, rel=1e-12)
    assert (_beta(0.0, 2, 3), _beta(-0.1, 2, 3)) == (0.0, 0.0)
    assert (_beta(1.0, 2, 3), _beta(1.1, 2, 3)) == (1.0, 1.0)


def test_the_ends_of_its_range() -> None:
    assert (survival(math.inf, 3), survival(-math.inf, 3)) == (0.0, 1.0)
    assert survival(0.5, math.inf) == pytest.approx(1 - NormalDist().cdf(0.5))
    assert survival(-0.5, 1e9) == pytest.approx(NormalDist().cdf(0.5))
    assert survival(1.0, 99_999) == pytest.approx(1 - NormalDist().cdf(1.0), abs=2e-6)
    # Of half a degree: beyond t, which is as far as 1, lies more than of one.
    assert 0.25 < survival(1.0, 0.5) < 0.5
    for df in (0, -1.0):
        with pytest.raises(ValueError, match=f"{df} degrees of freedom"):
            survival(1.0, df)


def test_quantiles_are_of_tenths_of_degrees() -> None:
    assert quantile(0.975, 2.59) == quantile(0.975, 2.5) != quantile(0.975, 2.6)
    assert quantile(0.975, 1.09) == quantile(0.975, 1.0) == pytest.approx(12.7062, abs=1e-4)
    # Below one degree a tenth is too much: as it is.
    assert survival(quantile(0.9, 0.77), 0.77) == pytest.approx(0.1)
    assert quantile(0.5, 7) == pytest.approx(0, abs=1e-8)
    for p in (0.49, 1.0, 1.5):
        with pytest.raises(ValueError, match=f"a quantile of {p}"):
            quantile(p, 7)


@pytest.mark.parametrize("missing", range(4))
def test_a_ratio_without_one_of_four_ends_has_no_interval(missing: int) -> None:
    ends: list[int | None] = [8, 12, 4, 6]
    assert ratio(Estimate(10, *ends[:2]), Estimate(5, *ends[2:])) == (2.0, 8 / 6, 12 / 4)
    ends[missing] = None
    assert ratio(Estimate(10, *ends[:2]), Estimate(5, *ends[2:])) == (2.0, None, None)


def test_a_summary_as_json_has_every_figure_by_its_name() -> None:
    found = summarise([4, 1, 3, 2, 6, 5])
    assert found is not None
    assert found.as_dict() == {
        "n": 6, "median": 4, "p90": 6, "p99": 6, "low": 1, "high": 6, "minimum": 1, "maximum": 6,
    }  # fmt: skip
