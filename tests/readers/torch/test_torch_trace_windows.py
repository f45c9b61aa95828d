"""The iteration of work on threads that no range marks: the autograd thread, what it launches."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import paths
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from layerline.analysis.attribution.eager import eager
from layerline.analysis.readers.torch import trace
from layerline.analysis.readers.torch.events import OP, read_events
from layerline.analysis.readers.torch.nesting import nest, windows

H100 = paths.DATA / "h100_train_l2.trace.json.gz"
MAIN, AUTOGRAD, OTHER = 7, 9, 11
Event = dict[str, Any]


def event(name: str, ts: float, dur: float | None, thread: int = MAIN, **more: Any) -> Event:
    """A complete event of process 7, in microseconds; an operator unless `cat` says otherwise."""
    times = {"ts": ts} if dur is None else {"ts": ts, "dur": dur}
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 7, "tid": thread, **times, **more}


def window(name: str, start: float, end: float, thread: int = MAIN, **more: Any) -> Event:
    return event(name, start, end - start, thread, cat="user_annotation", **more)


def launch(ts: float, correlation: int, thread: int = AUTOGRAD) -> Event:
    args = {"correlation": correlation}
    return event("cudaLaunchKernel", ts, 1, thread, cat="cuda_runtime", args=args)


def kernel(ts: float, correlation: int) -> Event:
    args = {"device": 0, "stream": 20, "correlation": correlation}
    return event("gemm", ts, 5, 20, cat="kernel", pid=0, args=args)


def read(path: Path, events: list[Event]) -> list[dict[str, Any]]:
    """The rows of a trace; reports tell the same iterations."""
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    rows = trace.read(path).main.to_pylist()
    reported = [r for r in eager(path, {}).main.to_pylist() if r["duration_ns"] is not None]
    assert [r["iteration"] for r in reported] == [r["iteration"] for r in rows]
    return rows


def of(rows: list[dict[str, Any]], column: str = "iteration") -> dict[str, Any]:
    """Name -> value; every name is there once."""
    assert len({r["name"] for r in rows}) == len(rows)
    return {r["name"]: r[column] for r in rows}


def test_backward_on_its_own_thread_is_of_the_step_in_which_it_began(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#4", 0, 100),
            window("ProfilerStep#5", 100, 200),
            event("forward", 10, 20),
            event("backward", 60, 20, AUTOGRAD),
            event("late", 95, 20, AUTOGRAD),  # it ends in the next step
            event("next", 100, 20, OTHER),  # a step ends where the next begins
            event("after", 200, 5, AUTOGRAD),
            event("before", -5, 4, AUTOGRAD),
        ],
    )
    assert of(rows) == {
        "forward": 4, "backward": 4, "late": 4, "next": 5, "after": None, "before": None,
    }  # fmt: skip


def test_a_kernel_is_of_the_step_that_launched_it_not_of_that_in_which_it_ran(
    tmp_path: Path,
) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#1", 0, 100),
            window("ProfilerStep#2", 100, 200),
            event("mm", 80, 10, AUTOGRAD),
            launch(82, 31),
            kernel(150, 31),
            launch(96, 32),  # outside of any operator
            kernel(160, 32),
            launch(-3, 33),  # before the first step
            kernel(170, 33),
            kernel(180, 99),  # its launch is not in the trace
        ],
    )
    found = {r["correlation"]: (r["iteration"], r["layer"]) for r in rows}
    assert found == {
        None: (1, None), 31: (1, "mm"), 32: (1, None), 33: (None, None), 99: (None, None),
    }  # fmt: skip


def test_own_ranges_give_the_phase_too(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("layerline/iteration/0", 0, 100),
            window("layerline/phase/forward", 5, 40),
            window("layerline/phase/backward", 40, 90),
            event("mm", 50, 10, AUTOGRAD),
            event("between", 92, 5, AUTOGRAD),
        ],
    )
    assert of(rows) == {"mm": 0, "between": 0}
    assert of(rows, "phase") == {"mm": "backward", "between": None}


def test_steps_of_the_profiler_around_own_iterations_are_not_counted(tmp_path: Path) -> None:
    """They are numbered from another start: the step around iteration 0 is number 1."""
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#1", 0, 100),
            window("layerline/iteration/0", 10, 90),
            window("ProfilerStep#2", 100, 200),
            window("layerline/iteration/1", 110, 190),
            event("inside", 20, 5),
            event("margin", 95, 2),
            event("inside there", 120, 5, AUTOGRAD),
            event("margin there", 102, 2, AUTOGRAD),
        ],
    )
    assert of(rows) == {"inside": 0, "margin": None, "inside there": 1, "margin there": None}


def test_a_window_of_another_process_holds_nothing(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#3", 0, 100),
            window("ProfilerStep#8", 50, 150, pid=8),
            event("ours", 60, 5, AUTOGRAD),
            event("theirs", 60, 5, AUTOGRAD, pid=8),
            event("theirs before", 20, 5, AUTOGRAD, pid=8),
            event("nobody's", 60, 5, AUTOGRAD, pid=9),
        ],
    )
    assert of(rows) == {"ours": 3, "theirs": 8, "theirs before": None, "nobody's": None}


def test_where_windows_of_two_threads_overlap_a_third_is_unknown(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#3", 0, 100),
            window("ProfilerStep#6", 50, 150, OTHER),
            event("one is open", 20, 5, AUTOGRAD),
            event("both", 60, 5, AUTOGRAD),
            event("the other", 120, 5, AUTOGRAD),
            event("in the first", 70, 5),
            event("in the second", 70, 5, OTHER),
        ],
    )
    assert of(rows) == {
        "one is open": 3, "both": None, "the other": 6, "in the first": 3, "in the second": 6,
    }  # fmt: skip


def test_of_windows_in_one_another_it_is_the_innermost(tmp_path: Path) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#1", 0, 100),
            window("ProfilerStep#2", 20, 40),
            window("ProfilerStep#3", 60, 100),
            event("inner", 30, 1, AUTOGRAD),
            event("outer", 50, 1, AUTOGRAD),
            event("second", 70, 1, AUTOGRAD),
        ],
    )
    assert of(rows) == {"inner": 2, "outer": 1, "second": 3}


def test_times_that_were_rounded_leave_only_what_lies_in_both_steps_unknown(
    tmp_path: Path,
) -> None:
    rows = read(
        tmp_path / "t.json",
        [
            window("ProfilerStep#1", 0, 101),
            window("ProfilerStep#2", 100, 200),
            event("first", 99, 1, AUTOGRAD),
            event("both", 100, 1, AUTOGRAD),
            event("second", 101, 1, AUTOGRAD),
        ],
    )
    assert of(rows) == {"first": 1, "both": None, "second": 2}


@pytest.mark.parametrize("name", ["ProfilerStep#", "ProfilerStep#x", f"ProfilerStep#{10**30}"])
def test_a_range_without_a_usable_number_is_no_window(tmp_path: Path, name: str) -> None:
    events = [window(name, 0, 100), event("here", 5, 1), event("there", 5, 1, AUTOGRAD)]
    assert of(read(tmp_path / "t.json", events)) == {"here": None, "there": None}


def test_a_window_without_a_duration_holds_nothing_on_other_threads(tmp_path: Path) -> None:
    endless = event("ProfilerStep#1", 0, None, cat="user_annotation")
    assert of(read(tmp_path / "t.json", [endless, event("mm", 5, 1, AUTOGRAD)])) == {"mm": None}


SPANS = st.lists(st.tuples(st.sampled_from([MAIN, OTHER]), st.integers(0, 15), st.integers(0, 15)),
                 min_size=1, max_size=7)  # fmt: skip


@settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(SPANS)
def test_moment_by_moment(tmp_path: Path, spans: list[tuple[int, int, int]]) -> None:
    """One window that lies in all others that are open, all on one thread; or none is told."""
    path = tmp_path / "t.json"
    marks = [window(f"ProfilerStep#{i}", a, a + d, t) for i, (t, a, d) in enumerate(spans)]
    moments = [event(str(t), t, 0, AUTOGRAD) for t in range(31)]
    path.write_text(json.dumps({"traceEvents": marks + moments}))
    events = read_events(path)
    _, iteration = windows(events, nest(events))
    for t, number in zip(range(31), iteration[np.flatnonzero(events.kind == OP)], strict=True):
        open_ = {i: s for i, s in enumerate(spans) if s[1] <= t < s[1] + s[2]}
        innermost = {
            i
            for i, (thread, a, d) in open_.items()
            if all(q == thread and b <= a and a + d <= b + e for q, b, e in open_.values())
        }
        assert number in innermost if innermost else number == -1


def test_every_operation_of_a_training_step_on_an_h100_is_of_the_step_around_its_launch() -> None:
    """More than half of them had none: backward ran on a thread of its own."""
    raw = json.loads(gzip.decompress(H100.read_bytes()))["traceEvents"]
    steps = [e for e in raw if e.get("cat") == "user_annotation" and "ProfilerStep" in e["name"]]
    calls = {
        e["args"]["correlation"]: round(e["ts"] * 1000)
        for e in raw
        if e.get("cat") in ("cuda_runtime", "cuda_driver")
    }
    rows = trace.read(H100).main.to_pylist()
    assert len(rows) == 2970
    for row in rows:
        began = row["start_ns"] if row["kind"] == "op" else calls[row["correlation"]]
        (around,) = (
            int(e["name"].partition("#")[2])
            for e in steps
            if round(e["ts"] * 1000) <= began < round(e["ts"] * 1000) + round(e["dur"] * 1000)
        )
        assert row["iteration"] == around
