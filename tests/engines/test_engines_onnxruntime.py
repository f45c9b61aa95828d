"""Building ONNX Runtime engines: every layer resolved, what ran in which precision, errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from engine_models import NODES, TOKENS, reference, weights, write_run

from layerline.core.errors import InputError, ToolMissing
from layerline.core.run import open_run
from layerline.engines import backend as backends
from layerline.engines import onnxruntime_graph
from layerline.engines.command import engines
from layerline.engines.onnxruntime_backend import LEVELS, OnnxRuntimeBackend
from layerline.export import inference

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """(layers.json, build.json, engine) by precision and level."""
    backend = OnnxRuntimeBackend()
    found = {}
    for level in LEVELS:
        path = write_run(tmp_path_factory.mktemp("run") / level)
        run = open_run(path, create=True)
        for precision in backend.precisions:
            options = backend.options(backends.BuildOptions(level, 1))
            backend.build(run, precision, options)
            found[precision, level] = (
                json.loads(backend.layers(run, precision).read_text()),
                json.loads(backend.build_record(run, precision).read_text()),
                backend.engine(run, precision),
            )
    return found


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_every_layer_has_modules_and_every_node_a_fate(
    built: dict[tuple[str, str], Any], precision: str, level: str
) -> None:
    listed, _, _ = built[precision, level]
    assert [la["name"] for la in listed["layers"] if not la["modules"]] == []
    assert {n["name"]: n["status"] for n in listed["nodes"]}.keys() == {n[0] for n in NODES}
    assert [n["name"] for n in listed["nodes"] if n["status"] == "missing"] == []
    names = [(la["name"], la["occurrence"]) for la in listed["layers"]]
    assert len(set(names)) == len(names)
    assert "" not in {la["name"] for la in listed["layers"]}


def test_saved_graph_computes_the_model(built: dict[tuple[str, str], Any]) -> None:
    """The engine file, loaded with every optimisation off, against numpy in float64."""
    import onnxruntime

    ids = np.arange(TOKENS)[None]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for (precision, _level), (_, record, engine) in built.items():
        session = onnxruntime.InferenceSession(
            str(engine), options, providers=["CPUExecutionProvider"]
        )
        expected = reference(weights(np.float16 if precision == "fp16" else np.float32), ids)
        (logits,) = session.run(None, {"ids": ids})
        assert np.abs(logits - expected).max() < (0.05 if precision == "fp16" else 1e-4)
        assert record["reload_max_abs"] == 0.0


def test_half_precision_is_stored_and_float_is_computed(
    built: dict[tuple[str, str], Any],
) -> None:
    """ONNX Runtime's CPU kernels have no half arithmetic: weights and casts are half, MatMul and
    the inlined Softmax float; LayerNormalization takes half and converts inside."""
    listed, _, _ = built["fp16", "all"]
    by_name = {la["name"]: la for la in listed["layers"]}
    half = {la["op"] for la in listed["layers"] if la["compute_precision"] == "fp16"}
    assert half <= {"Max"}  # of the inlined Relu: a comparison, for which there is a kernel
    assert {la["compute_precision"] for la in listed["layers"]} >= {"fp32", None}
    head = by_name["head/MatMul"]
    assert (head["precision_in"], head["compute_precision"]) == ("fp32", "fp32")
    norm = by_name["ln/LayerNormalization"]
    assert (norm["precision_in"], norm["compute_precision"]) == ("fp16", "fp32")
    gather = by_name["emb/Gather"]
    assert (gather["precision_out"], gather["compute_precision"]) == ("fp16", None)
    softmax = [la["op"] for la in listed["layers"] if la["nodes"] == ["attn/Softmax"]]
    assert {"Exp", "ReduceSum", "Div"} <= set(softmax)


def test_float_engine_computes_in_float(built: dict[tuple[str, str], Any]) -> None:
    listed, record, _ = built["fp32", "basic"]
    assert {la["compute_precision"] for la in listed["layers"]} <= {"fp32", None}
    assert record["options"]["optimization_level"] == "basic"
    assert record["build_seconds"] > 0
    assert record["engine_bytes"] > 0


def test_gemm_made_of_two_nodes_is_told_as_fused(built: dict[tuple[str, str], Any]) -> None:
    fates = {n["name"]: n["status"] for n in built["fp32", "all"][0]["nodes"]}
    assert fates["fc/MatMul"] == fates["fc/Add"] == "fused"
    fates = {n["name"]: n["status"] for n in built["fp32", "disable"][0]["nodes"]}
    assert set(fates.values()) == {"executed"}


def invoke(path: Path, *arguments: str) -> Any:
    return CliRunner().invoke(engines, ["--run", str(path), *arguments], catch_exceptions=True)


def test_a_valid_engine_is_not_built_again_and_needs_no_library(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    assert invoke(path, "--precision", "fp32", "--backend", "onnxruntime").exit_code == 0
    engine = path / "engines" / "fp32.onnxruntime.onnx"
    before = engine.stat().st_mtime_ns
    script = (
        "import sys; from layerline.core.cli.command import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as e: assert e.code == 0, e.code\n"
        "assert not {'onnxruntime', 'onnx', 'torch'} & set(sys.modules)"
    )
    command = ["engines", "--run", str(path), "--precision", "fp32", "--backend", "onnxruntime"]
    done = subprocess.run([sys.executable, "-c", script, *command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stderr
    assert engine.stat().st_mtime_ns == before


def test_another_level_is_another_engine(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    common = ("--precision", "fp32", "--backend", "onnxruntime", "--threads", "1")
    for level in ("disable", "all"):
        assert invoke(path, *common, "--optimization-level", level).exit_code == 0
        record = json.loads((path / "engines" / "fp32.onnxruntime.build.json").read_text())
        assert record["options"]["optimization_level"] == level


def test_truncated_model_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    model = path / "export" / "fp32.onnx"
    model.write_bytes(model.read_bytes()[:-200])
    result = invoke(path, "--precision", "fp32", "--backend", "onnxruntime")
    assert isinstance(result.exception, InputError)
    assert result.exception.exit_code == 2
    assert str(model) in result.exception.line()
    assert list((path / "engines").glob("*")) == []
    assert not (path / "manifests" / "engines" / "fp32.onnxruntime.json").exists()


def test_model_that_onnxruntime_refuses_is_one_line(tmp_path: Path) -> None:
    import onnx

    path = write_run(tmp_path / "run", ("fp32",))
    file = path / "export" / "fp32.onnx"
    model = onnx.load(str(file))
    model.graph.node[4].op_type = "NoSuchOperator"
    onnx.save(model, str(file))
    result = invoke(path, "--precision", "fp32", "--backend", "onnxruntime")
    assert isinstance(result.exception, InputError)
    assert "NoSuchOperator" in result.exception.line()
    assert "\n" not in result.exception.line()
    assert list((path / "engines").iterdir()) == []


def test_missing_onnx_file_names_the_command(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    result = invoke(path, "--precision", "fp16", "--backend", "onnxruntime")
    assert isinstance(result.exception, InputError)
    assert result.exception.fix == f"layerline export {path} --precision fp16 --backend onnxruntime"


def test_missing_library_is_exit_3_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    why = inference.Unavailable("onnxruntime is not installed", "pip install it")
    monkeypatch.setattr(OnnxRuntimeBackend, "unavailable", lambda self: why)
    result = invoke(path, "--precision", "fp32", "--backend", "onnxruntime")
    assert isinstance(result.exception, ToolMissing)
    assert result.exception.line().endswith("pip install it")


def test_precision_that_a_backend_lacks(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", ("fp32",))
    result = invoke(path, "--precision", "bf16", "--backend", "onnxruntime")
    assert isinstance(result.exception, InputError)
    assert "fp32, fp16" in result.exception.line()
    assert invoke(path, "--precision", "fp8").exit_code == 2


def test_weights_beside_the_engine_when_the_model_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond protobuf's 2 GB: the same code with a lower limit."""
    from layerline.engines import onnxruntime_graph

    monkeypatch.setattr(onnxruntime_graph, "EXTERNAL_ABOVE_BYTES", 100)
    run = open_run(write_run(tmp_path / "run", ("fp32",)), create=True)
    backend = OnnxRuntimeBackend()
    outputs = backend.outputs(run, "fp32")
    backend.build(run, "fp32", backend.options(backends.BuildOptions("all", 1)))
    assert [p.name for p in outputs if not p.exists()] == []
    assert (run.path / "engines" / "fp32.onnxruntime.onnx.data").stat().st_size > 1000
    names = {p.name for p in (run.path / "engines").iterdir()}
    assert names == {p.name for p in outputs}


def test_unnamed_and_doubled_nodes_get_names_of_their_own() -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Exp", ["b"], ["c"], name="x"),
        helper.make_node("Exp", ["c"], ["d"], name="x"),
        helper.make_node("Exp", ["d"], ["e"], name="Exp/b"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    assert onnxruntime_graph.name_uniquely(model) == 2
    names = [n.name for n in model.graph.node]
    assert names[1] == "x"
    assert names[3] == "Exp/b"
    assert len(set(names)) == 4
    assert "" not in names
