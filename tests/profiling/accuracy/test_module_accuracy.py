"""Faults planted into ONNX files of a small Llama and BERT: each is caught, in its module."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import planted_faults
import pytest
from click.testing import CliRunner

from layerline.analysis.commands.report import report
from layerline.engines.command import engines
from layerline.export.command import export
from layerline.profile.accuracy.command import accuracy
from layerline.profile.command import profile

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 256}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]},
    "bert": {"architectures": ["BertModel"]},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 16, "architectures": ["Qwen3ForCausalLM"]},
}
# Families of which only right engines are tried.
MORE: dict[str, dict[str, Any]] = {
    "gemma2": {"num_key_value_heads": 2, "head_dim": 16, "architectures": ["Gemma2ForCausalLM"]},
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64, "architectures": ["OPTForCausalLM"]},
}


def invoke(command: Any, run: Path, *arguments: str) -> Any:
    return CliRunner().invoke(command, ["--run", str(run), *arguments])


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    for name, more in {**CONFIGS, **MORE}.items():
        given = {**SIZES, **more, "num_hidden_layers": 2}
        transformers.AutoConfig.for_model(name, **given).save_pretrained(folder / name)
        done = invoke(
            export, folder / f"run-{name}", "--model", str(folder / name), "--batch", "1",
            "--seq", "32", "--opset", "17", "--precision", "fp32,fp16",
        )  # fmt: skip
        assert done.exit_code == 0, done.exception
    yield folder


@pytest.mark.parametrize(
    ("model", "precision", "plant", "module"),
    planted_faults.CASES,
    ids=lambda x: getattr(x, "__name__", None),
)
def test_a_planted_fault_is_caught_in_its_module(
    exported: Path,
    tmp_path: Path,
    model: str,
    precision: str,
    plant: planted_faults.Plant,
    module: str,
) -> None:
    run = tmp_path / "run"
    shutil.copytree(exported / f"run-{model}", run)
    file = run / f"export/{precision}.onnx"
    loaded = onnx.load(str(file))
    plant(loaded)
    onnx.save(loaded, str(file))
    options = ("--backend", "onnxruntime", "--precision", precision)
    assert invoke(engines, run, *options).exit_code == 0
    done = invoke(profile, run, *options, "--what", "engine")
    assert done.exit_code == 1
    assert "does not compute what eager does" in done.exception.line()
    left = {p.name for p in (run / "captures").iterdir()}
    assert f"{precision}.onnxruntime.latency.json" not in left
    found = json.loads(
        (run / f"captures/{precision}.onnxruntime.accuracy.modules.json").read_text()
    )
    (first,) = [m for m in found["modules"] if m["first_wrong"]]
    assert first["module"] == module
    assert invoke(report, run).exit_code == 1
    said = json.loads((run / "report/summary.json").read_text())["headline"][0]
    assert f"it goes wrong in {module} (" in said
    assert ": first wrong" in (run / "report/index.html").read_text()
    # Alone, on eager's inputs, it is as wrong; no module before it is beyond the limit, but for
    # its own parts.
    assert first["alone_nonfinite"] or first["alone"] > found["limit"]
    before = found["modules"][: found["modules"].index(first)]
    before = [m for m in before if not m["module"].startswith(f"{module}.")]
    assert not [m for m in before if m["nonfinite"] or (m["error_out"] or 0) > found["limit"]]


@pytest.mark.parametrize("model", [*CONFIGS, *MORE])
def test_a_right_engine_is_not_accused(exported: Path, tmp_path: Path, model: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(exported / f"run-{model}", run)
    backend = ("--backend", "onnxruntime")
    assert invoke(engines, run, *backend).exit_code == 0
    quick = ("--what", "engine", "--iterations", "6", "--seconds", "1")
    assert invoke(profile, run, *backend, *quick).exit_code == 0
    done = invoke(accuracy, run, *backend)
    assert done.exit_code == 0 and "first wrong" not in done.output
    for precision in ("fp32", "fp16"):
        path = run / f"captures/{precision}.onnxruntime.accuracy.modules.json"
        found = json.loads(path.read_text())
        assert not [m for m in found["modules"] if m["first_wrong"] or m["nonfinite"]]
        known = [m for m in found["modules"] if m["error_out"] is not None]
        assert len(known) > 0.8 * len(found["modules"])
