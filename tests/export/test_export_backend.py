"""The opset follows the backend that the engines will be built with."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from layerline.core import files
from layerline.core.cli.command import cli
from layerline.core.errors import InputError
from layerline.engines import backend as backends
from layerline.export import inference, opsets, stage

pytest.importorskip("torch")


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str | None]:
    """The versions of TensorRT that are here; ONNX files are not written but recorded."""
    known: dict[str, str | None] = {}
    monkeypatch.setattr(inference, "tensorrt_version", lambda name: known.get(name))

    def dummy(self: stage.Stage, precision: str) -> None:
        step = self.file_step(precision)
        with step.recording():
            for path in step.outputs:
                files.write_json(path, {})

    monkeypatch.setattr(stage.Stage, "_write_file", dummy)
    return known


def opset(run: Path, *arguments: str) -> int:
    """The opset of the run after an export."""
    given = ["--model", "tiny", "--seq", "4", "--precision", "fp32", *arguments]
    command = ["-q", "export", "--run", str(run), *given]
    CliRunner().invoke(cli, command, catch_exceptions=False)
    manifest = json.loads((run / "manifests/export/fp32.json").read_text())
    chosen: int = manifest["options"]["opset"]
    return chosen


def test_the_backend_decides_and_the_user_wins(
    versions: dict[str, str | None], tmp_path: Path
) -> None:
    versions["tensorrt"] = "8.6.1"
    assert opset(tmp_path / "old", "--backend", "tensorrt") == 17
    assert opset(tmp_path / "old", "--backend", "tensorrt", "--opset", "18") == 18
    assert opset(tmp_path / "old", "--backend", "tensorrt") == 17  # not left at what is wrong here
    assert opset(tmp_path / "cpu", "--backend", "onnxruntime") == 18


def test_an_export_that_the_backend_computes_is_kept(
    versions: dict[str, str | None], tmp_path: Path
) -> None:
    versions["tensorrt"] = "8.6.1"
    assert opset(tmp_path, "--backend", "tensorrt") == 17
    before = (tmp_path / "export/fp32.onnx").stat().st_mtime_ns
    assert opset(tmp_path, "--backend", "onnxruntime") == 17
    assert (tmp_path / "export/fp32.onnx").stat().st_mtime_ns == before
    assert opset(tmp_path, "--backend", "onnxruntime", "--seed", "1") == 18  # another model


def test_without_a_backend_it_is_the_first_that_runs_here(
    versions: dict[str, str | None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions["tensorrt"] = "8.6.1"
    gone = inference.Unavailable("not here", "get it")
    only: set[str] = {"onnxruntime"}
    monkeypatch.setattr(inference, "unavailable", lambda name: None if name in only else gone)
    assert opset(tmp_path / "cpu") == 18
    only.add("tensorrt")
    assert opset(tmp_path / "gpu") == 17
    only.clear()
    assert opset(tmp_path / "none") == 18


def test_an_unknown_backend_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    command = ["export", "--run", str(tmp_path / "run"), "--backend", "tensorflow"]
    done = CliRunner().invoke(cli, command)
    assert isinstance(done.exception, InputError) and "'tensorflow'" in done.exception.line()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("backend", "version", "first"),
    [
        ("tensorrt", None, 17),
        ("tensorrt", "8.6.1", 17),
        ("tensorrt", "9.3.0.post12.dev1", 17),
        ("tensorrt", "unknown", 17),
        ("tensorrt", "10.0.1", 18),
        ("tensorrt", "11.1.0", 18),
        ("tensorrt-rtx", None, 18),
        ("onnxruntime", None, 18),
        ("onnxruntime-cuda", None, 18),
    ],
)
def test_the_opsets_of_a_backend(backend: str, version: str | None, first: int) -> None:
    computed = opsets.computed_by(backend, version)
    assert computed[0] == first and set(computed) <= set(opsets.OFFERED)
    assert (18 in computed) == (first == 18)


def test_every_backend_has_its_class() -> None:
    assert [backends.load(name).name for name in inference.BACKENDS] == list(inference.BACKENDS)


def test_a_version_is_asked_of_the_interpreter_that_has_the_library(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        inference, "distribution_version", lambda *given: asked.append(given) or "8.6.1"
    )
    monkeypatch.setenv("TRT_PYTHON", f"{sys.executable} -E")
    assert inference.tensorrt_version("tensorrt") == "8.6.1"
    assert asked == [((sys.executable, "-E"), "tensorrt")]
    assert inference.tensorrt_version("onnxruntime") is None
    monkeypatch.setenv("TRT_PYTHON", "/nowhere/python3")
    assert inference.tensorrt_version("tensorrt") is None


@pytest.mark.parametrize(
    ("backend", "version", "written"),
    [
        ("tensorrt", "8.6.1", {"fp32", "fp16"}),
        ("tensorrt", None, {"fp32", "fp16"}),  # not here: the engines are built elsewhere
        ("tensorrt", "11.0.0", {"fp16"}),
        ("tensorrt-rtx", "1.2.0", {"fp16"}),
        ("onnxruntime", None, {"fp16"}),
    ],
)
def test_what_the_backend_builds_from_is_written_too(
    backend: str,
    version: str | None,
    written: set[str],
    versions: dict[str, str | None],
    tmp_path: Path,
) -> None:
    """Kind: TensorRT before 11 builds its fp16 engines from fp32.onnx."""
    versions[backend] = version
    given = ["--model", "tiny", "--seq", "4", "--precision", "fp16", "--backend", backend]
    CliRunner().invoke(
        cli, ["-q", "export", "--run", str(tmp_path), *given], catch_exceptions=False
    )
    assert {p.stem for p in (tmp_path / "export").glob("*.onnx")} == written
