"""Series of repeated measurements in the order in which they were taken.

`core.stats` takes samples as independent. Latencies often are not: a clock that settles, a
neighbour that comes and goes, a cache that fills make one sample like the one before it. Then
fewer samples than were taken are worth something, and the interval of the median is wider:

- `dependence`: how many samples are worth one, tau = 1 + 2 * sum of the autocorrelations of the
  signs of x - median. It is these signs on whose variance the interval of a median rests, and with
  dependence that variance is tau times as large (Heidelberger and Lewis, Quantile estimation in
  dependent sequences, Operations Research 32, 1984). The sum is cut by Geyer's initial positive
  sequence (Practical Markov chain Monte Carlo, Statistical Science 7, 1992). Estimated from
  independent samples it would be above 1 half of the time, by chance; so it is 1 unless the runs
  test (Wald and Wolfowitz, Annals of Mathematical Statistics 11, 1940) finds too few runs above
  and below the median.
- `in_order`: the summary of `core.stats` with its ranks sqrt(tau) times as far from the middle,
  at most the smallest and the largest sample. Where these are reached (fewer than about six of
  the samples are independent) the interval is the range that was seen, and no longer 95 %.
- `of_processes`: the same of samples that several processes took, where the processes too are a
  sample: Student's t over their medians (Student, The probable error of a mean, Biometrika 6,
  1908). The range of three processes' medians holds the middle of all processes' only three times
  in four.
- `trend`: whether the series drifts, by the Mann-Kendall rank test (Mann, Econometrica 13, 1945;
  Kendall, Rank Correlation Methods), with the variance for ties.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from statistics import NormalDist, fmean, stdev
from typing import Any

from .stats import Stat, interval_rank, median, summarise

# One-sided: only too few runs (samples like their neighbours) make an interval too narrow.
RUNS_LEVEL = 0.05
TREND_LEVEL = 0.01
# Pairs grow with the square of the samples; beyond, every second (third, ...) sample tells enough.
TREND_SAMPLES = 1000
# Student's t, two-sided 95 %, by degrees of freedom from 1; beyond, the last is a little too wide.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def signs(samples: Sequence[int]) -> list[int]:
    """-1, 0 or 1 for each sample: below, at or above the median of all."""
    middle = median(sorted(samples))
    return [(x > middle) - (x < middle) for x in samples]


def too_few_runs(sign: Sequence[int]) -> bool:
    """Whether samples above and below the median stand together more than chance would have it.

    The runs test with its normal approximation and continuity correction, one-sided; samples at
    the median are left out.
    """
    sides = [s for s in sign if s]
    above, n = sum(s > 0 for s in sides), len(sides)
    below = n - above
    if not above or not below or n < 6:
        return False
    runs = 1 + sum(a != b for a, b in pairwise(sides))
    pairs = 2 * above * below
    deviation = math.sqrt(pairs * (pairs - n) / (n * n * (n - 1)))
    return (runs + 0.5 - pairs / n - 1) / deviation < NormalDist().inv_cdf(RUNS_LEVEL)


def dependence(samples: Sequence[int]) -> float:
    """How many samples, in the order in which they were taken, are worth one independent sample.

    1 where nothing says that they depend on one another; at most their number.
    """
    if len(samples) < 6:
        return 1.0
    sign = signs(samples)
    if not too_few_runs(sign):
        return 1.0
    n, products = len(sign), _products(sign)
    total = 0.0
    for lag in range(0, n - 1, 2):
        pair = (products[lag] + products[lag + 1]) / products[0]
        if pair <= 0:
            break
        total += pair
    return min(max(1.0, 2 * total - 1), float(n))


def _products(sign: Sequence[int]) -> list[int]:
    """The sum of sign[i] * sign[i + lag], for every lag from 0.

    By the Fourier transform, because a long series that depends on itself needs many lags. The
    sums are whole numbers far below what a double holds, so rounding gives them exactly.
    """
    import numpy as np

    power = np.abs(np.fft.rfft(np.array(sign, dtype=float), 2 * len(sign))) ** 2
    sums: list[int] = np.rint(np.fft.irfft(power)[: len(sign)]).astype(int).tolist()
    return sums


def in_order(samples: Sequence[int]) -> Stat | None:
    """As `core.stats.summarise`, with an interval that holds for samples in this order.

    The ranks of the interval's ends lie sqrt(`dependence`) times as far from the middle; the
    whole range of the samples where that is beyond them.
    """
    stat = summarise(samples)
    k = None if stat is None else interval_rank(stat.n)
    if stat is None or k is None or (tau := dependence(samples)) == 1:
        return stat
    middle = (stat.n + 1) / 2
    rank = max(1, math.floor(middle - (middle - k) * math.sqrt(tau)))
    ordered = sorted(int(s) for s in samples)
    return replace(stat, low=ordered[rank - 1], high=ordered[stat.n - rank])


def sizes(latency: Mapping[str, Any], size: str = "n") -> list[int]:
    """How many samples each process took, from a latency.json; empty where one took all."""
    return [int(p.get(size) or 0) for p in latency.get("processes") or ()]


def split(samples: Sequence[int], sizes: Sequence[int]) -> list[Sequence[int]]:
    """The samples of each process, all where there was one; one without any has no part.

    ValueError where the sizes are not those of the samples.
    """
    if len(sizes) < 2:
        return [samples]
    if sum(sizes) != len(samples):
        raise ValueError(f"{len(samples)} samples in processes of {list(sizes)}")
    parts = zip(sizes, accumulate(sizes), strict=True)
    return [samples[end - n : end] for n, end in parts if n] or [samples]


def of_processes(samples: Sequence[int], sizes: Sequence[int] = ()) -> Stat | None:
    """Summary of samples that several processes took one after the other; `sizes`: how many each.

    Samples of one process say nothing of the next, so the median is the median of the processes'
    medians, and the interval covers the interval of each and `between` all (None where one of these
    is None). ValueError where the sizes are not those of the samples.
    """
    parts = split(samples, sizes)
    if len(parts) == 1:
        return in_order(samples)
    whole = summarise(samples)
    each = [stat for part in parts if (stat := in_order(part)) is not None]
    medians = [stat.median for stat in each]
    ends = [between(medians), *((s.low, s.high) for s in each)]
    lows = [None if e is None else e[0] for e in ends]
    highs = [None if e is None else e[1] for e in ends]
    return whole and replace(
        whole,
        median=median(sorted(medians)),
        low=None if None in lows else min(x for x in lows if x is not None),
        high=None if None in highs else max(x for x in highs if x is not None),
    )


def between(medians: Sequence[int]) -> tuple[int, int] | None:
    """The 95 % interval of the latency that processes have on average, by the medians of two or
    more: mean -+ t * s / sqrt(k), outwards to whole nanoseconds. None where that reaches zero: no
    latency is, so Student's t does not hold for so few that lie so far apart.
    """
    k = len(medians)
    middle, student = fmean(medians), STUDENT[min(k - 1, len(STUDENT)) - 1]
    reach = student * stdev(medians) / math.sqrt(k)
    low, high = math.floor(middle - reach), math.ceil(middle + reach)
    return (low, high) if low > 0 else None


def trend(samples: Sequence[int]) -> int:
    """1 where the series rises, -1 where it falls, 0 where the rank test finds neither.

    Needs six samples. Of a long series every second (third, ...) sample is looked at.
    """
    looked = samples[:: 1 + (len(samples) - 1) // TREND_SAMPLES] if len(samples) else samples
    n = len(looked)
    if n < 6:
        return 0
    score = sum(
        (later > earlier) - (later < earlier)
        for i, earlier in enumerate(looked)
        for later in looked[i + 1 :]
    )
    ties = sum(t * (t - 1) * (2 * t + 5) for t in Counter(looked).values())
    variance = (n * (n - 1) * (2 * n + 5) - ties) / 18
    if not variance or not score:
        return 0
    z = (abs(score) - 1) / math.sqrt(variance)
    sure = 2 * (1 - NormalDist().cdf(z)) < TREND_LEVEL
    return (1 if score > 0 else -1) if sure else 0
