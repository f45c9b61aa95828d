"""Kernels of ONNX Runtime CUDA to nodes: two clocks joined by readings of one around calls in the
other. Every time is written out: the profile's clock is 5,000,000,000 ns ahead of nsys's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from captured import engine_files, engine_of
from hypothesis import given
from hypothesis import strategies as st
from nsys_build import Export

from layerline.analysis.attribution.onnxruntime_nsys import (
    Distance,
    Span,
    Spans,
    distance,
    read_calls,
)
from layerline.analysis.captures import engine_ops
from layerline.analysis.comparison import build
from layerline.analysis.model.side import Model
from layerline.core.files import write_json
from layerline.core.run import Run

AHEAD = 5_000_000_000
ZERO = AHEAD + 1_000_000  # the profile began 1 ms after nsys did
CUDA = ("fp16", "onnxruntime-cuda")
NAME = ".".join(CUDA)
LAYERS = [
    {"name": "fc/MatMul", "occurrence": 0, "nodes": ["fc/MatMul"], "modules": ["fc"],
     "rule": "name", "kind": "node"},
    {"name": "ln/Norm", "occurrence": 0, "nodes": ["ln/Norm"], "modules": ["ln"], "rule": "name",
     "kind": "node"},
]  # fmt: skip


def profile_events(run_at_us: list[int]) -> list[dict[str, Any]]:
    """Runs of 60 us: fc/MatMul at +10 for 15 us, ln/Norm at +30 for 15 us."""
    events: list[dict[str, Any]] = []
    for at in run_at_us:
        for cat, name, start, length in (
            ("Session", "model_run", at, 60),
            ("Node", "fc/MatMul_kernel_time", at + 10, 15),
            ("Node", "ln/Norm_kernel_time", at + 30, 15),
        ):
            events.append(
                {"cat": cat, "ph": "X", "name": name, "ts": start, "dur": length, "pid": 1,
                 "tid": 1, "args": {"op_name": "X", "provider": "CUDAExecutionProvider"}}
            )  # fmt: skip
    return events


def a_run(path: Path, *, readings_off: int = 0, backend: str = "onnxruntime-cuda") -> Run:
    """One captured run at 2,000 us of the profile (3,000,000 ns of nsys), after one before it.

    Launches: two in fc/MatMul, one in ln/Norm, one between the nodes.
    """
    run = Run(path)
    run.file("captures").mkdir(parents=True)
    export = Export()
    readings = []
    for at in (2_900_000, 2_910_000):
        export.call(at, None, name="cuEventRecord", duration=4_000)
        readings.append([at + AHEAD - 500 + readings_off, at + AHEAD + 4_300 + readings_off])
    export.call(2_990_000, None, name="cuEventRecord")
    export.launch(3_012_000, 700, name="gemm_a")
    export.launch(3_018_000, 300, name="gemm_b")
    export.launch(3_028_500, 50, name="between")
    export.launch(3_035_000, 200, name="norm")
    export.call(3_080_000, None, name="cuEventRecord")
    for at in (3_100_000, 3_110_000):
        export.call(at, None, name="cuEventRecord", duration=4_000)
        readings.append([at + AHEAD - 400, at + AHEAD + 4_600])
    export.write(run.file("captures", f"{NAME}.sqlite"))
    write_json(run.file("captures", f"{NAME}.trace.profile.json"), profile_events([100, 2_000]))
    write_json(run.file("engines", f"{NAME}.layers.json"), {"layers": LAYERS, "nodes": []})
    write_json(
        run.file("captures", f"{NAME}.trace.meta.json"),
        {
            "source": f"{NAME}.sqlite",
            "latency_ns": [24_000],
            "facts": {
                "queued": True,
                "runs_before": 1,
                "profiling_start_ns": ZERO,
                "clock_readings": readings,
            },
        },
    )
    write_json(
        run.file("captures", f"{NAME}.latency.json"),
        {"latency_ns": [40_000] * 8, "queued_ns": [24_000] * 8, "facts": {}},
    )
    return run


def test_a_kernel_has_the_node_in_which_it_was_launched(tmp_path: Path) -> None:
    found = engine_ops.read(engine_files(a_run(tmp_path), *CUDA))
    rows = {r["name"]: r for r in found.ops.to_pylist()}
    assert {n: r["layer"] for n, r in rows.items()} == {
        "gemm_a": "fc/MatMul", "gemm_b": "fc/MatMul", "norm": "ln/Norm", "between": None,
    }  # fmt: skip
    assert rows["gemm_a"]["modules"] == ["fc"]
    assert rows["between"]["rule"] == "unresolved"
    assert {r["iteration"] for r in rows.values()} == {0}
    assert found.raw_ns == {"kernel": 1_250}
    assert found.latency_ns == [24_000]


def test_the_side_says_what_is_unresolved(tmp_path: Path) -> None:
    (side,) = engine_of(a_run(tmp_path), *CUDA).sides
    shown = build.build([side], Model("m"))
    (seen,) = shown.sides
    assert seen.label == "ONNX Runtime CUDA fp16"
    assert seen.operation_ns == 1_250
    assert seen.unresolved_ns == 50
    assert {r.path: r.costs[side.key].own.median for r in shown.modules if r.path} == {
        "fc": 1_000,
        "ln": 200,
    }
    assert ("i", True) in [(c.name, c.ok) for c in seen.checks]
    (clocks,) = (c for c in seen.checks if c.name == "clocks")
    # The tightest of four readings: 400 ns before a call and 300 after one.
    assert clocks.ok is None and "joined to within 700 ns" in clocks.text
    assert "1 of 4 operations" in clocks.text


def test_readings_that_contradict_each_other_place_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock was set in the middle of the capture."""
    run = a_run(tmp_path, readings_off=9_000)
    found = engine_ops.read(engine_files(run, *CUDA))
    assert set(found.ops["layer"].to_pylist()) == {None}
    assert set(found.ops["iteration"].to_pylist()) == {0}  # there was one only
    assert "could not be joined" in capsys.readouterr().err
    assert [(c.name, c.ok) for c in found.checks] == [("clocks", None)]


