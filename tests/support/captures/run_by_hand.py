"""A run directory written by hand: every number worked out beforehand.

One engine with three nodes and two measured runs, one eager inference with two iterations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paths
import pytest
import rendering

from layerline.analysis import pipeline
from layerline.core.cli.command import main
from layerline.core.files import write_json
from layerline.core.run import Run

ENGINE, EAGER = "engine/fp16.onnxruntime/inference", "eager/fp32/inference"
NODES = {"a": ["a"], "a+b": ["a", "b"], "b": ["b"]}


def onnxruntime_profile() -> list[dict[str, Any]]:
    """A binding run, a warm-up run, and two measured runs of 1000 us; times in microseconds."""
    events: list[dict[str, Any]] = []
    for run, times in enumerate(([9, 9, 9], [9, 9, 9], [300, 100, 500], [310, 110, 520])):
        start = 10_000 * run
        events.append(
            {"cat": "Session", "ph": "X", "name": "model_run", "ts": start, "dur": 1000,
             "pid": 1, "tid": 1, "args": {}}
        )  # fmt: skip
        at = start + 20
        for name, time in zip(NODES, times, strict=True):
            events.append(
                {"cat": "Node", "ph": "X", "name": f"{name}_kernel_time", "ts": at, "dur": time,
                 "pid": 1, "tid": 1, "args": {"op_name": "Gemm", "provider": "CPU"}}
            )  # fmt: skip
            at += time
    return events


def torch_trace() -> dict[str, Any]:
    """Two iterations of 3000 us: an operator of a with one nested in it, and one of b."""
    events: list[dict[str, Any]] = []

    def add(cat: str, name: str, ts: float, dur: float) -> None:
        events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 1, "ts": ts, "dur": dur,
             "args": {}}
        )  # fmt: skip

    for i in range(2):
        t = 5000 * i
        add("user_annotation", f"layerline/iteration/{i}", t, 3000)
        add("user_annotation", "layerline/phase/inference", t + 1, 2990)
        add("user_annotation", "layerline/module/", t + 2, 2980)
        add("user_annotation", "layerline/module/a", t + 3, 1500)
        add("cpu_op", "aten::linear", t + 10, 1400)
        add("cpu_op", "aten::addmm", t + 20, 1300)
        add("user_annotation", "layerline/module/b", t + 1600, 1300)
        add("cpu_op", "aten::gelu", t + 1610, 1000)
    return {"schemaVersion": 1, "traceEvents": events}


def write_run(path: Path) -> None:
    write_json(path / "manifests" / "version.json", {"schema_version": 1})
    manifest = {"schema_version": 1, "step": "profile/train.fp16", "versions": {"torch": "2"}}
    gone = {"what": "training in fp16", "why": "slow", "fix": "use a GPU"}
    write_json(path / "manifests/profile/train.fp16.json", {**manifest, "facts": {"skipped": gone}})
    modules = [{"path": p, "class": c} for p, c in (("", "Net"), ("a", "Linear"), ("b", "GELU"))]
    model = {"model": "tiny", "class": "Net", "batch": 1, "seq": 8, "weights": "random"}
    write_json(path / "export/model.json", {**model, "modules": modules})
    listed = [
        {"name": n, "occurrence": 0, "nodes": [f"{m}/Gemm" for m in ms], "modules": ms,
         "rule": "name", "kind": "compute", "precision_in": "fp16", "precision_out": "fp16",
         "compute_precision": "fp32"}
        for n, ms in NODES.items()
    ]  # fmt: skip
    node = {"name": "b/Gemm", "op": "Gemm", "module": "b", "status": "fused", "layer": "b"}
    layers = {"schema_version": 1, "engine": "e", "backend": "onnxruntime", "precision": "fp16"}
    name = "fp16.onnxruntime"
    write_json(path / f"engines/{name}.layers.json", {**layers, "layers": listed, "nodes": [node]})
    captures = path / "captures"
    write_json(captures / f"{name}.latency.json", {"latency_ns": [950_000] * 6})
    meta = {"latency_ns": [1_010_000, 1_015_000], "profile": f"{name}.profile.json"}
    more = {"backend": "onnxruntime", "facts": {"warmup_runs": 2}}
    write_json(captures / f"{name}.profile.meta.json", {**meta, **more})
    (captures / f"{name}.profile.json").write_text(json.dumps(onnxruntime_profile()))
    figures = {"max_abs": 0.5, "max_rel": 0.1, "cosine": 0.9995, "top1": 1.0}
    write_json(captures / f"{name}.accuracy.json", figures)
    (captures / "eager.fp32.trace.json").write_text(json.dumps(torch_trace()))
    write_json(captures / "eager.fp32.latency.json", {"latency_ns": [2_900_000] * 6})
    eager = {"trace": "eager.fp32.trace.json", "weights": ["float32"], "dropout": [], "tf32": False}
    write_json(captures / "eager.fp32.meta.json", {**eager, "autocast": False, "device": "cpu"})


def outcome(*arguments: object) -> int:
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return int(str(end.value.code))


def shown(run: Run) -> tuple[list[str], list[dict[str, Any]]]:
    """The keys of the sides, and what is listed of files; both reports can be written."""
    view = pipeline.analyse(run).comparison
    assert "Skipped" in rendering.markdown(view) and rendering.html(view)
    return [s.key for s in view.sides], [vars(s) for s in view.skipped if s.file]


def tiny_counters() -> bytes:
    return (paths.DATA / "ncu" / "two_kernels.raw.csv").read_bytes()
