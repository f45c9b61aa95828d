"""Two engines as they ran on an H100: GPT-2 under ONNX Runtime CUDA, GPT-2 large under TensorRT.

What they must come to was worked out by tests/data/make_h100_engines.py, which imports nothing of
Layerline and finds nodes and modules another way.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
from captured import engine_files, engine_of
from paths import DATA

from layerline.analysis.captures import engine_ops
from layerline.analysis.captures.engine_ops import EngineCapture
from layerline.analysis.comparison import build
from layerline.analysis.model.side import Model
from layerline.core import nodes
from layerline.core.files import write_json
from layerline.core.resolve import RawLayer, resolve
from layerline.core.run import Run

ORT, TRT = "fp16.onnxruntime-cuda", "tf32.tensorrt"


def unpacked(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def a_run(folder: Path, data: Path, name: str, source: str) -> Run:
    """The run directory as the GPU machine left it, of one engine."""
    run = Run(folder)
    for stage in ("captures", "engines", "export"):
        run.file(stage).mkdir(parents=True)
    with sqlite3.connect(run.file("captures", f"{name}.sqlite")) as database:
        database.executescript(gzip.decompress((data / f"{name}.sql.gz").read_bytes()).decode())
    database.close()
    meta = f"{name}.trace.meta.json"
    run.file("captures", meta).write_bytes((data / meta).read_bytes())
    write_json(run.file("export", f"{source}.nodes.json"), unpacked(data / "nodes.json.gz"))
    write_json(run.file("engines", f"{name}.build.json"), {"source": f"export/{source}.onnx"})
    write_json(run.file("engines", f"{name}.layers.json"), {"layers": []})
    return run


@pytest.fixture(scope="module")
def onnxruntime(tmp_path_factory: pytest.TempPathFactory) -> Run:
    data = DATA / "h100_onnxruntime"
    run = a_run(tmp_path_factory.mktemp("ort") / "run", data, ORT, "fp16")
    profile = f"{ORT}.trace.profile.json"
    run.file("captures", profile).write_bytes(
        gzip.decompress((data / f"{profile}.gz").read_bytes())
    )
    write_json(run.file("engines", f"{ORT}.layers.json"), unpacked(data / f"{ORT}.layers.json.gz"))
    return run


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return a_run(tmp_path_factory.mktemp("large") / "run", DATA / "h100_large", TRT, "fp32")


def costs(run: Run, precision: str, backend: str) -> tuple[dict[str, list[float]], Any]:
    """Module -> [own, own and shared], as the report has them, and the checks."""
    (side,) = engine_of(run, precision, backend).sides
    shown = build.build([side], Model("m"))
    found = {}
    for row in shown.modules:
        cost = row.costs.get(side.key)
        if cost is not None and row.path and row.kind == "module":
            found[row.path] = [cost.own.median, cost.upper.median]
    return found, {c.name: c.ok for c in shown.sides[0].checks}


def same(found: dict[str, list[float]], wanted: dict[str, list[float]]) -> None:
    """Medians of two iterations may fall on half a nanosecond."""
    assert found.keys() == wanted.keys()
    apart = {
        m: (found[m], wanted[m])
        for m in wanted
        if any(abs(a - b) > 1 for a, b in zip(found[m], wanted[m], strict=True))
    }
    assert not apart


# --- ONNX Runtime CUDA --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ort_capture(onnxruntime: Run) -> EngineCapture:
    return engine_ops.read(engine_files(onnxruntime, "fp16", "onnxruntime-cuda"))


def test_every_kernel_of_onnxruntime_is_in_the_node_that_launched_it(
    ort_capture: EngineCapture,
) -> None:
    wanted = unpacked(DATA / "h100_onnxruntime" / "expected.json.gz")
    rows = ort_capture.ops.to_pylist()
    assert len(rows) == 2 * 280 and {r["kind"] for r in rows} == {"kernel"}
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for r in rows:
        found[r["layer"]][r["iteration"]] += r["duration_ns"]
    assert found == wanted["layers"]
    assert len(found) == 378 - 146  # a Reshape launches nothing


def test_kernels_do_the_work_of_the_operator_that_launched_them(
    ort_capture: EngineCapture,
) -> None:
    """ONNX Runtime calls its kernels after its operators."""
    operator = {x["name"]: x["op"] for x in ort_capture.described}
    kernels = {
        "Add": "_BinaryElementWise", "BiasSoftmax": "BiasSoftmax", "FastGelu": "FastGelu",
        "FusedMatMul": "nvjet_", "Gather": "_GatherKernel", "Gemm": "nvjet_|BroadcastBias",
        "IsNaN": "_IsNan", "LayerNormalization": "cuApplyLayerNorm",
        "MatMul": "nvjet_|cutlass", "SkipLayerNormalization": "SkipLayerNorm",
        "Split": "_SplitSmallInner", "Transpose": "Transpose4D", "Where": "_TenaryElementWise",
    }  # fmt: skip
    for r in ort_capture.ops.to_pylist():
        assert re.search(kernels[operator[r["layer"]]], r["name"]), r["layer"]


def test_modules_of_onnxruntime_cost_what_their_kernels_took(onnxruntime: Run) -> None:
    wanted = unpacked(DATA / "h100_onnxruntime" / "expected.json.gz")
    found, checks = costs(onnxruntime, "fp16", "onnxruntime-cuda")
    worked = {m: c for m, c in found.items() if c != [0, 0]}
    same(worked, wanted["modules"])
    assert found.keys() - worked.keys() <= {"transformer.wpe"}  # folded when it was built
    assert checks == {"i": True, "ii": True, "iii": None, "clocks": True, "precision": True}


def test_the_last_sum_and_the_norm_behind_it_are_shared(onnxruntime: Run) -> None:
    found, _ = costs(onnxruntime, "fp16", "onnxruntime-cuda")
    own, most = found["transformer.ln_f"]
    assert own == 0 and 2_000 < most < 3_000


def test_fused_nodes_are_found_between_their_tensors(onnxruntime: Run) -> None:
    """Fused nodes have names of ONNX Runtime's own: what they are is between their tensors."""
    described = unpacked(DATA / "h100_onnxruntime" / f"{ORT}.layers.json.gz")["layers"]
    raw = [RawLayer(x["name"], x["op"], tuple(x["inputs"]), tuple(x["outputs"])) for x in described]
    found = resolve(raw, nodes.load(onnxruntime.file("export", "fp16.nodes.json")))
    assert Counter(r.rule for r in found) == {"name": 329, "boundary": 37, "carrier": 12}
    soft = [r for r in found if r.name.startswith("BiasSoftmax")]
    assert [r.modules for r in soft] == [(f"transformer.h.{i}.attn",) for i in range(12)]
    gelu = [r for r in found if r.name.startswith("GPT2Gelu")]
    assert [r.modules for r in gelu] == [(f"transformer.h.{i}.mlp.act",) for i in range(12)]