def test_without_nsys_its_own_profile_serves_and_its_latency_is_not_compared(
    tmp_path: Path,
) -> None:
    """In the profiled run every launch waits for its kernel."""
    run = a_run(tmp_path)
    run.file("captures", f"{NAME}.trace.meta.json").unlink()
    write_json(run.file("captures", f"{NAME}.profile.json"), profile_events([100, 2_000]))
    write_json(
        run.file("captures", f"{NAME}.profile.meta.json"),
        {"profile": f"{NAME}.profile.json", "latency_ns": [61_000], "facts": {"warmup_runs": 1}},
    )
    layers = {"schema_version": 1, "layers": LAYERS, "nodes": []}
    write_json(run.file("engines", f"{NAME}.layers.json"), layers)
    (side,) = engine_of(run, *CUDA).sides
    assert [(c.name, c.ok) for c in side.side.checks] == [
        ("i", True), ("ii", None), ("iii", None),
    ]  # fmt: skip


# --- the pieces ----------------------------------------------------------------------------------


@given(
    st.integers(-(10**12), 10**12),
    st.lists(
        st.tuples(st.integers(0, 10**9), *[st.integers(0, 5_000)] * 3), min_size=1, max_size=30
    ),
)
def test_the_true_distance_is_always_within_the_bounds(
    truth: int, calls: list[tuple[int, int, int, int]]
) -> None:
    seen = [(start, start + length) for start, length, _, _ in calls]
    readings = [
        (start + truth - before, start + length + truth + after)
        for start, length, before, after in calls
    ]
    found = distance(seen, readings)
    assert found is not None
    assert found.low <= truth <= found.high
    assert found.high - found.low <= min(b + a for _, _, b, a in calls)


def test_another_number_of_calls_is_not_matched() -> None:
    calls = [(i, i) for i in range(7)]
    assert read_calls(calls, 4, 1) == []
    assert read_calls(calls[:6], 4, 1) == [(0, 0), (1, 1), (4, 4), (5, 5)]
    assert read_calls(calls[:2], 0, 1) == []
    assert distance([], []) is None
    assert distance([(0, 1)], [(5, 5)]) is None  # a call longer than the readings around it
    assert distance([(0, 1)], [(5, 7)]) == Distance(5, 6)


def test_two_nodes_that_would_fit_are_none_and_nested_ones_the_inner() -> None:
    spans = Spans([Span(0, 10, "a", 0), Span(10, 20, "b", 0), Span(30, 90, "if", 0),
                   Span(40, 50, "inner", 0)])  # fmt: skip

    def name(low: int, high: int) -> str | None:
        found = spans.at(low, high)
        return None if found is None else found.name

    assert name(4, 6) == "a"
    assert name(8, 12) is None
    assert name(22, 28) is None
    assert name(44, 45) == "inner"
    assert name(60, 61) == "if"
    assert name(28, 31) == "if"
