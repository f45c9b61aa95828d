"""Events that are read by their byte pattern are those that Python's unpickler reads."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.memory import patterns, snapshot
from layerline.analysis.readers.memory.trace import frame_text

FRAMES = [{"name": f"f{n}", "filename": f"/a/b{n}.py", "line": n} for n in range(300)]
ACTIONS = ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_map", "snapshot")
NUMBER = st.one_of(
    st.integers(0, 255),
    st.integers(0, 2**16),
    st.integers(-(2**31), 2**31),
    st.integers(2**39, 2**47),
    st.integers(0, 2**63 - 1),
)
STACK = st.one_of(
    st.lists(st.integers(0, 299), max_size=4), st.lists(st.integers(0, 299), min_size=1)
)


@st.composite
def traces(draw: Any) -> list[dict[str, Any]]:
    """Events as torch writes them; stacks are new lists, or lists that came before."""
    stacks = [[FRAMES[i] for i in one] for one in draw(st.lists(STACK, min_size=1, max_size=6))]
    texts = ["".join(t) for t in draw(st.lists(st.text("0123456789x", max_size=6), min_size=1))]
    order = draw(st.permutations(["addr", "size", "stream", "time_us", "user_metadata", "frames"]))
    events = []
    for _ in range(draw(st.integers(0, 40))):
        frames = draw(st.sampled_from(stacks))
        event = {
            "action": draw(st.sampled_from(ACTIONS)),
            "compile_context": "N/A" if draw(st.booleans()) else "".join(["0/", "1"]),
            "pool_id": (0, draw(st.integers(0, 3))),
        }
        for name in order:
            if name == "frames":
                event[name] = frames if draw(st.booleans()) else list(frames)
            elif name == "user_metadata":
                event[name] = draw(st.sampled_from(texts))
            else:
                event[name] = draw(NUMBER)
        if draw(st.integers(0, 9)) == 0:
            del event["frames"]
        events.append(event)
    return events


def expected(trace: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (
            e["action"], e["addr"], e["size"], e["stream"], frame_text(e.get("frames")),
            e["user_metadata"] or None,
            e["time_us"] * 1000 if abs(e["time_us"]) <= 2**63 // 1000 else None,
        )
        for e in trace
    ]  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(st.lists(traces(), max_size=3), st.sampled_from([2, 3, 4, 5]))
def test_events_of_any_form_and_protocol(tmp_path_factory, devices, protocol):
    path = tmp_path_factory.getbasetemp() / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": devices}, protocol))
    table = snapshot.read(path).tables.get("events")
    columns = ("action", "address", "size", "stream", "frames", "metadata", "time_ns")
    found = [] if table is None else table.to_pylist()
    wanted = [(n, *row) for n, trace in enumerate(devices) for row in expected(trace)]
    assert [(r["device"], *(r[c] for c in columns)) for r in found] == wanted


def test_most_events_are_read_by_pattern(tmp_path, monkeypatch):
    """Not one by one: that would be right, and too slow."""
    taken: list[int] = []
    take = patterns.Pattern.take

    def counted(self: Any, data: bytes, at: int, trace: Any, memo: list[Any]) -> int:
        before = len(trace)
        end = take(self, data, at, trace, memo)
        taken.append(len(trace) - before)
        return end

    monkeypatch.setattr(patterns.Pattern, "take", counted)
    stacks = [[FRAMES[(i * 7 + k) % 300] for k in range(20)] for i in range(50)]
    trace = [
        {"action": ACTIONS[i % 3], "addr": 2**40 + i, "size": i * 512, "stream": 0,
         "time_us": 2**50 + i, "compile_context": "N/" + "A" * (i > 0),
         "user_metadata": str(i // 9), "frames": list(stacks[i % 50])}
        for i in range(20_000)
    ]  # fmt: skip
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    assert snapshot.read(path).tables["events"].num_rows == 20_000
    assert sum(taken) > 0.98 * 20_000


def test_a_list_of_frames_is_taken_once(tmp_path):
    stack = FRAMES[:3]
    trace = [
        {"action": "alloc", "addr": i, "size": 1, "stream": 0, "time_us": 1, "frames": stack}
        for i in range(1000)
    ]
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    events = snapshot.read(path).tables["events"]
    dictionary = events["frames"].combine_chunks().dictionary
    assert dictionary.to_pylist() == [frame_text(stack)]


@pytest.mark.parametrize(
    "trace", [[1], ["text"], [[{"action": "alloc"}]], [{"action": "alloc"}, None]], ids=range(4)
)
def test_events_that_are_no_objects_are_refused(tmp_path, trace):
    from layerline.core.errors import InputError

    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    with pytest.raises(InputError, match="no list of objects"):
        snapshot.read(path)


def test_more_events_than_are_read_are_refused(tmp_path, monkeypatch):
    from layerline.analysis.readers.memory import stream
    from layerline.core.errors import InputError

    trace = [
        {"action": "alloc", "addr": i, "size": 1, "stream": 0, "time_us": 1} for i in range(100)
    ]
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [trace]}, 4))
    monkeypatch.setattr(stream, "MAX_EVENTS", 50)
    with pytest.raises(InputError, match="50 are read"):
        snapshot.read(path)
