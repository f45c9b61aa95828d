"""Engine captures: kernels under nsys, TensorRT's own profile, and what they are held against."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import paths
import pytest
from captured import engine_files, engine_of

from layerline.analysis.captures import engine_ops
from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.core.run import Run

DATA = paths.DATA / "nsys"
LAYERS = [
    {"name": "gemm", "occurrence": 0, "nodes": ["a/M"], "modules": ["a"], "rule": "order"},
    {"name": "gemm", "occurrence": 1, "nodes": ["b/M"], "modules": ["b"], "rule": "order"},
]


def iprofiler_run(path: Path, document: Any) -> Run:
    run = Run(path)
    write_json(run.file("engines", "fp16.tensorrt.layers.json"), {"layers": LAYERS})
    write_json(run.file("captures", "fp16.tensorrt.profile.json"), document)
    write_json(run.file("captures", "fp16.tensorrt.profile.meta.json"), {"latency_ns": [900, 900]})
    write_json(run.file("captures", "fp16.tensorrt.latency.json"), {"latency_ns": [100] * 6})
    return run


def test_layers_of_one_name_are_told_apart_by_occurrence(tmp_path: Path) -> None:
    document = {"layers": ["gemm", "gemm", "new"], "iterations": [[30, 20, 1], [31, 21, 1]]}
    found = engine_ops.read(engine_files(iprofiler_run(tmp_path, document), "fp16", "tensorrt"))
    rows = [(r["modules"], r["duration_ns"], r["rule"]) for r in found.ops.to_pylist()[:3]]
    assert rows == [(["a"], 30, "order"), (["b"], 20, "order"), (None, 1, "unresolved")]
    assert found.raw_ns == {"node": 104}
    assert found.ops["layer"].to_pylist()[:3] == ["gemm #1", "gemm #2", "new"]


def test_iprofiler_synchronises_so_its_latency_is_not_compared(tmp_path: Path) -> None:
    document = {"layers": ["gemm", "gemm"], "iterations": [[30, 20], [30, 20]]}
    (side,) = engine_of(iprofiler_run(tmp_path, document), "fp16").sides
    assert [(c.name, c.ok) for c in side.side.checks] == [
        ("i", True),
        ("ii", None),
        ("iii", None),
    ]


@pytest.mark.parametrize(
    "document", [{}, [], {"layers": ["a"], "iterations": [[1, 2]]}, {"layers": ["a"]}]
)
def test_a_foreign_profile_is_refused_by_name(tmp_path: Path, document: Any) -> None:
    with pytest.raises(InputError, match=r"fp16\.tensorrt\.profile\.json"):
        engine_ops.read(engine_files(iprofiler_run(tmp_path, document), "fp16", "tensorrt"))


@pytest.fixture
def traced(tmp_path: Path) -> Run:
    """A run whose TensorRT 8.6 engine, one ForeignNode to its own profiler, was run under nsys."""
    run = Run(tmp_path)
    for folder in ("export", "captures", "engines"):
        run.file(folder).mkdir()
    shutil.copy(DATA / "h100_tensorrt86.nodes.json", run.file("export", "fp32.nodes.json"))
    sqlite = run.file("captures", "fp16.tensorrt.sqlite")
    shutil.copy(DATA / "h100_tensorrt86_fp16.sqlite", sqlite)
    whole = [{"name": "{ForeignNode[eq...lm_head/MatMul]}", "nodes": [], "modules": []}]
    write_json(run.file("engines", "fp16.tensorrt.layers.json"), {"layers": whole})
    write_json(run.file("engines", "fp16.tensorrt.build.json"), {"source": "export/fp32.onnx"})
    return run


def kernel_sums(path: Path) -> tuple[int, int]:
    """(kernels, ns) of the whole capture, straight from the file."""
    with contextlib.closing(sqlite3.connect(path)) as database:
        query = 'SELECT COUNT(*), SUM("end" - start) FROM CUPTI_ACTIVITY_KIND_KERNEL'
        count, total = database.execute(query).fetchone()
    return count, total


def test_kernels_under_nsys_are_all_there_and_resolved(traced: Run) -> None:
    meta = {"source": "fp16.tensorrt.sqlite", "latency_ns": None}
    write_json(traced.file("captures", "fp16.tensorrt.trace.meta.json"), meta)
    (side,) = engine_of(traced, "fp16").sides
    _, total = kernel_sums(traced.file("captures", "fp16.tensorrt.sqlite"))
    first = side.side.checks[0]
    assert first.ok is True
    assert dict(first.terms)["kernel in the tables"] == -total
    assert side.layers is not None
    names = side.layers["layer"].to_pylist()
    assert not any(n.startswith("{ForeignNode") for n in names)
    modules = {m for ms in side.layers["modules"].to_pylist() for m in ms or ()}
    assert {"transformer.wte", "transformer.h.1.attn", "lm_head"} <= modules
    assert {n["status"] for n in side.nodes} <= {"executed", "fused", "folded", "missing"}


def test_a_wrong_latency_of_a_device_capture_does_not_add_up(traced: Run) -> None:
    meta = {"source": "fp16.tensorrt.sqlite", "latency_ns": [250_000]}
    path = traced.file("captures", "fp16.tensorrt.trace.meta.json")
    write_json(path, meta)
    (side,) = engine_of(traced, "fp16").sides
    iterations = len(set(side.ops["iteration"].drop_null().to_pylist()))
    write_json(path, {**meta, "latency_ns": [250_000] * iterations})
    (side,) = engine_of(traced, "fp16").sides
    # The operations of one inference span about 190 us of these 250.
    assert side.side.checks[1].ok is False
