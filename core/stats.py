"""Statistics of repeated measurements: order statistics only, no assumption of a distribution.

Latencies are skewed and have outliers, so the centre is the median and its interval is the
binomial (order statistic) interval: the pair of samples x(k), x(n+1-k) with the largest k for
which P(Binomial(n, 1/2) < k) <= (1 - CONFIDENCE) / 2. It is exact for independent samples of any
distribution. Fewer than six samples have no 95 % interval: it is None, not a guess.
Samples that depend on one another have a wider one: `core.series`.
Source: David and Nagaraja, Order Statistics, 3rd ed., section 7.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

CONFIDENCE = 0.95


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
    ordered = sorted(int(s) for s in samples)
    if not ordered:
        return None
    n = len(ordered)
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
