"""Whether two measurements differ, by how far processes, runs and builds lie apart.

An interval within one process says nothing of the next process: memory lies elsewhere, a builder
took another tactic, a neighbour came. So the unit here is a process, or a run where there are
several, and its median is one value:

- `change`: B - A with its standard error and degrees of freedom, after Welch (The generalization
  of Student's problem, Biometrika 34, 1947); of values that were taken in turn, of their
  differences, so that what drifts for both cancels; where one side has one value, with the other's
  variance.
- With several runs of several processes the larger of two variances of the mean counts: between
  runs, and between processes of one run.
- A variance is at least what the intervals within processes leave open: equal medians of few
  processes are chance.
- `drift`: where the values of a side go one way, the next session may start where they ended.
- `discoveries`: which of many p-values are differences, with a bounded share of false ones
  (Benjamini and Hochberg, Controlling the false discovery rate, J. R. Statist. Soc. B 57, 1995).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from ...core.stats import quantile, survival
from ..model.baseline import Quantity

_NORMAL_95 = 1.96
# A drift is looked for so keenly that two in five sides that have none seem to: what is allowed for
# it costs power, and one that is missed is a false alarm.
_KEEN = 0.8
_FEWEST_DRIFTING = 3


@dataclass(frozen=True)
class Mean:
    """The mean of units; `variance`: of the mean, None of one unit. `units`: how many."""

    value: float
    variance: float | None
    df: float
    units: int


@dataclass(frozen=True)
class Change:
    """B - A in the unit of both. `error`: its standard error, None where it cannot be known;
    `allowance`: what drift and builds may add, in either direction."""

    before: float
    after: float
    error: float | None
    df: float
    allowance: float = 0.0

    @property
    def by(self) -> float:
        """B - A."""
        return self.after - self.before

    def p(self) -> float | None:
        """The chance of such a growth, or a larger one, where there is none."""
        return self._tail(self.by - self.allowance)

    def p_less(self) -> float | None:
        """The same of shrinking."""
        return self._tail(-self.by - self.allowance)

    def _tail(self, by: float) -> float | None:
        if self.error is None:
            return None
        if self.error == 0:
            return 0.0 if by > 0 else 1.0
        return survival(by / self.error, self.df)

    def reach(self, confidence: float) -> float:
        """How far beyond `by` the truth lies at most, one-sided; infinite where nobody knows."""
        if self.error is None:
            return math.inf
        return (quantile(confidence, self.df) * self.error if self.error else 0) + self.allowance


def change(a: Quantity, b: Quantity, *, in_turn: bool = False, build_noise: float = 0.0) -> Change:
    """B against A; `build_noise`: how far two builds of it lie apart, as a share."""
    first, second = _mean(a), _mean(b)
    allowed = build_noise * first.value
    if a.exact and b.exact:
        return Change(first.value, second.value, 0.0, 1.0)
    of_pairs = _paired(a, b) if in_turn else None
    if of_pairs is not None:
        error, df = of_pairs
        return Change(first.value, second.value, error, df, allowed)
    error_, df = _welch(first, second)
    allowed += max(drift(_units(a)), drift(_units(b)))
    return Change(first.value, second.value, error_, df, allowed)


def _welch(a: Mean, b: Mean) -> tuple[float | None, float]:
    va, vb, da, db = a.variance, b.variance, a.df, b.df
    if va is None and vb is None:
        return None, 1.0
    if va is None and vb is not None:
        va, da = vb * b.units, db
        return math.sqrt(va + vb), db
    if vb is None and va is not None:
        return math.sqrt(va * (1 + a.units)), da
    assert va is not None and vb is not None
    if not va + vb:
        return 0.0, da + db
    return math.sqrt(va + vb), (va + vb) ** 2 / (va**2 / da + vb**2 / db)


def _paired(a: Quantity, b: Quantity) -> tuple[float, float] | None:
    """Error and degrees of freedom of the mean difference; None where the values do not pair."""
    x, y = _units(a), _units(b)
    if len(x) != len(y) or len(x) < 2:
        return None
    differences = [v - u for u, v in zip(x, y, strict=True)]
    variance = statistics.variance(differences) / len(x)
    least = _least(a, len(x)) + _least(b, len(y))
    return math.sqrt(max(variance, least)), len(x) - 1.0


def _units(of: Quantity) -> list[float]:
    """A value a process where there is one run, else a value a run."""
    if len(of.runs) == 1:
        return [float(v) for v in of.runs[0]]
    return [statistics.fmean(run) for run in of.runs]


def _mean(of: Quantity) -> Mean:
    units = _units(of)
    value, n = statistics.fmean(units), len(units)
    if n == 1:
        return Mean(value, None, 1.0, 1)
    variance, df = statistics.variance(units) / n, n - 1.0
    processes = len(of.values)
    inside, inner_df = 0.0, processes - len(of.runs)
    if len(of.runs) > 1 and inner_df > 0:
        squares = sum(statistics.variance(r) * (len(r) - 1) for r in of.runs if len(r) > 1)
        inside = squares / inner_df / processes
    if inside > variance:
        variance, df = inside, float(inner_df)
    return Mean(value, max(variance, _least(of, processes)), df, n)


def _least(of: Quantity, n: int) -> float:
    """The least variance of a mean of `n` medians, by the intervals within processes."""
    return ((of.within or 0) / _NORMAL_95) ** 2 / n


def drift(values: Sequence[float]) -> float:
    """How far a side goes on in as many values as it has, by the median of all slopes (Theil and
    Sen); 0 where its values go no way (Mann and Kendall)."""
    n = len(values)
    if n < _FEWEST_DRIFTING:
        return 0.0
    pairs = list(combinations(range(n), 2))
    order = sum((values[j] > values[i]) - (values[j] < values[i]) for i, j in pairs)
    if abs(order) < _KEEN * math.sqrt(n * (n - 1) * (2 * n + 5) / 18):
        return 0.0
    return abs(statistics.median((values[j] - values[i]) / (j - i) for i, j in pairs)) * n


def discoveries(p: Sequence[float], rate: float) -> list[bool]:
    """Which are differences, at most `rate` of them false ones, on average."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    last = max((k for k, i in enumerate(order, 1) if p[i] <= rate * k / len(p)), default=0)
    chosen = set(order[:last])
    return [i in chosen for i in range(len(p))]
