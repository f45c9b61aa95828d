"""ONNX Runtime CUDA on a GPU: what it computes, in which precision, and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from engine_models import NODES, TOKENS, reference, weights, write_run

from layerline.engines.command import engines
from layerline.engines.onnxruntime_cuda_backend import OnnxRuntimeCudaBackend
from layerline.profile.command import profile

pytestmark = pytest.mark.gpu
PRECISIONS = ("fp32", "tf32", "fp16")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Any:
    why = OnnxRuntimeCudaBackend().unavailable()
    if why is not None:
        pytest.skip(f"{why.reason}; {why.remedy}")
    path = write_run(tmp_path_factory.mktemp("cuda") / "run")
    common = ["--run", str(path), "--backend", "onnxruntime-cuda", "--precision",
              ",".join(PRECISIONS)]  # fmt: skip
    for command, more in (
        (engines, []),
        (profile, ["--what", "engine", "--iterations", "20", "--seconds", "3"]),
    ):
        result = CliRunner().invoke(command, [*common, *more])
        assert result.exit_code == 0, result.exception
    return path


def read(path: Path, name: str) -> Any:
    return json.loads((path / name).read_text())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_computes_the_model(measured: Path, precision: str) -> None:
    half = precision == "fp16"
    expected = reference(weights(np.float16 if half else np.float32), np.arange(TOKENS)[None])
    with np.load(measured / f"captures/{precision}.onnxruntime-cuda.outputs.npz") as found:
        assert np.abs(found["logits"] - expected).max() < (1e-4 if precision == "fp32" else 0.05)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_ran_on_the_device_as_asked(measured: Path, precision: str) -> None:
    facts = read(measured, f"captures/{precision}.onnxruntime-cuda.latency.json")["facts"]
    assert facts["providers"][0] == "CUDAExecutionProvider"
    told = facts["provider_options"]["CUDAExecutionProvider"]
    assert told["use_tf32"] == ("0" if precision == "fp32" else "1")
    assert facts["clock"] == "device events"
    assert facts["throughput_per_second"] > 0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_layer_has_modules_and_none_is_on_the_cpu(measured: Path, precision: str) -> None:
    name = f"engines/{precision}.onnxruntime-cuda"
    listed = read(measured, f"{name}.layers.json")
    assert [la["name"] for la in listed["layers"] if not la["modules"]] == []
    assert {n["name"] for n in listed["nodes"]} == {n[0] for n in NODES}
    assert read(measured, f"{name}.build.json")["on_cpu"] == {}
