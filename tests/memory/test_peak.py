"""A step by hand (`memory_step`): what is alive at its peak, and what each remedy does to it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from memory_snapshot import MIB, Allocator
from memory_step import Step, recorded

from layerline.analysis.memory import explain as explain_
from layerline.analysis.memory import history, peak, remedies
from layerline.analysis.memory.categories import CATEGORIES, tell
from layerline.analysis.readers.memory import snapshot
from layerline.analysis.report.memory import text
from layerline.core.errors import InputError

KIB = 1024
# 12 of weights and their state, two activations of 8, one output, a temporary of 4; the batch.
PEAK = 12 * MIB + 16 * MIB + 3 * MIB // 4 + 4 * MIB + KIB


def explain(folder, value: dict[str, Any], meta: Any = None, device: int | None = None) -> Any:
    path = folder / "train.fp32.memory.pickle"
    path.write_bytes(pickle.dumps(value, 4))
    return explain_.explain(snapshot.read(path), path, meta, device)


@pytest.fixture
def done(tmp_path) -> Any:
    value, meta, _ = recorded()
    return explain(tmp_path, value, meta)


def test_the_peak_is_explained_to_the_byte(done):
    found = done.peak
    assert found.allocated == PEAK and found.rounding == 0
    assert found.categories == {
        "parameters": 4 * MIB,
        "optimizer state": 8 * MIB,
        "data": KIB,
        "activations": 16 * MIB + 3 * MIB // 4,
        "temporaries": 4 * MIB,
    }
    assert found.phase == "forward" and found.step.number == 0
    [allocated, reserved] = found.checks
    assert allocated.ok is True and reserved.ok is None
    assert found.fragmentation == found.reserved - PEAK > 0


def test_modules_and_lines_at_the_peak(done):
    modules = dict(done.peak.modules)
    assert modules["h.0"] == {
        "parameters": 2 * MIB, "optimizer state": 4 * MIB, "activations": 8 * MIB + 3 * MIB // 4,
    }  # fmt: skip
    assert modules["h.1"] == {
        "parameters": 2 * MIB, "optimizer state": 4 * MIB, "activations": 8 * MIB,
        "temporaries": 4 * MIB,
    }  # fmt: skip
    assert modules["(no module)"] == {"data": KIB}
    lines = dict(done.peak.lines)  # the line of torch is not whose it is
    assert lines["forward_h.0 (/home/model.py:2)"] == {"activations": 8 * MIB + 3 * MIB // 4}
    assert sum(sum(held.values()) for held in lines.values()) == PEAK


def test_gradients_are_all_there_when_the_optimizer_begins(tmp_path):
    value, meta, _ = recorded()
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(value))
    lives = history.build(snapshot.read(path), 0, meta)
    told = tell(lives, meta)
    begins = int(told.in_phase("optimizer").nonzero()[0][0])
    alive = lives.alive(begins)
    held = {c: int(lives.requested[alive][told.category[alive] == i].sum())
            for i, c in enumerate(CATEGORIES)}  # fmt: skip
    assert (held["gradients"], held["parameters"]) == (4 * MIB, 4 * MIB)
    assert held["activations"] == held["temporaries"] == 0


def test_each_remedy_by_hand(done):
    found = {r.name: r for r in done.remedies}
    # Backward of h.0: both gradients, its 8 made again, its output, the loss.
    checkpointed = 12 * MIB + 4 * MIB + 8 * MIB + 3 * MIB // 4 + MIB // 2 + KIB
    assert found["checkpoint"].after == checkpointed
    assert found["checkpoint-half"].after == checkpointed
    # Half of what grows with it, at the first gradient: then all activations are there still.
    assert found["batch"].after == 14 * MIB + (17 * MIB + MIB) // 2 + KIB // 2
    # 524,288 elements a state: a byte each, and 4 for 256 of them.
    state = 4 * (524_288 + 2048 * 4)
    assert found["8bit"].after == PEAK - 8 * MIB + state
    none = found["set_to_none"]
    assert none.already and (none.after, none.saves) == (PEAK + 4 * MIB, 4 * MIB)
    assert "fused" not in found  # the optimizer's own 6 MiB are not at the peak
    assert found["expandable"].of == "reserved" and found["expandable"].after % (2 * MIB) == 0


def test_gradients_that_stay_are_seen(tmp_path):
    step = Step()
    step.weights()
    start = step.memory.start()
    step.run(gradients_stay=True)
    found = explain(tmp_path, step.memory.snapshot(), step.meta(start))
    assert "set_to_none" not in {r.name for r in found.remedies}


def test_another_optimizer_helps_where_the_peak_is_its_own(tmp_path):
    step = Step()
    step.weights()
    start = step.memory.start()
    step.mark("data")
    step.mark("optimizer")
    address = step.memory.alloc(6 * MIB)
    step.memory.free(address)
    step.mark("other")
    step.steps.append({"number": 0, "begin_mark": 0, "end_mark": 2})
    found = explain(tmp_path, step.memory.snapshot(), step.meta(start))
    after = {r.name: (r.before, r.after) for r in found.remedies}
    assert after["fused"] == (18 * MIB, 12 * MIB)
    # Its 6 MiB go, too; of four moments of 524,288 elements a byte each stays, and the scales.
    assert after["8bit"] == (18 * MIB, 12 * MIB - 8 * MIB + 4 * (524_288 + 2048 * 4))


def test_the_highest_of_several_steps_and_of_equals_the_last(tmp_path):
    value, meta, memory = recorded(steps=3)
    found = explain(tmp_path, value, meta)
    assert found.peak.step.number == 2 and found.peak.allocated == memory.peak == PEAK
    live = found.told.history.live()
    every = [peak.of_step(found.told, s, live).allocated for s in found.told.steps]
    assert every == [PEAK] * 3


def test_a_sum_that_does_not_add_up_is_said(tmp_path):
    value, meta, _ = recorded()
    meta.steps[0].allocated_peak_bytes += 512
    found = explain(tmp_path, value, meta)
    assert found.peak.checks[0].ok is False


def test_marks_by_time_where_the_allocator_noted_none(tmp_path):
    value, meta, _ = recorded()
    for event in value["device_traces"][0]:
        event["user_metadata"] = ""
    # A mark is set before what it is of: as the hooks do.
    found = explain(tmp_path, value, meta)
    assert found.peak.allocated == PEAK
    assert found.peak.categories["activations"] == 16 * MIB + 3 * MIB // 4


@pytest.mark.parametrize("with_time", [True, False])
def test_a_thread_notes_its_own_last_mark_until_it_sets_another(tmp_path, with_time):
    """The allocator's note is of each thread: backward's begins with that of the step before, and
    the program's own goes on with the one from before backward."""
    value, meta, _ = recorded(steps=2)
    right = explain(tmp_path, value, meta).told
    phases = [meta.marks.phase[int(e["user_metadata"])] for e in value["device_traces"][0]]
    late = [i for i, p in enumerate(phases) if p == "backward" and phases[i - 1] != "backward"]
    assert len(late) == 2
    steps = zip(meta.marks.step, meta.marks.phase, strict=True)
    before = max(i for i, mark in enumerate(steps) if mark == (0, "backward"))
    for i, noted in zip(late, ("", str(before)), strict=True):
        for event in value["device_traces"][0][i : i + 3]:  # what is of no module's backward
            event["user_metadata"] = noted
    after = [i for i, p in enumerate(phases) if p == "other"]
    for i in after:  # what the program frees after backward
        if phases[i - 1] == "backward":
            value["device_traces"][0][i]["user_metadata"] = "1"
    if not with_time:
        for event in value["device_traces"][0]:
            event["time_us"] = meta.marks.time_ns[0] // 1000
    told = explain(tmp_path, value, meta).told
    assert (np.diff(told.history.mark) >= 0).all()
    if with_time:
        assert told.history.mark.tolist() == right.history.mark.tolist()
    assert [(s.begin, s.end) for s in told.steps] == [(s.begin, s.end) for s in right.steps]
    assert told.category.tolist() == right.category.tolist()


