"""`layerline engines --engine FILE`: an engine that was built elsewhere becomes the run's."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.core.run import Run
from layerline.engines import command, tensorrt_backend
from layerline.export import inference
from layerline.profile.engine import measure, rebuild

INSPECTED = {"Layers": ["m_fc/Gemm_matrix_multiply", "(Unnamed Layer* 4) [Normalization]"]}
NODES = [
    {"name": "m.fc/Gemm", "op": "Gemm", "module": "m.fc", "inputs": ["x", "w"], "outputs": ["y"]},
    {"name": "m.ln/LayerNormalization", "op": "LayerNormalization", "module": "m.ln",
     "inputs": ["y"], "outputs": ["z"]},
]  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An exported run on a machine with TensorRT 8.6, whose worker is replaced by its answer."""
    monkeypatch.setenv("TRT_PYTHON", sys.executable)
    monkeypatch.setattr(inference, "distribution_version", lambda *_: "8.6.0")
    monkeypatch.setattr(tensorrt_backend.TensorRTBackend, "unavailable", lambda _: None)
    asked: list[Any] = []

    def call(worker: Any, job: Any, **_: Any) -> dict[str, Any]:
        asked.append(job["task"])
        write_json(Path(job["raw"]), INSPECTED)
        assert Path(job["engine"]).read_bytes() == b"theirs"
        return {"facts": {"tensorrt": "8.6.0", "device": {"name": "NVIDIA Test"}}}

    monkeypatch.setattr(tensorrt_backend, "call", call)
    write_json(tmp_path / "run/manifests/version.json", {"schema_version": 1})
    write_json(tmp_path / "run/export/fp32.nodes.json", {"schema_version": 1, "nodes": NODES})
    (tmp_path / "their.plan").write_bytes(b"theirs")
    return tmp_path / "run"


def engines(run: Path, *arguments: str) -> int:
    arguments = ("--run", str(run), "--backend", "tensorrt", *arguments)
    return CliRunner().invoke(command.engines, arguments, catch_exceptions=False).exit_code


def test_it_is_copied_inspected_and_said_to_be_built_elsewhere(run: Path, tmp_path: Path) -> None:
    given = ("--engine", str(tmp_path / "their.plan"), "--precision", "fp16")
    assert engines(run, *given) == 0
    assert (run / "engines/fp16.tensorrt.engine").read_bytes() == b"theirs"
    record = json.loads((run / "engines/fp16.tensorrt.build.json").read_text())
    assert record["built_elsewhere"] is True and record["file"] == "their.plan"
    assert record["source"] == "export/fp32.onnx"
    listed = json.loads((run / "engines/fp16.tensorrt.layers.json").read_text())
    # The norm has no name in it: it goes by its order among the model's.
    assert [(r["nodes"], r["rule"]) for r in listed["layers"]] == [
        (["m.fc/Gemm"], "name"),
        (["m.ln/LayerNormalization"], "index"),
    ]
    before = (run / "engines/fp16.tensorrt.engine").stat().st_mtime_ns
    assert engines(run, *given) == 0
    assert (run / "engines/fp16.tensorrt.engine").stat().st_mtime_ns == before


def test_it_is_not_built_again_to_know_the_noise(run: Path, tmp_path: Path) -> None:
    engines(run, "--engine", str(tmp_path / "their.plan"), "--precision", "fp16")
    subject = measure.subject(Run(run), "fp16", tensorrt_backend.TensorRTBackend())
    with pytest.raises(InputError, match="built elsewhere"):
        rebuild.rebuild(subject, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--precision", "fp16,fp32"), "one precision"),
        ((), "one precision"),
        (("--precision", "fp16", "--backend", "onnxruntime"), "built elsewhere"),
        (("--precision", "fp16", "--engine", "/none/at/all.plan"), "no such engine file"),
    ],
)
def test_what_cannot_be_taken(
    run: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    given = ["--run", str(run), "--backend", "tensorrt", "--engine", str(tmp_path / "their.plan")]
    done = CliRunner().invoke(command.engines, [*given, *arguments])
    assert isinstance(done.exception, InputError) and said in str(done.exception)
