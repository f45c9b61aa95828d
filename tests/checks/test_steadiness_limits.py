"""Where steadiness begins and ends: each limit from both sides."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from layerline.analysis.checks.steadiness import evidence, judge
from layerline.analysis.model.comparison import Steadiness
from layerline.core.errors import InputError


def judged(samples: list[int], target: float | None = 0.02, of: Sequence[int] = ()) -> Steadiness:
    found = judge(samples, target, of)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("low", "high", "two"),
    [
        (3, 7, True), (7, 3, True), (2, 8, False), (8, 2, False), (1, 9, False), (9, 1, False),
        # Of eighteen a fifth is 3.6: four at least.
        (3, 15, False), (15, 3, False), (4, 14, True), (14, 4, True),
    ],
)  # fmt: skip
def test_a_level_has_a_fifth_of_the_samples_and_three(low: int, high: int, two: bool) -> None:
    found = judged([1000] * low + [2000] * high)
    expected = [(1000, low / (low + high)), (2000, high / (low + high))] if two else []
    assert [(x.ns, x.share) for x in found.levels] == expected


def test_levels_are_a_fifth_apart_and_nothing_is_no_level_to_divide_by() -> None:
    assert len(judged([10] * 5 + [12] * 5).levels) == 2
    assert judged([100] * 5 + [119] * 5).levels == []
    assert len(judged([1] * 5 + [2] * 5).levels) == 2
    assert judged([0] * 5 + [9] * 5).levels == []
    assert [x.ns for x in judged([0] * 4 + [5] + [100] * 5).levels] == [0, 100]


def rising(to: int, between: Sequence[int] = ()) -> list[int]:
    """Seven around 1000 and seven around `to`, each in ascending order."""
    return [*range(997, 1004), *between, *range(to - 3, to + 4)]


def test_a_drift_is_twice_the_target_between_the_halves() -> None:
    assert judged(rising(1040)).drift is None
    assert judged(rising(1041)).drift == 1.041
    assert judged(rising(1041), 0.03).drift is None
    assert judged(rising(1041), None).drift == 1.041  # nothing was asked: 2 %
    # Of an odd number the one in the middle is in neither half.
    assert judged(rising(1041, [1004])).drift == 1.041
    assert judged(rising(1040, [1004])).drift is None
    assert judged(rising(1041)[::-1]).drift == 1000 / 1041


def test_of_processes_the_one_that_drifts_most_is_told_up_or_down() -> None:
    up, down = rising(1080), rising(1120)[::-1]
    assert judged(up + down, of=[14, 14]).drift == 1000 / 1120
    assert judged(rising(1500) + rising(1400)[::-1], of=[14, 14]).drift == 1.5


def test_a_jump_between_processes_is_no_drift_of_either() -> None:
    samples = [1000 + i % 3 for i in range(9)] + [1100 + i % 3 for i in range(9)]
    assert judged(samples).drift is not None
    found = judged(samples, of=[9, 9])
    assert found.drift is None and found.n == 18
    # Three processes and their mean: 4.303 * 57.7 / sqrt(3) on both sides of the median of 1001.
    three = judged([*samples, *samples[:9]], None, [9, 9, 9])
    assert three.width is not None and three.width > 0.1
    told = evidence({"a": (samples, [9, 9]), "b": (samples, [])})
    assert told == "b drifts: second half 1.10× the first"
    assert evidence({"a": (samples[:9], []), "none": ([], [])}) == ""


def test_from_six_samples_on_a_series_is_judged() -> None:
    assert judged([5] * 5).settled is None and judged([5] * 6).settled is True
    assert judge([]) is None


def test_samples_are_scattered_from_ten_on_and_beyond_half_of_the_median() -> None:
    # Ranks 1 and 9 of ten: 75 to 125 around 100 are half of it, 126 are more.
    even = [75, 130, 80, 125, 85, 115, 90, 110, 100, 100]
    assert judged(even, None).faults == []
    wide = [75, 130, 80, 126, 85, 115, 90, 110, 100, 100]
    (fault,) = judged(wide, None).faults
    assert fault == "is scattered: the middle 80 % lie between 75 ns and 126 ns"
    assert judged(wide[1:], None).faults == []


def test_an_interval_as_wide_as_asked_is_none_too_wide() -> None:
    samples = [98, 99, 100, 100, 101, 102]  # of six the range: 2 on both sides of 100
    assert judged(samples, 0.02).faults == []
    (fault,) = judged(samples, 0.019).faults
    assert fault == "has an interval wider than asked: ±2.0 %, asked ±1.9 %"
    assert judged(samples, None).faults == []


def test_samples_that_depend_on_one_another_are_said_to_be_worth_fewer() -> None:
    samples = ([100] * 4 + [103] * 4) * 4
    found = judged(samples, 0.001)
    assert found.effective == 16  # 32 over 2 * 49 / 32 - 1
    assert found.faults[-1].endswith(", its 32 samples worth 16 independent ones")


def test_processes_too_far_apart_for_an_interval_have_not_settled() -> None:
    # 100 and 117: 108.5 - 12.706 * 17 / 2 = 0.5, which is no time; 100 and 116: 6.4.
    found = judged([100] * 6 + [117] * 6, None, [6, 6])
    assert (found.width, found.settled) == (None, False)
    assert found.faults == ["has no interval: its 2 processes lie too far apart (100 ns to 117 ns)"]
    assert judged([100] * 6 + [116] * 6, None, [6, 6]).faults == []


def test_sizes_that_are_not_those_of_the_samples_say_what_to_do() -> None:
    with pytest.raises(InputError, match="contradicts itself") as caught:
        judge([1, 2, 3], of=[1, 1])
    assert caught.value.fix == "measure again (layerline profile)"


def test_a_series_that_was_faster_while_it_warmed_up_has_not_settled() -> None:
    # Two slow first calls, six at 157 µs, two as slow as all that was measured: 6 of 10.
    before = [83_000_000] * 2 + [157_000] * 6 + [88_000_000] * 2
    found = judge([88_000_000] * 25, 0.02, warmup=before)
    assert found is not None
    assert found.settled is False
    assert found.faults == [
        "was faster before: 60.0 % of the calls that warmed up took about 157 µs"
    ]


@pytest.mark.parametrize(
    ("warmup", "faults"),
    [
        ([2000] * 10, 0),  # slow at first, as warming up is for
        ([832] * 3 + [1000] * 12, 1), ([834] * 3 + [1000] * 12, 0),  # a factor of 1.2
        ([500] * 2, 0), ([500] * 3, 1), ([500] * 3 + [1000] * 13, 0),  # three, and a fifth
    ],
)  # fmt: skip
def test_faster_before_is_a_fifth_of_the_warm_up_three_calls_and_a_factor(
    warmup: list[int], faults: int
) -> None:
    found = judge([1000] * 20, 0.02, warmup=warmup)
    assert found is not None
    assert len(found.faults) == faults