@pytest.mark.parametrize(
    ("folder", "line"),
    [
        ("/opt/torch/.venv/lib/python3.12/site-packages/transformers/model.py", "transformers"),
        ("/opt/torch/.venv/lib/python3.12/site-packages/torch/nn/linear.py", "run.py"),
        ("/home/me/pytorch/torch/nn/linear.py", "run.py"),
    ],
)
def test_a_folder_named_torch_is_not_the_package(tmp_path, folder, line):
    memory = Allocator()
    memory.frames = [
        {"name": "forward", "filename": folder, "line": 3},
        {"name": "main", "filename": "/home/me/run.py", "line": 9},
    ]
    memory.alloc(MIB)
    assert line in explain(tmp_path, memory.snapshot()).peak.lines[0][0]


def test_someone_elses_metadata_is_no_mark(tmp_path):
    value, meta, _ = recorded()
    for event in value["device_traces"][0]:
        event["user_metadata"] = "epoch 7"
    assert explain(tmp_path, value, meta).peak.categories["parameters"] == 4 * MIB


def test_a_snapshot_that_came_alone_is_of_unknown_categories(tmp_path):
    value, _, _ = recorded()
    found = explain(tmp_path, value)
    assert found.peak.allocated == PEAK
    assert found.peak.categories == {"unknown": PEAK}
    assert found.remedies == [] and found.peak.step.number is None


