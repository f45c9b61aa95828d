"""Real builds with TensorRT-RTX, which needs no GPU: network, layers and facts of the engine.

TRT_PYTHON=an interpreter with tensorrt-rtx, polygraphy and onnx; LAYERLINE_REQUIRE_RTX=1 makes its
absence a failure.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from layerline.core.cli.command import cli
from layerline.core.errors import InputError

PRECISIONS = ("fp32", "tf32", "fp16")


@pytest.fixture(scope="module")
def rtx() -> str:
    """The interpreter that has TensorRT-RTX."""
    python = os.environ.get("TRT_PYTHON") or sys.executable
    code = "import tensorrt_rtx, polygraphy"
    try:
        done = subprocess.run([*shlex.split(python), "-c", code], capture_output=True, check=False)
        found = done.returncode == 0
    except OSError:
        found = False
    if not found:
        why = f"{python} has no tensorrt-rtx and polygraphy (set TRT_PYTHON)"
        if os.environ.get("LAYERLINE_REQUIRE_RTX") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return python


@pytest.fixture(scope="module")
def built(rtx: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with three engines for a GPU that is not here."""
    run = tmp_path_factory.mktemp("rtx") / "tiny"
    export = ["--model", "tiny", "--batch", "1", "--seq", "16", "--precision", "fp32,fp16"]
    engines = ["--backend", "tensorrt-rtx", "--precision", ",".join(PRECISIONS)]
    for arguments in (["export", *export], ["engines", *engines, "--compute-capability", "89"]):
        done = CliRunner().invoke(cli, [arguments[0], "--run", str(run), *arguments[1:]])
        assert done.exit_code == 0, done.output
    return run


def read(run: Path, precision: str, kind: str) -> Any:
    return json.loads((run / f"engines/{precision}.tensorrt-rtx.{kind}.json").read_text())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_layer_of_the_network_has_its_node(built: Path, precision: str) -> None:
    source = "fp16" if precision == "fp16" else "fp32"
    nodes = json.loads((built / f"export/{source}.nodes.json").read_text())["nodes"]
    known = {n["name"] for n in nodes}
    layers = read(built, precision, "network")["layers"]
    assert {e["node"] for e in layers if e["kind"] != "CONSTANT"} <= known
    computing = {n["name"] for n in nodes if n["op"] in ("Gemm", "MatMul", "LayerNormalization")}
    assert computing <= {e["node"] for e in layers}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_tensor_of_the_network_is_the_one_of_the_file(built: Path, precision: str) -> None:
    source = "fp16" if precision == "fp16" else "fp32"
    document = json.loads((built / f"export/{source}.nodes.json").read_text())
    tensors = read(built, precision, "network")["tensors"]
    written = [t for n in document["nodes"] for t in n["outputs"] if t]
    assert {t: tensors[t] for t in written} == {t: document["tensors"][t] for t in written}
    assert read(built, precision, "build")["tensors_compared"] > len(written) > 50


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_layer_of_the_engine_has_its_modules(built: Path, precision: str) -> None:
    layers = read(built, precision, "layers")["layers"]
    assert len(layers) > 10
    assert [e["name"] for e in layers if e["rule"] == "unresolved" or not e["modules"]] == []
    inside = {m for e in layers for m in e["modules"]}
    assert {"transformer.wte", "transformer.h.1.attn.c_attn", "lm_head"} <= inside


def test_precision_comes_from_the_types_in_the_file(built: Path) -> None:
    """Strongly typed: the fp16 file's products are half, those of fp32 and tf32 are not."""
    for precision, expected in (("fp32", "fp32"), ("tf32", "fp32"), ("fp16", "fp16")):
        products = [e for e in read(built, precision, "layers")["layers"] if e["op"] == "gemm"]
        assert products and {e["precision_in"] for e in products} == {expected}
        build = read(built, precision, "build")
        assert build["strongly_typed"] is True
        source = "export/fp16.onnx" if precision == "fp16" else "export/fp32.onnx"
        assert build["source"] == source
        assert build["messages"]["error"] == {}
        assert build["engine_bytes"] > 100_000 and build["options"]["compute_capability"] == "89"


def test_an_architecture_that_is_none_is_refused_with_those_that_are(built: Path) -> None:
    from layerline.core.cli.command import main

    arguments = ["engines", "--run", str(built), "--backend", "tensorrt-rtx"]
    with pytest.raises(SystemExit) as e:
        main([*arguments, "--compute-capability", "12", "--precision", "fp32"])
    assert e.value.code == 2


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_for_the_gpu_of_a_machine_without_one_is_a_missing_device(built: Path) -> None:
    from layerline.core.cli.command import main

    with pytest.raises(SystemExit) as e:
        main(["engines", "--run", str(built), "--backend", "tensorrt-rtx", "--precision", "fp32"])
    assert e.value.code == 3


def test_a_network_that_is_not_the_files_is_not_built(built: Path, tmp_path: Path) -> None:
    """The file's nodes.json says another shape than the parser finds: as if it had misread it."""
    run = tmp_path / "run"
    shutil.copytree(built, run)
    path = run / "export/fp32.nodes.json"
    document = json.loads(path.read_text())
    node = next(n for n in document["nodes"] if n["op"] == "LayerNormalization")
    document["tensors"][node["outputs"][0]]["shape"] = [1, 1, 1]
    path.write_text(json.dumps(document))
    arguments = ["engines", "--run", str(run), "--backend", "tensorrt-rtx", "--precision", "fp32"]
    done = CliRunner().invoke(cli, [*arguments, "--compute-capability", "89"])
    assert isinstance(done.exception, InputError)
    assert f"{node['name']} (module {node['module']})" in done.exception.line()
    assert "instead of [1, 1, 1]" in done.exception.line()
    assert str(done.exception.fix).startswith("export again with --opset 17")


def test_a_precision_plan_builds_with_casts_and_every_layer_has_its_modules(
    built: Path, tmp_path: Path
) -> None:
    kept = "transformer.h.0.ln_2"
    plan = {"schema_version": 1, "precision": "fp16", "backend": "tensorrt-rtx"}
    (tmp_path / "plan.json").write_text(json.dumps({**plan, "modules_fp32": [{"module": kept}]}))
    run = tmp_path / "run"
    shutil.copytree(built, run)
    arguments = ["--run", str(run), "--backend", "tensorrt-rtx", "--compute-capability", "89"]
    done = CliRunner().invoke(
        cli,
        ["engines", *arguments, "--precision", "fp16",
         "--precision-plan", str(tmp_path / "plan.json")],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    record, layers = read(run, "fp16", "build"), read(run, "fp16", "layers")["layers"]
    assert record["options"]["precision_plan"]["modules_fp32"] == [kept]
    assert record["fp32_nodes"] >= 1
    assert [e["name"] for e in layers if e["rule"] == "unresolved" or not e["modules"]] == []
    network = read(run, "fp16", "network")["layers"]
    casts = [e for e in network if e["kind"] == "CAST" and "/fp32" in "".join(e["outputs"])]
    assert casts
    assert {e["node"].rpartition("/")[0] for e in casts} == {kept}
