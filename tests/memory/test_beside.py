"""What lies beside a snapshot: used where it is of its recording, and never a reason to fail."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_snapshot import BASE, MIB, Allocator
from memory_step import recorded

from layerline.analysis.memory.explain import explain
from layerline.analysis.readers.memory import snapshot
from layerline.analysis.report.memory import text
from layerline.analysis.report.memory.page import payload
from layerline.core.documents import Memory, of_form
from layerline.core.errors import InputError

LARGEST = 2**63 - 1
# Addresses where the allocator's segments are, inside blocks and beyond, and any other.
ADDRESSES = st.integers(0, 120).map(lambda n: BASE + n * MIB // 2) | st.integers(0, LARGEST)
SIZES = st.sampled_from([0, 1, 512, MIB, 3 * MIB, 20 * MIB]) | st.integers(0, LARGEST)
BLOCKS = st.lists(st.tuples(ADDRESSES, SIZES, SIZES, st.booleans()), max_size=8)
STARTS = st.fixed_dictionaries(
    {
        "segments": st.lists(
            st.fixed_dictionaries(
                {"address": ADDRESSES, "bytes": SIZES, "blocks": BLOCKS},
                optional={"expandable": st.booleans()},
            ),
            max_size=6,
        )
    }
)
SMALL = st.integers(0, 30)
KINDS = ("parameter", "buffer", "gradient", "optimizer state", "input", "output", "else")
TENSORS = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS), "name": st.sampled_from(["", "h.0.weight", "h.1", "?:x"]),
         "address": ADDRESSES, "bytes": SIZES, "mark": SMALL | st.just(LARGEST)},
        optional={"device": st.sampled_from(["cuda:0", "cuda:1", "cpu", "cuda"])},
    ),
    max_size=10,
)  # fmt: skip
PHASES = st.sampled_from(["forward", "loss", "backward", "recompute", "optimizer", "data", "other"])
MARKS = st.lists(st.tuples(st.integers(0, 10_000), SMALL, PHASES, st.integers(-3, 9)), max_size=30)
STEPS = st.lists(
    st.fixed_dictionaries({"number": SMALL, "begin_mark": SMALL, "end_mark": SMALL}), max_size=4
)
EVENTS = st.lists(st.integers(1, 24 * MIB) | st.integers(-40, -1), max_size=40)


def played(events: list[int], expandable: bool) -> dict[str, Any]:
    """Allocations of so many bytes, and frees of one of those that live; recorded from the middle
    on, each event with some mark."""
    memory, live = Allocator(expandable), []
    memory.recording = False
    for number, step in enumerate(events):
        memory.recording = memory.recording or number > len(events) // 2
        memory.mark = str(number % 7)
        if step > 0:
            live.append(memory.alloc(step))
        elif live:
            memory.free(live.pop(step % len(live)))
    return memory.snapshot()


def read(folder: Path, value: dict[str, Any]) -> tuple[Path, Any]:
    path = folder / "train.fp32.memory.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    return path, snapshot.read(path)


def document(marks: list[Any], **more: Any) -> dict[str, Any]:
    """As the plug-in writes it. Marks are so many microseconds after the first event."""
    named = zip(*marks, strict=True) if marks else ([], [], [], [])
    time, step, phase, module = (list(column) for column in named)
    return {
        "marks": {
            "time_ns": [(Allocator().now + t) * 1000 for t in time],
            "step": step, "phase": phase, "module": module,
        },
        "modules": [{"path": p, "class": "X"} for p in ("", "h", "h.0", "h.1")],
        **more,
    }  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(
    EVENTS, st.booleans(), STARTS, MARKS, TENSORS, STEPS, st.sampled_from(["cuda:0", "cuda", "cpu"])
)
def test_what_contradicts_the_snapshot_never_raises(
    tmp_path_factory, events, expandable, start, marks, tensors, steps, device
):
    value = played(events, expandable)
    if not value["segments"] and not value["device_traces"][0]:
        return
    path, artefact = read(tmp_path_factory.getbasetemp(), value)
    written = document(marks, start=start, tensors=tensors, steps=steps, device=device)
    try:
        meta = of_form(written, Memory, path)
    except InputError:
        return
    done = explain(artefact, path, meta)
    assert sum(done.peak.categories.values()) + done.peak.rounding == done.peak.allocated
    assert done.peak.rounding >= 0
    assert list(text.lines(done)) and payload(done) and done.table() is not None


@settings(deadline=None, max_examples=100)
@given(EVENTS, EVENTS, st.booleans())
def test_how_memory_lay_in_another_process_never_raises(
    tmp_path_factory, events, others, expandable
):
    value = played(events, expandable)
    if not value["segments"] and not value["device_traces"][0]:
        return
    other = Allocator()
    live: list[int] = []
    for step in others:
        if step > 0:
            live.append(other.alloc(step))
        elif live:
            other.free(live.pop(step % len(live)))
    path, artefact = read(tmp_path_factory.getbasetemp(), value)
    meta = of_form(document([], start=other.start(), device="cuda:0"), Memory, path)
    peak = explain(artefact, path, meta).peak
    assert sum(peak.categories.values()) + peak.rounding == peak.allocated


def test_what_is_of_another_recording_is_not_used(tmp_path):
    value, meta, _ = recorded()
    path, artefact = read(tmp_path, value)
    assert explain(artefact, path, meta).alone is None
    later = of_form(
        document([(10**9, 0, "forward", 0)], device="cuda:0", steps=[]), Memory, tmp_path
    )
    done = explain(artefact, path, later)
    assert done.alone is not None and "its steps are after the last event" in done.alone
    assert done.meta is None and set(done.peak.categories) == {"unknown"}


def test_what_is_of_another_rank_is_not_used(tmp_path):
    """Of the same time; but the blocks that it knows of are not in the snapshot."""
    value, meta, _ = recorded()
    path, artefact = read(tmp_path, value)
    for segment in meta.start.segments:
        segment.blocks = [(a + 512, size, asked, used) for a, size, asked, used in segment.blocks]
    done = explain(artefact, path, meta)
    assert done.alone is not None and "the snapshot has 0" in done.alone


def test_what_is_of_another_device_is_not_used(tmp_path):
    value, meta, _ = recorded()
    path, artefact = read(tmp_path, value)
    meta.device = "cuda:1"
    done = explain(artefact, path, meta)
    assert done.alone is not None and "of cuda:1, and this is device 0" in done.alone


def test_what_is_of_a_cpu_is_not_used_for_a_gpu_nor_the_other_way_round(tmp_path):
    value, meta, _ = recorded()
    path, artefact = read(tmp_path, value)
    meta.device = "cpu"
    done = explain(artefact, path, meta)
    assert done.alone is not None and "of cpu, and this is device 0" in done.alone
    path, artefact = read(tmp_path, {**value, "allocator_settings": {}})  # an early one of a CPU
    assert explain(artefact, path, meta).alone is None
    meta.device = "cuda:0"
    path, artefact = read(tmp_path, {**value, "allocator_settings": {"device": "cpu"}})
    done = explain(artefact, path, meta)
    assert done.alone is not None and "of cuda:0, and this is the CPU" in done.alone


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
def test_a_device_without_its_number_is_the_one_of_the_snapshot(tmp_path, device):
    """Early captures name it so; their tensors have the number."""
    value, meta, _ = recorded()
    path, artefact = read(tmp_path, value)
    meta.device = device
    held = explain(artefact, path, meta).peak.categories
    assert (held["parameters"], held["optimizer state"]) == (4 * MIB, 8 * MIB)
