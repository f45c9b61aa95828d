"""What each moment of a rank is, by hand and against every single moment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis.model.ranks import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    DEPENDENCY,
    HOST,
    LAUNCH,
    SEGMENTS,
    UNKNOWN,
)
from layerline.analysis.ranks.exposed import NEVER, Activity, inside, layered, segments

# Start, end, kind, and when the call that launched it began.
Operation = tuple[int, int, int, int]
Segment = tuple[int, int, int]


def activity(operations: Sequence[Operation], *, device: bool = True) -> Activity:
    start, end, kind, launched = (
        np.array([o[i] for o in operations], t)
        for i, t in enumerate((np.int64, np.int64, np.int8, np.int64))
    )
    return Activity(start, end, kind, launched if device else None)


def cut(operations: Sequence[Operation], low: int, high: int, **more: bool) -> list[Segment]:
    found = segments(activity(operations, **more), low, high)
    assert found.schema == SEGMENTS
    return list(zip(*(found[c].to_pylist() for c in ("start", "end", "kind")), strict=True))


def test_compute_hides_communication_and_that_copies() -> None:
    operations = [
        (30, 60, COPY, 0), (20, 40, COMMUNICATION, 0), (0, 30, COMPUTE, 0), (10, 25, COMPUTE, 0),
    ]  # fmt: skip
    assert cut(operations, 0, 60) == [
        (0, 30, COMPUTE),
        (30, 40, COMMUNICATION),
        (40, 60, COPY),
    ]
    # Of the window alone, also where nothing begins or ends at its edges.
    assert cut(operations, 35, 50) == [(35, 40, COMMUNICATION), (40, 50, COPY)]


@pytest.mark.parametrize(
    ("launched", "expected"),
    [
        (5, [(10, 40, DEPENDENCY)]),  # launched before the gap
        (10, [(10, 40, DEPENDENCY)]),
        (11, [(10, 11, HOST), (11, 40, LAUNCH)]),
        (25, [(10, 25, HOST), (25, 40, LAUNCH)]),
        (39, [(10, 39, HOST), (39, 40, LAUNCH)]),
        (40, [(10, 40, HOST)]),
        (50, [(10, 40, HOST)]),  # clocks of host and device may disagree a little
        (NEVER, [(10, 40, UNKNOWN)]),
    ],
)
def test_a_gap_is_told_by_the_call_that_launched_what_runs_next(
    launched: int, expected: list[Segment]
) -> None:
    operations = [(0, 10, COMPUTE, 0), (40, 50, COMPUTE, launched)]
    whole = [(0, 10, COMPUTE), *expected, (40, 50, COMPUTE)]
    assert cut(operations, 0, 50) == whole
    assert cut(operations[::-1], 0, 50) == whole
    # Of two that begin together, the one that was launched first.
    assert cut([*operations, (40, 45, COPY, 60)], 0, 50) == whole


def test_each_gap_is_told_by_itself() -> None:
    operations = [(10, 20, COMPUTE, 4), (30, 40, COMPUTE, 2), (50, 60, COMPUTE, 45)]
    assert cut(operations, 0, 70) == [
        (0, 4, HOST), (4, 10, LAUNCH), (10, 20, COMPUTE), (20, 30, DEPENDENCY), (30, 40, COMPUTE),
        (40, 45, HOST), (45, 50, LAUNCH), (50, 60, COMPUTE),
        (60, 70, HOST),  # nothing follows
    ]  # fmt: skip


def test_where_the_host_itself_computes_a_gap_is_the_hosts() -> None:
    operations = [(10, 20, COMPUTE, 4), (30, 40, COMMUNICATION, 2)]
    assert cut(operations, 0, 50, device=False) == [
        (0, 10, HOST), (10, 20, COMPUTE), (20, 30, HOST), (30, 40, COMMUNICATION), (40, 50, HOST),
    ]  # fmt: skip


@pytest.mark.parametrize("device", [True, False])
def test_without_any_operation_all_of_it_is_the_hosts(device: bool) -> None:
    assert cut([], 5, 9, device=device) == [(5, 9, HOST)]
    assert cut([], 5, 5, device=device) == []


operation = st.tuples(
    st.integers(0, 30), st.integers(0, 12),
    st.sampled_from([COMPUTE, COMMUNICATION, COPY]), st.integers(-2, 32),
)  # fmt: skip


@given(st.lists(operation, max_size=6), st.integers(-3, 10), st.integers(0, 30))
def test_every_moment_is_what_its_operations_make_it(
    given_: list[tuple[int, int, int, int]], low: int, length: int
) -> None:
    operations = [(a, a + n, kind, call) for a, n, kind, call in given_]
    found = cut(operations, low, low + length)
    assert all(a < b for a, b, _ in found)
    assert [a for a, _, _ in found[1:]] == [b for _, b, _ in found[:-1]]
    assert sum(b - a for a, b, _ in found) == length
    kind_of = {t: k for a, b, k in found for t in range(a, b)}
    for t in range(low, low + length):
        running = [k for a, b, k, _ in operations if a <= t < b]
        if running:
            assert kind_of[t] == min(running)
        else:
            assert kind_of[t] in (HOST, DEPENDENCY, LAUNCH)


def test_layers_lie_over_one_another() -> None:
    def interval(low: int, high: int) -> tuple[np.ndarray, np.ndarray]:  # type: ignore[type-arg]
        return np.array([low]), np.array([high])

    starts, ends, top = layered([interval(20, 30), interval(10, 25)], 0, 40)
    assert starts.tolist() == [0, 10, 20, 30]
    assert ends.tolist() == [10, 20, 30, 40]
    assert top.tolist() == [2, 1, 0, 2]


def test_a_moment_is_inside_from_the_start_of_an_interval_to_before_its_end() -> None:
    moments = np.array([4, 5, 9, 10, 20, 29, 30])
    found = inside(moments, np.array([5, 20]), np.array([10, 30]))
    assert found.tolist() == [False, True, True, False, True, True, False]
    assert inside(moments, np.array([]), np.array([])).tolist() == [False] * 7