# --- GPT-2 large --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trt_capture(large: Run) -> EngineCapture:
    return engine_ops.read(engine_files(large, "tf32", "tensorrt"))


def test_every_operation_of_the_large_engine_has_its_module(trt_capture: EngineCapture) -> None:
    rows = [r for r in trt_capture.ops.to_pylist() if r["iteration"] == 0]
    assert Counter(r["kind"] for r in rows) == {"kernel": 362, "memset": 73}
    assert all(r["modules"] for r in rows)
    rules = Counter(r["rule"] for r in rows if r["kind"] == "kernel")
    # The softmax of each block, its c_attn that the engine calls fc, its GELU.
    assert rules == {"name": 254, "boundary": 36, "elimination": 36, "order": 36}


def test_modules_of_the_large_engine_cost_what_their_operations_took(large: Run) -> None:
    wanted = unpacked(DATA / "h100_large" / "expected.json.gz")
    found, checks = costs(large, "tf32", "tensorrt")
    same(found, wanted["modules"])
    assert checks["i"] is True and checks["ii"] is True and checks["precision"] is True


def test_no_node_of_the_large_model_is_missing(trt_capture: EngineCapture) -> None:
    fates = Counter(n["status"] for n in trt_capture.nodes)
    assert fates["missing"] == 0 and sum(fates.values()) == 1491
    softmax = {n["status"] for n in trt_capture.nodes if n["op"] == "Softmax"}
    assert softmax == {"fused"}


def test_thirty_six_blocks_cost_alike(large: Run) -> None:
    found, _ = costs(large, "tf32", "tensorrt")
    most = [found[f"transformer.h.{i}"][1] for i in range(36)]
    typical = statistics.median(most)
    # The first one's softmax also makes the mask, and its c_fc runs another kernel.
    apart = [i for i, ns in enumerate(most) if abs(ns - typical) > 0.03 * typical]
    assert apart == [0]
