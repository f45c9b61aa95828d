"""--dry-run prints every command and runs none."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from layerline.core.cli.command import cli
from layerline.core.files import write_json
from layerline.export import inference


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a TensorRT 8.6 engine that says it is there, and an interpreter that has it."""
    monkeypatch.setenv("TRT_PYTHON", sys.executable)
    monkeypatch.setenv("NSYS", f"{sys.executable} nsys")
    monkeypatch.setattr(inference, "distribution_version", lambda *_: "8.6.0")
    write_json(tmp_path / "run/manifests/version.json", {"schema_version": 1})
    write_json(tmp_path / "run/engines/fp16.tensorrt.build.json", {"options": {}})
    (tmp_path / "run/engines/fp16.tensorrt.engine").write_bytes(b"engine")
    return tmp_path / "run"


def lines(run: Path, *arguments: str) -> list[str]:
    before = sorted(run.rglob("*"))
    done = CliRunner().invoke(cli, [arguments[0], "--run", str(run), *arguments[1:], "--dry-run"])
    assert done.exit_code == 0, done.output
    assert sorted(run.rglob("*")) == before
    return done.output.splitlines()


def jobs(found: list[str]) -> list[dict[str, object]]:
    mark = "JOB.json: "
    return [json.loads(f.split(mark, 1)[1]) for f in found if f.strip().startswith(mark)]


def test_engines(run: Path) -> None:
    found = lines(run, "engines", "--backend", "tensorrt", "--precision", "fp16")
    assert [j["task"] for j in jobs(found)] == ["build", "inspect"]
    options = jobs(found)[0]["options"]
    assert isinstance(options, dict) and str(options["onnx"]).endswith("export/fp32.onnx")
    assert found[0].startswith(sys.executable) and "tensorrt_worker.py JOB.json" in found[0]


def test_profile(run: Path) -> None:
    arguments = ["--backend", "tensorrt", "--precision", "fp16", "--what", "engine"]
    found = lines(run, "profile", *arguments, "--trace-iterations", "7")
    tasks = [j["task"] for j in jobs(found)]
    assert tasks == ["outputs", *["latency"] * 5, "profile", "trace"]
    assert jobs(found)[-1]["iterations"] == {"min": 7, "max": 7}
    (nsys,) = [f for f in found if " profile --trace=" in f]
    assert "--capture-range=cudaProfilerApi" in nsys and "tensorrt_worker.py" in nsys
    assert " export --type=sqlite " in found[-1]
