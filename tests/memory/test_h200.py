"""A tiny GPT-2's steps on an H200 (tests/data/make_h200_memory.py), against what torch said of
them, against sums by hand from the model's shape, and against a walk over the raw events.

The marks and the tensors of these captures name the device without its number, and two threads
note their marks, as they did on that machine.
"""

from __future__ import annotations

import gzip
import json
import pickle
from bisect import bisect_right
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import paths
import pytest

from layerline.analysis.captures.memory import explained_file
from layerline.analysis.memory import categories
from layerline.analysis.readers.memory import snapshot
from layerline.analysis.report.memory import sentences

DATA = paths.DATA / "h200_memory"
STEM = "train.fp32.memory"
HIDDEN, VOCABULARY, POSITIONS, LAYERS = 128, 1024, 128, 2
BLOCK = 12 * HIDDEN**2 + 13 * HIDDEN  # attention 4 h² + 4 h, MLP 8 h² + 5 h, two norms 4 h
WEIGHTS = 4 * ((VOCABULARY + POSITIONS + 2) * HIDDEN + LAYERS * BLOCK)
BATCH = 4 * 128 * 8  # of int64
# As torch.cuda.max_memory_allocated and max_memory_reserved gave them in each step.
PEAKS = {
    "tiny": (99_652_096, 115_343_360),
    "expandable": (99_652_096, 111_149_056),
    "oom": (93_408_768, 113_246_208),
}


def unpacked(folder: Path, name: str) -> Path:
    for kind in ("pickle", "json"):
        packed = (DATA / name / f"{STEM}.{kind}.gz").read_bytes()
        (folder / f"{STEM}.{kind}").write_bytes(gzip.decompress(packed))
    return folder / f"{STEM}.pickle"


@pytest.fixture(params=sorted(PEAKS))
def name(request) -> str:
    return request.param


def explained(path: Path) -> Any:
    return explained_file(path, snapshot.read(path), None)


def raw(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    return pickle.loads(path.read_bytes()), json.loads(path.with_suffix(".json").read_text())


def walked(value: dict[str, Any], beside: dict[str, Any]) -> tuple[Counter[str], int]:
    """Bytes asked for at the highest moment, by when they were allocated: ``before`` for what is
    older than the recording, else the phase by time; and how many are freed before backward."""
    marks = beside["marks"]
    since = [t // 1000 for t in marks["time_ns"]]
    older = {b[0]: b[2] for s in beside["start"]["segments"] for b in s["blocks"] if b[3]}
    live = {address: ("before", asked) for address, asked in older.items()}
    best, kept, total = 0, dict(live), sum(older.values())
    for event in value["device_traces"][0]:
        phase = marks["phase"][bisect_right(since, event["time_us"]) - 1]
        if event["action"] == "alloc":
            live[event["addr"]] = (phase, event["size"])
            total += event["size"]
        elif event["action"] == "free_requested":
            total -= live.pop(event["addr"])[1]
        if total >= best:
            best, kept = total, dict(live)
    found: Counter[str] = Counter()
    for phase, size in kept.values():
        found[phase] += size
    return found, best


def test_the_peak_is_what_torch_says(tmp_path, name):
    done = explained(unpacked(tmp_path, name))
    assert done.alone is None and done.told.history.estimated == 0
    checks = [(c.ours, c.ok) for c in done.peak.checks]
    assert checks == [(PEAKS[name][0], True), (PEAKS[name][1], True)]
    assert sum(done.peak.categories.values()) + done.peak.rounding == PEAKS[name][0]


def test_what_was_there_before_is_told(tmp_path, name):
    """Parameters and state are older than the recording; state has one scalar on the CPU."""
    held = explained(unpacked(tmp_path, name)).peak.categories
    assert held["parameters"] == WEIGHTS == 2_177_024
    assert held["optimizer state"] == 2 * WEIGHTS
    assert held["data"] == BATCH


def test_gradients_are_all_there_when_the_optimizer_begins(tmp_path):
    done = explained(unpacked(tmp_path, "tiny"))
    told, lives = done.told, done.told.history
    begins = np.flatnonzero(told.in_phase("optimizer"))
    for step in told.steps:
        first = int(begins[(begins >= step.begin) & (begins < step.end)][0])
        alive = lives.alive(first)
        own = told.category[alive] == categories.CATEGORIES.index("gradients")
        assert int(lives.requested[alive][own].sum()) == WEIGHTS


def test_the_same_sums_from_the_raw_events(tmp_path, name):
    path = unpacked(tmp_path, name)
    found, best = walked(*raw(path))
    peak = explained(path).peak
    assert best == peak.allocated - peak.rounding
    held = peak.categories
    assert found["data"] == held["data"]
    kept = 0 if name == "oom" else 2 * 4  # the losses of this step and of the one before
    assert (
        found["before"] == sum(held[c] for c in ("parameters", "optimizer state", "other")) - kept
    )
    made = sum(n for phase, n in found.items() if phase not in ("before", "data"))
    assert made == held["activations"] + held.get("temporaries", 0) + kept


def test_marks_are_those_of_the_time(tmp_path, name):
    """36 of 1148 events have an older mark or none: those of threads that set none in time."""
    path = unpacked(tmp_path, name)
    value, beside = raw(path)
    since = [t // 1000 for t in beside["marks"]["time_ns"]]
    events = value["device_traces"][0]
    by_time = [bisect_right(since, e["time_us"]) - 1 for e in events]
    assert explained(path).told.history.mark.tolist() == by_time
    late = sum(e["user_metadata"] != str(m) for e, m in zip(events, by_time, strict=True))
    assert late == (0 if name == "oom" else 36)


def test_what_is_alive_at_the_end_is_what_torch_reads(tmp_path, name):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    path = unpacked(tmp_path, name)
    value, _ = raw(path)
    history = explained(path).told.history
    alive = history.alive(history.events)
    ours = sorted(
        zip(history.address[alive].tolist(), history.requested[alive].tolist(), strict=True)
    )
    blocks = [b for s in value["segments"] for b in s["blocks"] if b["state"] == "active_allocated"]
    assert ours == sorted((b["address"], b["requested_size"]) for b in blocks)
    text = viz.segsum(value)
    assert f"total_reserved: {viz.Bytes(int(history.reserved[-1]))}" in text
    assert f"total_allocated: {viz.Bytes(int(history.requested[alive].sum()))}" in text


def test_out_of_memory_says_what_stood_in_the_way(tmp_path):
    done = explained(unpacked(tmp_path, "oom"))
    assert sentences.heading(done) == (
        "Out of memory: 4.29 GB were asked for, more than this process may have (141 GB of the "
        "device were free); the peak was 93.4 MB"
    )
    assert done.peak.categories["activations"] > 18_000_000
    assert "half of the batch" in sentences.lead(done)


def test_the_same_without_what_lies_beside_it(tmp_path):
    """Blocks of over a MiB are then a guess, and the peak at most so much lower."""
    path = unpacked(tmp_path, "tiny")
    path.with_suffix(".json").unlink()
    done = explained(path)
    assert 0 < done.told.history.estimated < 10
    assert 0 <= PEAKS["tiny"][0] - done.peak.allocated < done.told.history.estimated << 20
