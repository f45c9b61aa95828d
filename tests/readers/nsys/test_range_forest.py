"""Ranges around moments: against a slow, obvious oracle, for nested and for crossing ranges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.nsys.range_forest import Forest, join, paths, plant, uncross
from layerline.core.errors import InputError

Range = tuple[int, int, bool]  # start, end, start/end range


def oracle(ranges: list[Range], moment: int) -> list[int]:
    """Indices of the ranges that hold a moment, outermost first: the rule, written down."""
    held = [i for i, (start, end, _) in enumerate(ranges) if start <= moment < end]
    return sorted(held, key=lambda i: (ranges[i][0], -ranges[i][1], not ranges[i][2], i))


def planted(ranges: list[Range]) -> Forest:
    start = np.array([r[0] for r in ranges], np.int64)
    end = np.array([r[1] for r in ranges], np.int64)
    return plant(start, end, np.array([r[2] for r in ranges], np.bool_))


def path(forest: Forest, piece: int) -> list[int]:
    found = []
    while piece >= 0:
        found.append(int(forest.owner[piece]))
        piece = int(forest.parent[piece])
    return found[::-1]


def looked_up(forest: Forest, moments: list[int]) -> list[list[int]]:
    return [path(forest, int(p)) for p in forest.innermost(np.array(moments, np.int64))]


any_ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.booleans()), max_size=12)


@st.composite
def nested_ranges(draw: st.DrawFn) -> list[Range]:
    """Ranges as push and pop give them, in any order of rows."""
    found: list[Range] = []
    stack: list[int] = []
    now = 0
    for _ in range(draw(st.integers(0, 30))):
        now += draw(st.integers(0, 3))
        if stack and draw(st.booleans()):
            found.append((stack.pop(), now, False))
        else:
            stack.append(now)
    while stack:
        now += draw(st.integers(0, 3))
        found.append((stack.pop(), now, False))
    return draw(st.permutations(found))


@settings(max_examples=300, deadline=None)
@given(any_ranges)
def test_every_moment_has_the_path_that_the_rule_says(ranges: list[Range]) -> None:
    forest = planted(ranges)
    moments = list(range(-1, 42))
    assert looked_up(forest, moments) == [oracle(ranges, m) for m in moments]


@settings(max_examples=300, deadline=None)
@given(nested_ranges())
def test_nested_ranges_are_not_cut(ranges: list[Range]) -> None:
    forest = planted(ranges)
    assert len(forest.start) == sum(end > start for start, end, _ in ranges)
    last = max((r[1] for r in ranges), default=0)
    moments = list(range(-1, last + 2))
    assert looked_up(forest, moments) == [oracle(ranges, m) for m in moments]


@settings(max_examples=150, deadline=None)
@given(any_ranges)
def test_time_inside_innermost_ranges_adds_up_to_the_time_inside_any(ranges: list[Range]) -> None:
    """Each nanosecond belongs to exactly one innermost range, or to none."""
    forest = planted(ranges)
    pieces = forest.innermost(np.arange(0, 41))
    covered = {m for start, end, _ in ranges for m in range(start, end)}
    assert int((pieces >= 0).sum()) == len(covered)


@settings(max_examples=150, deadline=None)
@given(any_ranges, st.sets(st.integers(0, 11)))
def test_nearest_and_outermost_chosen_range(ranges: list[Range], chosen: set[int]) -> None:
    forest = planted(ranges)
    flags = np.array([int(o) in chosen for o in forest.owner], np.bool_)
    nearest, outermost = forest.nearest(flags), forest.outermost(flags)
    for piece in range(len(forest.start)):
        around = [o for o in path(forest, piece) if o in chosen]
        expected = (around[-1], around[0]) if around else (-1, -1)
        got = tuple(
            -1 if p < 0 else int(forest.owner[p]) for p in (nearest[piece], outermost[piece])
        )
        assert got == expected


@settings(max_examples=150, deadline=None)
@given(any_ranges, st.lists(st.integers(-1, 2), min_size=12, max_size=12))
def test_paths_of_names(ranges: list[Range], names: list[int]) -> None:
    """-1 is a range without a name; equal paths have one number."""
    forest = planted(ranges)
    codes = np.array(names, np.int32)
    numbers, nesting = paths(forest, codes[forest.owner])
    seen: dict[tuple[int, ...], int] = {}
    for piece, number in enumerate(numbers.tolist()):
        expected = [names[o] for o in path(forest, piece)]
        assert nesting.names(number) == expected
        assert seen.setdefault(tuple(expected), number) == number


@settings(max_examples=100, deadline=None)
@given(any_ranges, any_ranges)
def test_forests_side_by_side(left: list[Range], right: list[Range]) -> None:
    first, second = planted(left), planted(right)
    both = join([first, second])
    offset = len(first.start)
    for piece in range(len(first.start)):
        assert path(both, piece) == path(first, piece)
    for piece in range(len(second.start)):
        assert path(both, offset + piece) == path(second, piece)
    everything = np.ones(len(both.start), np.bool_)
    assert both.nearest(everything).tolist() == list(range(len(both.start)))


def test_deep_nesting() -> None:
    ranges = [(i, 10_000 - i, False) for i in range(3000)]
    forest = planted(ranges)
    assert len(forest.levels) == 3000
    assert looked_up(forest, [2999]) == [list(range(3000))]
    assert looked_up(forest, [9_999]) == [[0]]


def test_crossing_without_end_is_an_error_not_a_full_memory() -> None:
    n = 2000
    start = np.arange(n, dtype=np.int64)
    end = start + n
    crossing = np.ones(n, np.bool_)
    with pytest.raises(InputError, match="cross each other"):
        uncross(start, end, np.arange(n, dtype=np.int32), crossing)
