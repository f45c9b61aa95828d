"""Series that have not settled are said to be none, by what is wrong with them."""

from __future__ import annotations

import random
from typing import Any

import pytest

from layerline.analysis.checks import latency, steadiness
from layerline.analysis.model.comparison import Level
from layerline.core.errors import InputError

MS = 1_000_000


def noise(n: int, middle: int, spread: int, seed: int = 1) -> list[int]:
    rng = random.Random(seed)
    return [middle + rng.randrange(-spread, spread + 1) for _ in range(n)]


def judged(samples: list[int], target: float | None = 0.02, **more: Any) -> Any:
    found = steadiness.judge(samples, target, **more)
    assert found is not None
    return found


def test_a_steady_series_has_no_faults() -> None:
    found = judged(noise(100, 10 * MS, MS // 10))
    assert (found.settled, found.faults, found.effective) == (True, [], 100)
    assert found.drift is None and found.levels == []


def test_samples_that_alternate_have_two_levels() -> None:
    found = judged([12 * MS, 150 * MS] * 15)
    assert found.settled is False
    assert found.levels == [Level(12 * MS, 0.5), Level(150 * MS, 0.5)]
    assert found.faults[0] == "has two levels: 50.0 % of samples near 12.0 ms, 50.0 % near 150 ms"
    # Ranks 10 and 21 of 30: half of 12 to 150 over the median of 81.
    assert found.width == pytest.approx((150 - 12) / 2 / 81)
    assert found.faults[1] == "has an interval wider than asked: ±85.2 %, asked ±2.0 %"


def test_a_narrow_interval_does_not_hide_the_second_level() -> None:
    # 7 of 10 are fast: the median's interval lies among them.
    found = judged(([10 * MS] * 7 + [13 * MS] * 3) * 10)
    assert found.width == 0
    assert [round(level.share, 1) for level in found.levels] == [0.7, 0.3]
    assert found.settled is False


def test_a_few_outliers_are_no_level() -> None:
    samples = noise(50, 10 * MS, MS // 10)
    samples[7] = samples[31] = samples[44] = 90 * MS
    assert judged(samples).settled is True


def test_a_series_that_drifts_says_by_how_much() -> None:
    # 225 to 690 ms in 32 steps of 15: the halves' medians are 337.5 and 577.5.
    found = judged([(225 + 15 * i) * MS for i in range(32)])
    assert found.drift == pytest.approx(577.5 / 337.5)
    assert found.faults[0] == "drifts: second half 1.71× the first"
    assert found.effective < 16


def test_a_drift_within_what_was_asked_for_is_none() -> None:
    # 1 % from first to last, steadily: the trend is sure, and less than 2 * 2 %.
    samples = [10 * MS + i * MS // 500 for i in range(50)]
    assert judged(samples).drift is None
    assert judged(samples, 0.001).drift == pytest.approx(1.005, abs=1e-3)


def test_scattered_samples_are_said_with_their_range() -> None:
    # 10 to 29 ms in an order without trend: p10 is 11, p90 is 27, the median 19.5.
    order = random.Random(5).sample(range(10, 30), 20)
    found = judged([x * MS for x in order], None)
    assert (found.p10_ns, found.p90_ns) == (11 * MS, 27 * MS)
    assert found.faults == ["is scattered: the middle 80 % lie between 11.0 ms and 27.0 ms"]


def test_a_missed_target_is_a_fault_and_an_unknown_one_is_not() -> None:
    samples = noise(40, 10 * MS, 2 * MS)
    assert judged(samples, None).settled is True
    (fault,) = judged(samples).faults
    assert fault.startswith("has an interval wider than asked: ±") and "asked ±2.0 %" in fault


def test_too_few_samples_are_no_verdict() -> None:
    found = judged([5, 500, 5])
    assert (found.settled, found.faults) == (None, [])
    assert steadiness.judge([]) is None


def test_each_process_drifts_for_itself() -> None:
    # Three loads of an engine, each at a level of its own: from one to the next is no drift.
    loads = [noise(30, ns, MS // 100, seed=i) for i, ns in enumerate((10 * MS, 11 * MS, 12 * MS))]
    samples = [ns for load in loads for ns in load]
    assert judged(samples, None, of=[30, 30, 30]).settled is True
    assert judged(samples, None).drift is not None
    # The interval covers that of each load.
    found = steadiness.summary(samples, [30, 30, 30])
    assert found is not None and found.low is not None and found.high is not None
    assert found.low < 10.01 * MS and found.high > 11.99 * MS


def test_processes_that_are_not_those_of_the_samples_are_refused() -> None:
    with pytest.raises(InputError, match="contradicts itself"):
        steadiness.summary([1] * 9, [3, 3])


def test_the_third_check_says_what_is_known_and_not_why() -> None:
    # 71 % less time while profiled is no cost of the profiler.
    found = latency.cost([29] * 9, [100] * 9)
    assert (found.ok, found.residual_ns) == (False, -71)
    assert "the profiled run took 71.0 % less" in found.text
    assert "more than the 10.0 % allowed" in found.text
    assert "the machine was not steady" in found.text
    assert "or profiling changed the speed" in found.text


def test_the_third_check_names_the_series_that_had_not_settled() -> None:
    found = latency.cost([29 * MS] * 9, [(225 + 15 * i) * MS for i in range(32)])
    assert found.ok is False
    assert (
        "a series had not settled (the unprofiled series drifts: second half 1.71× the first"
        in found.text
    )
    steady_ = latency.cost([100] * 9, [100] * 9)
    assert steady_.text == "The profiled run took as long as the unprofiled one."
