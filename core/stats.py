"""Statistics of repeated measurements: order statistics only, no assumption of a distribution.

Latencies are skewed and have outliers, so the centre is the median and its interval is the
binomial (order statistic) interval: the pair of samples x(k), x(n+1-k) with the largest k for
which P(Binomial(n, 1/2) < k) <= (1 - CONFIDENCE) / 2. It is exact for independent samples of any
distribution. Fewer than six samples have no 95 % interval: it is None, not a guess.
Samples that depend on one another have a wider one: `core.series`.

Student's t, for the means of few processes, without a library: its tail is half of the regularised
incomplete beta function I(df / (df + t*t); df / 2, 1 / 2), by its continued fraction (Abramowitz
and Stegun, 26.7.1 and 26.5.8); the quantile inverts it by halving an interval.
Source: David and Nagaraja, Order Statistics, 3rd ed., section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, TypeVar

Number = TypeVar("Number", int, float)

CONFIDENCE = 0.95
_NORMAL = 1e5  # from so many degrees of freedom on, the normal distribution


@dataclass(frozen=True)
class Estimate:
    """A median with its interval, of `n` samples in their unit (integer nanoseconds here).

    `low` and `high` are None where the samples are too few, all is None without samples.
    """

    median: int | None = None
    low: int | None = None
    high: int | None = None
    n: int = 0

    def figures(self) -> dict[str, int | None]:
        """Median, low, high and n by name: for JSON."""
        return {"median": self.median, "low": self.low, "high": self.high, "n": self.n}


UNMEASURED = Estimate()


@dataclass(frozen=True, kw_only=True)
class Stat(Estimate):
    """The summary of samples that are there: what is estimated, and how far they lie apart."""

    median: int
    p90: int
    p99: int
    minimum: int
    maximum: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the same names."""
        order = ("n", "median", "p90", "p99", "low", "high", "minimum", "maximum")
        return {name: getattr(self, name) for name in order}

    @property
    def relative_width(self) -> float | None:
        """Half the interval's width over the median; None without an interval."""
        if self.low is None or self.high is None or self.median == 0:
            return None
        return (self.high - self.low) / 2 / self.median


def percentile(ordered: Sequence[int], share: float) -> int:
    """The nearest-rank percentile of sorted samples: the ceil(share * n)-th smallest."""
    rank = max(1, math.ceil(share * len(ordered) - 1e-9))
    return ordered[rank - 1]


def median(ordered: Sequence[int]) -> int:
    """The median of sorted samples; of an even number, the mean of the middle two, rounded."""
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return round((ordered[middle - 1] + ordered[middle]) / 2)


@lru_cache(maxsize=1024)
def interval_rank(n: int) -> int | None:
    """The largest k for which [x(k), x(n+1-k)] covers the median; None where none does."""
    tail = (1 - CONFIDENCE) / 2
    cumulative, k = 0.0, 0
    while k < (n + 1) // 2:
        log_p = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
        cumulative += math.exp(log_p)
        if cumulative > tail:
            break
        k += 1
    return k or None


def summarise(samples: Iterable[int]) -> Stat | None:
    """Summarise samples; None when there are none."""
    return of_ordered(sorted(int(s) for s in samples))


def of_ordered(ordered: Sequence[int]) -> Stat | None:
    """As `summarise`, of samples that are sorted."""
    n = len(ordered)
    if not n:
        return None
    k = interval_rank(n)
    return Stat(
        n=n,
        median=median(ordered),
        p90=percentile(ordered, 0.90),
        p99=percentile(ordered, 0.99),
        low=None if k is None else ordered[k - 1],
        high=None if k is None else ordered[n - k],
        minimum=ordered[0],
        maximum=ordered[-1],
    )


def ratio(over: Estimate, under: Estimate) -> tuple[float, float | None, float | None] | None:
    """over / under, with low and high of the interval that holds when each median lies in its own.

    Conservative: low = over.low / under.high, high = over.high / under.low, so coverage is at
    least 2 * CONFIDENCE - 1. None where a median is missing or zero.
    """
    if over.median is None or not under.median:
        return None
    value = over.median / under.median
    if over.low is None or over.high is None or under.high is None or not under.low:
        return value, None, None
    return value, over.low / under.high, over.high / under.low


def survival(t: float, df: float) -> float:
    """P(T > t). ValueError where `df` is not above 0."""
    if df <= 0:
        raise ValueError(f"{df} degrees of freedom")
    if df > _NORMAL:
        return NormalDist().cdf(-t)
    if math.isinf(t):
        return 0.0 if t > 0 else 1.0
    tail = _beta(df / (df + t * t), df / 2, 0.5) / 2
    return tail if t >= 0 else 1 - tail


def quantile(p: float, df: float) -> float:
    """The t that a share `p` lies below, 0.5 <= p < 1, of `df` down to a tenth: then a little wide.

    ValueError for another share.
    """
    if not 0.5 <= p < 1:
        raise ValueError(f"a quantile of {p}")
    return _quantile(p, math.floor(df * 10) / 10 if df > 1 else df)


@lru_cache(maxsize=4096)
def _quantile(p: float, df: float) -> float:
    low, high = 0.0, 1.0
    while survival(high, df) > 1 - p:
        high *= 2
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if survival(middle, df) > 1 - p else (low, middle)
    return (low + high) / 2


def _beta(x: float, a: float, b: float) -> float:
    """I(x; a, b), regularised."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta(1 - x, b, a)
    log = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(log + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, _inverse(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = _inverse(1 + term * d)
            c = 1 + term / c or 1e-300
            value *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return value


def _inverse(value: float) -> float:
    return 1 / (value or 1e-300)


def less(a: Number | None, b: Number | None) -> Number | None:
    """`a` less `b`; None where one of them is not known."""
    return None if a is None or b is None else a - b


def sum_all(values: Iterable[Number | None]) -> Number | None:
    """The sum; None where one of them is not known."""
    every = list(values)
    known = [v for v in every if v is not None]
    return sum(known) if len(known) == len(every) else None