def test_without_history_what_is_allocated_is_told_and_no_peak(tmp_path):
    memory = Allocator()
    memory.recording = False
    memory.alloc(3 * MIB)
    memory.free(memory.alloc(5 * MIB))
    found = explain(tmp_path, memory.snapshot())
    assert not found.with_history
    assert (found.peak.allocated, found.peak.reserved) == (3 * MIB, 20 * MIB)
    assert len(found.timeline.time_ns) == 1
    said = "\n".join(text.lines(found))
    assert "in the snapshot" in said and "peak" not in said and "older than" not in said


def test_out_of_memory_is_told(tmp_path):
    memory = Allocator(limit=64 * MIB)
    memory.alloc(30 * MIB)
    with pytest.raises(MemoryError):
        memory.alloc(50 * MIB)
    found = explain(tmp_path, memory.snapshot())
    assert found.oom == explain_.OutOfMemory(50 * MIB, 34 * MIB)


def test_a_step_that_fails_in_the_loss_keeps_activations(tmp_path):
    """Nothing is freed: the exception holds what forward made."""
    step = Step()
    step.weights()
    start = step.memory.start()
    step.mark("forward", 2)
    step.memory.alloc(8 * MIB)
    step.memory.free(step.memory.alloc(3 * MIB))
    step.mark("loss")
    step.memory.limit = step.memory.reserved
    with pytest.raises(MemoryError):
        step.memory.alloc(64 * MIB)
    step.mark("other")
    step.steps.append({"number": 0, "begin_mark": 0, "end_mark": 2})
    found = explain(tmp_path, step.memory.snapshot(), step.meta(start))
    held = found.peak.categories
    assert (held["activations"], held["temporaries"]) == (8 * MIB, 3 * MIB)
    assert found.oom is not None and found.oom.asked == 64 * MIB


def test_several_devices_the_fullest_first(tmp_path):
    one, two = Allocator(), Allocator()
    one.alloc(MIB)
    two.alloc(30 * MIB)
    value = one.snapshot(0)
    other = two.snapshot(1)
    value["segments"] += other["segments"]
    value["device_traces"].append(other["device_traces"][1])
    found = explain(tmp_path, value)
    assert found.told.history.device == 1
    more = "This is device 1; the snapshot is also of 0 (--device)."
    assert more in found.notes and more not in explain(tmp_path, two.snapshot(1)).notes
    assert explain(tmp_path, value, device=0).peak.allocated == MIB
    recorded_ = Step().meta(device="cuda:0")
    assert explain(tmp_path, value, recorded_).told.history.device == 0
    with pytest.raises(InputError, match="has no device 7"):
        explain(tmp_path, value, device=7)


def test_blocks_are_rows_of_modules_of_one_class(done):
    assert remedies.blocks(done.told) == [["h.0", "h.1"]]


def test_the_table_has_every_event_with_what_it_is_of(done):
    rows = done.table().to_pylist()
    before = [r for r in rows if r["action"] == "before"]
    assert rows[: len(before)] == before and len(rows) - len(before) == done.told.history.events
    assert sum(r["bytes"] for r in before) == 12 * MIB
    assert {r["category"] for r in before} == {"parameters", "optimizer state"}
    large = [r for r in rows if r["bytes"] == 8 * MIB and r["module"] == "h.0"]
    assert [r["action"] for r in large] == ["alloc", "free_requested", "free_completed"]
    assert {r["category"] for r in large} == {"activations"}
    assert [r["phase"] for r in large] == ["forward", "backward", "backward"]
    assert {r["iteration"] for r in large} == {0}
    assert large[0]["frames"].startswith("linear (/site/torch/nn/functional.py:3)\nforward_h.0")


def test_every_moment_of_the_timeline_is_the_allocators(done):
    line = done.timeline
    totals = [sum(c[i] for c in line.categories.values()) + line.rounding[i]
              for i in range(len(line.time_ns))]  # fmt: skip
    assert max(totals) == totals[line.peak] == PEAK
    for i in range(len(totals)):
        alive = sum(g.bytes for g in line.groups if g.begin <= i < g.end)
        assert alive + line.rounding[i] == totals[i]
    assert [p for p, _, _ in line.phases][:3] == ["data", "forward", "loss"]
