"""What blocks take, against an allocator in miniature that keeps its own counters."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_snapshot import MIB, Allocator

from layerline.analysis.memory import history, layout
from layerline.analysis.readers.memory import snapshot
from layerline.core.documents import Memory, of_form

# Bytes asked for: of both pools, around their limits, and blocks that are not split.
SIZES = st.one_of(
    st.integers(1, 2048),
    st.sampled_from([MIB - 1, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB - MIB, 20 * MIB - 1]),
    st.integers(MIB + 1, 24 * MIB),
)
# Allocate so many bytes; free one of those that live (by its place); give segments back.
STEPS = st.lists(st.one_of(SIZES, st.integers(-40, -1), st.just("release")), max_size=60)


def play(memory: Allocator, steps: list[Any], live: list[int]) -> None:
    for step in steps:
        if step == "release":
            memory.empty_cache()
        elif step > 0:
            live.append(memory.alloc(step))
        elif live:
            memory.free(live.pop(step % len(live)))


def read(folder: Path, value: dict[str, Any]) -> Any:
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    return snapshot.read(path)


def meta(start: dict[str, Any]) -> Memory:
    marks: dict[str, list[Any]] = {"time_ns": [], "step": [], "phase": [], "module": []}
    return of_form({"device": "cuda:0", "marks": marks, "start": start}, Memory, Path("m.json"))


@settings(deadline=None, max_examples=150)
@given(STEPS, STEPS, st.booleans())
def test_live_memory_is_that_of_the_allocator_after_every_event(
    tmp_path_factory, before, during, expandable
):
    """Recording begins after `before`; how memory lay then is known."""
    memory = Allocator(expandable)
    live: list[int] = []
    memory.recording = False
    play(memory, before, live)
    start, memory.recording, memory.peak = memory.start(), True, memory.allocated
    begun, reserved = memory.allocated, memory.reserved
    play(memory, during, live)
    if not memory.segments and not memory.events:
        return
    artefact = read(tmp_path_factory.getbasetemp(), memory.snapshot())
    found = history.build(artefact, 0, meta(start))
    assert found.estimated == 0
    total = found.live()
    assert (total[0], total[-1], total.max()) == (begun, memory.allocated, memory.peak)
    assert found.reserved is not None
    assert (found.reserved[0], found.reserved[-1]) == (reserved, memory.reserved)


@settings(deadline=None, max_examples=60)
@given(STEPS, st.booleans())
def test_a_history_from_the_first_segment_on_needs_nothing_else(
    tmp_path_factory, steps, expandable
):
    memory = Allocator(expandable)
    play(memory, steps, [])
    if not memory.events:
        return
    found = history.build(read(tmp_path_factory.getbasetemp(), memory.snapshot()), 0)
    assert found.estimated == 0 and found.live().max() == memory.peak


def test_a_block_of_unknown_size_is_counted_as_a_guess(tmp_path):
    """Freed while recording, and allocated before: only what was asked for is known."""
    memory = Allocator()
    memory.recording = False
    first, _second = memory.alloc(19 * MIB + 1), memory.alloc(512)
    memory.recording = True
    memory.free(first)
    found = history.build(read(tmp_path, memory.snapshot()), 0)
    assert found.estimated == 1
    assert found.live()[0] == 19 * MIB + 512 + 512  # the allocator's own count: 20 MiB + 512
    known = history.build(read(tmp_path, memory.snapshot()), 0, meta({}))
    assert known.estimated == 1


def test_sizes_are_rounded_to_parts_of_a_power_of_two_where_settings_say_so():
    """Only above 512 bytes a part: 1200 bytes are not."""
    four = {"roundup_power2_divisions": {str(1 << n): 4 for n in range(16)}}
    asked = np.array([1200, 2048, 5 * MIB, 4 * MIB, 600])
    assert layout.rounded(asked, four).tolist() == [1536, 2048, 5 * MIB, 4 * MIB, 1024]
    several = layout.rounded(np.array([4 * MIB + 1, 9000]), four)
    assert several.tolist() == [5 * MIB, 10240]


def test_no_block_of_max_split_size_is_split():
    memory = Allocator()
    pool = layout._Pool({"max_split_size": 12 * MIB})
    pool.segment(memory._next)
    pool.add(memory._next, 20 * MIB)
    assert pool.take(memory._next, 12 * MIB) == 20 * MIB


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_same_from_every_protocol(tmp_path, protocol):
    memory = Allocator()
    live: list[int] = []
    play(memory, [3 * MIB, 100, -1, 5 * MIB, 700, -2], live)
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(memory.snapshot(), protocol))
    assert history.build(snapshot.read(path), 0).live().max() == memory.peak
