"""Student's t, without a library: tails and quantiles for any number of degrees of freedom.

The tail is half of the regularised incomplete beta function I(df / (df + t*t); df / 2, 1 / 2),
by its continued fraction (Abramowitz and Stegun, 26.7.1 and 26.5.8); the quantile inverts it by
halving an interval.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_NORMAL = 1e5  # from so many degrees of freedom on, the normal distribution


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
