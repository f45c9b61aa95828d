"""An engine measured in several processes: joined samples, an interval over all of them."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core.series import between, of_processes, sizes
from layerline.core.stats import median, summarise
from layerline.profile.engine.processes import combine


def answer(latency: list[int], **facts: Any) -> dict[str, Any]:
    """What a worker says; its queued times are one less than its latencies."""
    return {
        "ok": True,
        "latency_ns": latency,
        "warmup_ns": [9],
        "queued_ns": [ns - 1 for ns in latency],
        "facts": {"ended_by": "target", "target_met": True, "clock": "device events", **facts},
    }


A, B, C = [100, 101, 102, 103, 104, 105], [110] * 6, [90, 90, 91, 91, 92, 92]


def test_the_interval_covers_that_of_each_process_and_of_processes_not_seen() -> None:
    found = of_processes(A + B + C, [6, 6, 6])
    # Medians 102.5 (rounded to 102), 110 and 91: mean 101, s = sqrt((1 + 81 + 100) / 2) = 9.539;
    # t of 2 degrees of freedom 4.303: 101 -+ 4.303 * 9.539 / sqrt(3) = 77.3 to 124.7.
    assert found is not None
    assert (found.median, found.low, found.high, found.n) == (102, 77, 125, 18)


def test_processes_that_agree_add_nothing_to_the_interval_of_each() -> None:
    found = of_processes(A * 2, [6, 6])
    # Six samples: the 95 % interval is their range.
    assert found is not None
    assert (found.median, found.low, found.high) == (102, 100, 105)


@pytest.mark.parametrize("k", [3, 5, 12])
def test_the_interval_of_processes_holds_as_often_as_it_says(k: int) -> None:
    """Of 4,000 measurements of k processes whose medians scatter by 0.6 %, 95 % hold the middle."""
    draw = random.Random(20 + k).gauss
    held = 0
    for _ in range(4000):
        ends = between([round(draw(1e6, 6e3)) for _ in range(k)])
        held += ends is not None and ends[0] <= 1_000_000 <= ends[1]
    assert 0.94 < held / 4000 < 0.965


def test_processes_too_far_apart_for_an_interval_leave_none() -> None:
    # Medians 330, 595 and 920: mean 615, s = 295.5, and 4.303 * s / sqrt(3) = 734.
    found = of_processes([330] * 6 + [595] * 6 + [920] * 6, [6] * 3)
    assert found is not None
    assert (found.median, found.low, found.high, found.relative_width) == (595, None, None, None)


def test_a_process_too_short_for_an_interval_leaves_none() -> None:
    found = of_processes([*A, 100], [6, 1])
    assert found is not None
    assert (found.low, found.high) == (None, None)


@pytest.mark.parametrize("processes", [None, [], [{"n": 6}]])
def test_one_process_is_as_ever(processes: list[Any] | None) -> None:
    assert of_processes(A, sizes({"processes": processes})) == summarise(A)


def test_sizes_that_are_not_those_of_the_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="6 samples in processes of"):
        of_processes(A, [6, 6])


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=6, max_size=30), min_size=2, max_size=5))
def test_no_process_lies_outside(groups: list[list[int]]) -> None:
    found = of_processes([x for g in groups for x in g], [len(g) for g in groups])
    assert found is not None
    if found.low is None or found.high is None:
        assert between([median(sorted(g)) for g in groups]) is None
        assert (found.low, found.high) == (None, None)
        return
    for g in groups:
        own = summarise(g)
        assert own is not None and own.low is not None and own.high is not None
        assert found.low <= own.low <= own.high <= found.high
    assert found.low <= found.median <= found.high


def test_samples_are_joined_in_order_and_each_process_is_told() -> None:
    found = combine([answer(A), answer(B, ended_by="seconds", target_met=False)])
    assert found["latency_ns"] == A + B
    assert found["queued_ns"] == [x - 1 for x in A + B]
    assert found["warmup_ns"] == [9, 9]
    assert [(p["n"], p["queued_n"], p["median"]) for p in found["processes"]] == [
        (6, 6, 102),
        (6, 6, 110),
    ]
    assert (found["facts"]["ended_by"], found["facts"]["target_met"]) == ("seconds", False)
    assert found["facts"]["clock"] == "device events"


def test_a_series_that_one_process_lacks_does_not_stand_for_all() -> None:
    second = answer(B)
    del second["queued_ns"]
    found = combine([answer(A), second])
    assert "queued_ns" not in found
    assert found["facts"]["queued"] is False


def test_one_answer_is_left_as_it_is() -> None:
    only = answer(A)
    assert combine([only]) == only


def gpu(samples: int, mhz: int, **throttled: float) -> dict[str, Any]:
    return {
        "samples": samples,
        "sm_mhz": {"median": mhz, "min": mhz - 10, "max": mhz + 10},
        "throttled": throttled,
    }


def test_a_gpu_that_slowed_down_in_one_process_is_told() -> None:
    found = combine([answer(A, gpu=gpu(30, 1980)), answer(B, gpu=gpu(10, 1500, power_cap=0.8))])
    assert found["facts"]["gpu"] == {
        "samples": 40,
        "sm_mhz": {"median": 1740, "min": 1490, "max": 1990},
        "throttled": {"power_cap": 0.2},  # 8 of 40 samples
    }


def test_a_gpu_that_was_not_seen_once_is_not_seen() -> None:
    blind = {"samples": 0, "missing": "no NVML"}
    assert combine([answer(A, gpu=gpu(3, 1980)), answer(B, gpu=blind)])["facts"]["gpu"] == blind
