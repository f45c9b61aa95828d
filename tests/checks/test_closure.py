"""Closure: terms that add up, and checks that fail when they should."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

from analysis_examples import node, ops
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.checks import raw_totals
from layerline.analysis.checks.closure import (
    Span,
    counted_once,
    operators_against_phase,
    phases_against_step,
    profiler_cost,
    span_against_latency,
    spans,
)
from layerline.core.stats import summarise


def kernels(*times: tuple[int, int, int]) -> list[dict[str, object]]:
    """Kernels of one iteration: (start, duration, stream)."""
    return [
        {
            "source": "x",
            "iteration": 0,
            "kind": "kernel",
            "name": "k",
            "start_ns": start,
            "duration_ns": duration,
            "stream": stream,
        }
        for start, duration, stream in times
    ]


def test_overlapping_operations_on_two_streams_by_hand() -> None:
    # 0..10 and 5..12 overlap by 5; nothing runs from 12 to 20; 20..21.
    (found,) = spans(ops(kernels((0, 10, 1), (5, 7, 2), (20, 1, 1))))
    assert found == Span(iteration=0, operations=18, overlaps=5, gaps=8, span=21)


def test_nested_cpu_operators_are_no_overlap() -> None:
    outer = node("linear", ["a"], [100], kind="op", self_ns=30, start_ns=0)
    inner = node("addmm", ["a"], [70], kind="op", self_ns=70, start_ns=20)
    assert spans(ops(outer, inner)) == [Span(0, 100, 0, 0, 100)]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 300), st.integers(0, 60), st.integers(1, 2)),
        min_size=1,
        max_size=20,
    )
)
def test_terms_add_up_to_the_span_and_gaps_are_where_nothing_runs(times) -> None:  # type: ignore[no-untyped-def]
    (found,) = spans(ops(kernels(*times)))
    assert found.operations - found.overlaps + found.gaps == found.span
    running = {t for start, duration, _ in times for t in range(start, start + duration)}
    first, last = min(s for s, _, _ in times), max(s + d for s, d, _ in times)
    assert found.span == last - first
    assert found.gaps == (last - first) - len(running)
    assert found.overlaps == sum(d for _, d, _ in times) - len(running)


def test_the_residual_is_of_the_same_iteration() -> None:
    found = [Span(i, 9_000_000, 0, 0, 9_000_000) for i in (3, 4, 5)]
    # Joined by number: iteration 4 is the median; positions would pair it with another latency.
    check = span_against_latency(found, {5: 9_900_000, 4: 9_100_000, 3: 9_000_000, 9: 1})
    assert (check.residual_ns, check.ok) == (100_000, True)
    assert dict(check.terms)["latency"] == 9_100_000


def test_a_latency_far_beyond_the_span_does_not_add_up() -> None:
    check = span_against_latency([Span(0, 10**9, 0, 0, 10**9)], {0: 2 * 10**9})
    assert check.ok is False
    assert check.text.startswith("These numbers do not add up: ")
    assert check.residual_share == 0.5


def test_a_span_longer_than_the_latency_does_not_add_up_either() -> None:
    check = span_against_latency([Span(0, 10**9, 0, 0, 10**9)], {0: 9 * 10**8})
    assert (check.ok, check.residual_ns) == (False, -(10**8))


def test_without_a_latency_of_the_same_iterations_nothing_is_claimed() -> None:
    assert span_against_latency([Span(0, 1, 0, 0, 1)], None).ok is None
    check = span_against_latency([Span(0, 1, 0, 0, 1)], {7: 1})
    assert check.ok is None and check.residual_ns is None


def test_an_operation_counted_twice_or_dropped_fails() -> None:
    assert counted_once({"node": 1000}, {"node": 1000}, 0).ok is True
    assert counted_once({"node": 1100}, {"node": 1000}).ok is False
    assert counted_once({"kernel": 1000}, {"kernel": 1000, "memcpy": 50}).ok is False
    twice = counted_once({"node": 1000}, {"node": 1000}, lost_ns=-300)
    assert (twice.ok, twice.residual_ns) == (False, -300)
    assert counted_once({"node": 1000}, None).ok is None


def test_one_kinds_surplus_does_not_hide_anothers_loss() -> None:
    check = counted_once({"kernel": 1100, "memcpy": 0}, {"kernel": 1000, "memcpy": 100})
    assert check.ok is False


def test_phases_of_a_step() -> None:
    steps = {0: 1000, 1: 1000, 2: 1000}
    phases = {"forward": {0: 400, 1: 400, 2: 400}, "backward": {0: 590, 1: 595, 2: 300}}
    check = phases_against_step(steps, phases)
    assert (check.ok, check.residual_ns) == (True, 10)
    assert phases_against_step({0: 1000}, {"forward": {0: 900}}).ok is False
    assert phases_against_step({0: 1000}, {}).ok is None


def test_operators_longer_than_their_phase_do_not_add_up() -> None:
    good = operators_against_phase({0: 700}, {0: 1000}, "forward")
    assert good.ok is True
    assert [ns for _, ns in good.terms] == [700, 300, 1000]
    assert operators_against_phase({0: 1100}, {0: 1000}).ok is False


def test_the_profilers_cost() -> None:
    plain = summarise([100, 100, 100])
    assert profiler_cost(summarise([105]), plain).ok is True
    check = profiler_cost(summarise([150]), plain)
    assert (check.ok, check.residual_ns) == (False, 50)
    assert profiler_cost(None, plain).ok is None


def test_raw_onnxruntime_counts_node_executions_in_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    events = [
        {"cat": "Session", "name": "model_run", "dur": 900, "ts": 0},
        {"cat": "Node", "name": "a_fence_before", "dur": 1, "ts": 0},
        {"cat": "Node", "name": "a_kernel_time", "dur": 300, "ts": 1},
        {"cat": "Node", "name": "b_kernel_time", "dur": 0, "ts": 301},
        {"cat": "Session", "name": "model_run", "dur": 50, "ts": 1000},
        {"cat": "Node", "name": "if_kernel_time", "dur": 40, "ts": 1001},
        {"cat": "Node", "name": "then_kernel_time", "dur": 30, "ts": 1005},
        {"cat": "Node", "name": "after_kernel_time", "dur": 9, "ts": 2000},
    ]
    path.write_text(json.dumps(events))
    assert raw_totals.onnxruntime(path) == {"node": 340_000}
    assert raw_totals.onnxruntime(path, warmup=1) == {"node": 40_000}


def test_raw_torch_trace_counts_nested_operators_once_and_only_in_the_window(
    tmp_path: Path,
) -> None:
    def op(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op") -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}

    path = tmp_path / "t.json.gz"
    events = [
        op("layerline/iteration/0", 10, 100, cat="user_annotation"),
        op("early", 0, 5),
        op("linear", 20, 10.5),
        op("addmm", 22, 7),
        op("other thread", 21, 3, tid=2),
    ]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    # linear 10.5 us with addmm inside it, and 3 us of another thread; "early" is in no iteration.
    found = raw_totals.torch_trace(path)
    assert (found.sums, found.steps) == ({"op": 13_500}, {0: 100_000})
    renamed = json.dumps({"traceEvents": events}).replace("layerline/iteration/", "step ")
    path.write_bytes(gzip.compress(renamed.encode()))
    assert raw_totals.torch_trace(path).sums == {"op": 18_500}
    # Older profilers wrote what is no strict JSON; a plain list has the events alone.
    plain = json.dumps(events).replace('"pid": 1', '"pid": 1, "weight": NaN')
    path.write_bytes(gzip.compress(plain.encode()))
    assert raw_totals.torch_trace(path) == found


def test_raw_nsys_leaves_absent_tables_out(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    database = sqlite3.connect(path)
    database.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, "end" INT)')
    database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?)", [(1, 5), (9, 10)])
    database.commit()
    database.close()
    assert raw_totals.nsys(path) == {"kernel": 5}
