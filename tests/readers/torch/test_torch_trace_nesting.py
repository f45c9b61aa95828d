"""How host events nest: every moment counts once, whatever the trace looks like."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import paths
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerline.analysis.readers.torch import trace
from layerline.analysis.readers.torch.events import read_events
from layerline.analysis.readers.torch.nesting import nest
from layerline.core.errors import InputError
from layerline.core.intervals import covered, union

# Each example writes the same file anew.
PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(path: Path, spans: list[tuple[str, int, int, int, str]]) -> Path:
    """(name, thread, start ns, duration ns, category) as a trace, in this order."""
    events = [
        {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": thread, "ts": start / 1000,
         "dur": duration / 1000, "args": {"Ev Idx": i}}
        for i, (name, thread, start, duration, cat) in enumerate(spans)
    ]  # fmt: skip
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@st.composite
def nested(draw: Any, low: int = 0, high: int = 1000, depth: int = 0) -> list[tuple[int, int]]:
    """Properly nested intervals inside [low, high]: borders may touch and coincide."""
    found: list[tuple[int, int]] = []
    at = low
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(at, high))
        end = draw(st.integers(start, high))
        found.append((start, end))
        if depth < 3:
            found += draw(nested(start, end, depth + 1))
        at = end
    return found


def length_of_union(intervals: list[tuple[int, int]]) -> int:
    """Moment by moment."""
    return len({t for start, end in intervals for t in range(start, end)})


@settings(PROPERTY, max_examples=60)
@given(nested(), nested(), st.randoms(use_true_random=False))
def test_self_times_add_up_to_the_time_in_which_an_operator_runs(
    tmp_path: Path, first: list[tuple[int, int]], second: list[tuple[int, int]], random: Any
) -> None:
    spans = [("op", 1, a, b - a, "cpu_op") for a, b in first]
    spans += [("op", 2, a, b - a, "cpu_op") for a, b in second]
    # Ranges and runtime calls in between take nothing away from operators.
    spans += [("r", 1, a, b - a, random.choice(["user_annotation", "cuda_runtime"]))
              for a, b in first if random.random() < 0.3]  # fmt: skip
    random.shuffle(spans)
    if not spans:
        return
    rows = trace.read(write(tmp_path / "t.json", spans)).main.to_pylist()
    assert all(0 <= r["self_ns"] <= r["duration_ns"] for r in rows)
    assert sum(r["self_ns"] for r in rows) == length_of_union(first) + length_of_union(second)


@settings(PROPERTY, max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 30)), min_size=1, max_size=12))
def test_also_where_rounded_times_overlap(tmp_path: Path, spans: list[tuple[int, int]]) -> None:
    path = write(tmp_path / "t.json", [("op", 1, a, d, "cpu_op") for a, d in spans])
    rows = trace.read(path).main.to_pylist()
    assert sum(r["self_ns"] for r in rows) == length_of_union([(a, a + d) for a, d in spans])


@settings(PROPERTY, max_examples=40)
@given(nested())
def test_a_parent_is_the_smallest_interval_around(
    tmp_path: Path, intervals: list[tuple[int, int]]
) -> None:
    proper = sorted({(a, b) for a, b in intervals if b > a})
    if not proper:
        return
    names = [f"{a}-{b}" for a, b in proper]
    spans = [(n, 1, a, b - a, "cpu_op") for n, (a, b) in zip(names, proper, strict=True)]
    events = read_events(write(tmp_path / "t.json", spans))
    parent = nest(events).parent
    for i, (a, b) in enumerate(proper):
        around = [(d - c, (c, d)) for c, d in proper if c <= a and b <= d and (c, d) != (a, b)]
        found = proper[parent[i]] if parent[i] >= 0 else None
        assert found == (min(around)[1] if around else None)


def test_what_a_frame_outlives_encloses_nothing_that_begins_later(tmp_path: Path) -> None:
    """A frame of Python that begins in an operator and ends after it, as around compiled code."""
    path = write(
        tmp_path / "t.json",
        [
            ("outer", 1, 0, 100, "cpu_op"),
            ("prologue", 1, 10, 20, "cpu_op"),
            ("run", 1, 20, 70, "python_function"),
            ("early", 1, 22, 5, "cpu_op"),
            ("compiled", 1, 50, 30, "cpu_op"),
        ],
    )
    self_ns = {r["name"]: r["self_ns"] for r in trace.read(path).main.to_pylist()}
    assert self_ns == {"outer": 50, "prologue": 15, "early": 5, "compiled": 30}


KINDS = ("cpu_op", "user_annotation", "python_function", "nn.Module: ")


@settings(PROPERTY, max_examples=200)
@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.integers(1, 30), st.sampled_from(KINDS)),
        min_size=1,
        max_size=14,
        unique_by=lambda span: span[0],
    )
)
def test_what_encloses_an_event_is_what_runs_when_it_begins(
    tmp_path: Path, spans: list[tuple[int, int, str]]
) -> None:
    """Any spans, however they overlap, against a look at each moment."""
    written = [
        (f"nn.Module: {i}" if kind == KINDS[3] else str(i), 1, start, length,
         "python_function" if kind == KINDS[3] else kind)
        for i, (start, length, kind) in enumerate(spans)
    ]  # fmt: skip
    try:
        events = read_events(write(tmp_path / "t.json", written))
    except InputError:  # nothing but frames
        return
    nesting = nest(events)

    def running(moment: int, *kinds: str) -> list[int]:
        on = [i for i, (a, n, kind) in enumerate(spans) if a <= moment < a + n and kind in kinds]
        return sorted(on, key=lambda i: spans[i][0])

    for i, (start, _, kind) in enumerate(spans):
        operators = running(start, "cpu_op")
        assert nesting.operator[i] == (operators[-1] if operators else -1)
        path, names = int(nesting.path[i]), list[str]()
        while path >= 0:
            path, name = nesting.paths[path]
            names.insert(0, events.names[name])
        assert names == [written[j][0] for j in running(start, "user_annotation", KINDS[3])]
        if kind == "cpu_op":
            mine = [t for t in range(100) if (running(t, "cpu_op") or [-1])[-1] == i]
            assert nesting.self_ns[i] == len(mine)


def test_equal_times_follow_the_profilers_index(tmp_path: Path) -> None:
    path = write(
        tmp_path / "t.json",
        [
            ("outer", 1, 0, 10, "cpu_op"),
            ("inner", 1, 0, 10, "cpu_op"),
            ("call", 1, 0, 10, "cuda_runtime"),
        ],
    )
    outer, inner = trace.read(path).main.to_pylist()
    assert (outer["name"], outer["self_ns"]) == ("outer", 0)
    assert (inner["name"], inner["self_ns"]) == ("inner", 10)


def test_threads_do_not_nest_in_each_other(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [("a", 1, 0, 100, "cpu_op"), ("b", 2, 10, 50, "cpu_op")])
    assert trace.read(path).main["self_ns"].to_pylist() == [100, 50]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 30)), max_size=10),
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_union_and_cover(spans: list[tuple[int, int]], low: int, length: int) -> None:
    starts = np.array([a for a, _ in spans], dtype=np.int64)
    ends = np.array([a + d for a, d in spans], dtype=np.int64)
    high = low + length
    moments = {t for a, d in spans for t in range(a, a + d)}
    assert covered(*union(starts, ends), low, high) == len(moments & set(range(low, high)))


def test_the_trace_of_an_h100_closes() -> None:
    """On each thread self times add up to the union of its operators, counted by hand."""
    path = paths.DATA / "h100_train_l2.trace.json.gz"
    events = read_events(path)
    nesting = nest(events)
    for thread in set(events.thread.tolist()):
        mine = (events.thread == thread) & (events.kind == 2)
        if not mine.any():
            continue
        total, until = 0, -1
        spans = zip(events.start[mine].tolist(), events.end[mine].tolist(), strict=True)
        for start, end in sorted(spans):
            total += max(0, end - max(start, until))
            until = max(until, end)
        assert int(nesting.self_ns[mine].sum()) == total
