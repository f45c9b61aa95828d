"""Whether a series of latencies has settled, and if not, what is wrong with it.

A median with an interval describes a series that stays where it is. These do not, and each is
said where the median is shown:

- it drifts: the Mann-Kendall test (`core.series.trend`) finds a trend, and the medians of its
  halves are further apart than the whole width of the interval that was asked for;
- it has two levels: between two neighbours of the sorted samples lies a factor of `GAP`, with a
  fifth of the samples on either side;
- it is scattered: the middle 80 % spread over more than `SPREAD` of the median;
- it was faster before: of the calls that warmed up, a fifth were faster than its fastest sample by
  a factor of `GAP`. A first call may be slow; a fast one is what the model can do;
- its interval is wider than asked, or it has none: its processes lie too far apart.

Drift is looked for within each process that measured; the others in all samples. The first and
the last rest on a test and an interval; the others are plain limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.errors import InputError
from ...core.series import between, dependence, of_processes, split, trend
from ...core.stats import Stat, median, percentile
from ..formatting import percent, times
from ..formatting import spoken_time as time
from ..model.comparison import Level, Steadiness

# Half of the interval over the median, where a capture does not say what was asked for.
TARGET = 0.02
GAP = 1.2
SIDE = 0.2
SPREAD = 0.5
# Fewer samples have no interval; with fewer than ten one sample is a tenth.
FEWEST, FEWEST_SPREAD = 6, 10


def summary(samples: Sequence[int], sizes: Sequence[int] = ()) -> Stat | None:
    """Median and interval of samples in their order; `sizes`: how many each process took."""
    try:
        return of_processes(samples, sizes)
    except ValueError as e:
        raise InputError(
            f"a latency.json contradicts itself: {e}", fix="measure again (layerline profile)"
        ) from None


def judge(
    samples: Sequence[int],
    target: float | None = None,
    of: Sequence[int] = (),
    warmup: Sequence[int] = (),
) -> Steadiness | None:
    """What the samples, in the order in which they were taken, say of their own steadiness.

    `target`: half of the interval over the median that was asked for; null where nothing was.
    `of`: how many samples each process took. `warmup`: the calls before them, in ns. Null without
    samples; `settled` null where they are too few to tell.
    """
    whole = summary(samples, of)
    if whole is None:
        return None
    ordered = sorted(samples)
    parts = split(samples, of)
    effective = round(sum(len(p) / dependence(p) for p in parts))
    steadiness = Steadiness(
        n=whole.n,
        effective=effective,
        width=whole.relative_width,
        target=target,
        drift=_drift(parts, target or TARGET),
        levels=_levels(ordered),
        p10_ns=percentile(ordered, 0.1),
        p90_ns=percentile(ordered, 0.9),
        faults=[],
        settled=None,
    )
    if whole.n < FEWEST:
        return steadiness
    faults = _faults(steadiness, whole, [median(sorted(part)) for part in parts])
    faults += _faster_before(warmup, ordered[0])
    return replace(steadiness, faults=faults, settled=not faults)


def evidence(which: Mapping[str, tuple[Sequence[int], Sequence[int]]]) -> str:
    """Which of these series (samples, and how many each process took) have not settled, and what is
    wrong with each first of all, for a sentence; empty where all have."""
    judged = {name: judge(samples, of=of) for name, (samples, of) in which.items()}
    return "; ".join(f"{name} {s.faults[0]}" for name, s in judged.items() if s and s.faults)


def _drift(parts: Sequence[Sequence[int]], target: float) -> float | None:
    """The second half's median over the first's, of the process that drifts most; null: none."""
    drifts = []
    for part in parts:
        if trend(part):
            half = len(part) // 2
            first, second = median(sorted(part[:half])), median(sorted(part[-half:]))
            if first and second and abs(second - first) > 2 * target * min(first, second):
                drifts.append(second / first)
    return max(drifts, key=lambda d: max(d, 1 / d), default=None)


def _least(n: int) -> int:
    """How many of n make a level."""
    return max(3, -int(-SIDE * n // 1))


def _levels(ordered: Sequence[int]) -> list[Level]:
    """The two levels of sorted samples, or none."""
    n = len(ordered)
    least = _least(n)
    cuts = [
        (ordered[i] / ordered[i - 1], i) for i in range(least, n - least + 1) if ordered[i - 1] > 0
    ]
    gap, cut = max(cuts, default=(1.0, 0))
    if gap < GAP:
        return []
    return [Level(median(part), len(part) / n) for part in (ordered[:cut], ordered[cut:])]


def _faster_before(warmup: Sequence[int], fastest: int) -> list[str]:
    faster = [ns for ns in warmup if ns * GAP < fastest]
    if len(faster) < _least(len(warmup)):
        return []
    share, before = percent(len(faster) / len(warmup)), time(median(sorted(faster)))
    return [f"was faster before: {share} of the calls that warmed up took about {before}"]


def _faults(series: Steadiness, whole: Stat, medians: Sequence[int]) -> list[str]:
    """`medians`: of each process."""
    faults = []
    if series.drift is not None:
        faults.append(f"drifts: second half {times(series.drift)} the first")
    if series.levels:
        low, high = series.levels
        faults.append(
            f"has two levels: {percent(low.share)} of samples near {time(low.ns)}, "
            f"{percent(high.share)} near {time(high.ns)}"
        )
    elif whole.n >= FEWEST_SPREAD and series.p90_ns - series.p10_ns > SPREAD * whole.median:
        low_ns, high_ns = time(series.p10_ns), time(series.p90_ns)
        faults.append(f"is scattered: the middle 80 % lie between {low_ns} and {high_ns}")
    if len(medians) > 1 and between(medians) is None:
        low_ns, high_ns = time(min(medians)), time(max(medians))
        far = f"its {len(medians)} processes lie too far apart ({low_ns} to {high_ns})"
        faults.append(f"has no interval: {far}")
    width, target = series.width, series.target
    if width is not None and target is not None and width > target:
        asked = f"has an interval wider than asked: ±{percent(width)}, asked ±{percent(target)}"
        few = f", its {whole.n} samples worth {series.effective} independent ones"
        faults.append(asked + (few if series.effective < whole.n else ""))
    return faults
