"""A model that half precision breaks, from its export to a plan and an engine that holds."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from paths import ROOT

from layerline.analysis.commands.report import report
from layerline.engines.command import engines
from layerline.export.command import export
from layerline.profile.accuracy.command import accuracy
from layerline.profile.command import profile

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
pytest.importorskip("transformers")

TOKENS, HIDDEN = 12, 3
# In half the mask's number is -inf: nought times it is NaN, and so are rows that see nothing.
MODEL = f"""
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(16, 16)

    def forward(self, x, seen):
        scores = self.query(x) @ x.transpose(1, 2) + (1 - seen) * -3.4e38
        return scores.softmax(-1) @ x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.attn = nn.Embedding(32, 16), Attention()
        self.head = nn.Linear(16, 32)

    def forward(self, ids, seen):
        x = self.embed(ids)
        return self.head(x + self.attn(x, seen))

def build():
    seen = torch.tril(torch.ones({TOKENS}, {TOKENS}))[None]
    seen[:, :{HIDDEN}] = 0
    return Net(), {{"ids": torch.arange({TOKENS})[None], "seen": seen}}
"""
# Activations of some 600, whose squares are infinite in half; beside such a residual what a block
# adds is nothing, so of the outputs the last norm alone decides.
NORMS = """
import torch
from torch import nn

class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))
        self.register_buffer("least", torch.zeros(()))

    def forward(self, x):
        squares = torch.maximum(x.float().pow(2).to(x.dtype), self.least.to(x.dtype))
        return self.weight * x * torch.rsqrt(squares.mean(-1, keepdim=True))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.inner, self.mix = nn.Linear(16, 16), Norm(), nn.Linear(16, 16)
        self.norm, self.head = Norm(), nn.Linear(16, 8)

    def forward(self, x):
        x = self.embed(x) * 1000
        return self.head(self.norm(x + self.mix(self.inner(x))))

def build():
    torch.manual_seed(0)
    return Net(), torch.randn(1, 24, 16)
"""
BOTH = ("--backend", "onnxruntime", "--precision", "fp32,fp16")
HALF = (*BOTH[:3], "fp16")
QUICK = ("--what", "engine", "--iterations", "8", "--seconds", "1")


def invoke(command: Any, run: Path, *arguments: str) -> Any:
    return CliRunner().invoke(command, ["--run", str(run), *arguments])


def exported(folder: Path, precisions: str, model: str = MODEL) -> Path:
    (folder / "own.py").write_text(model)
    named = ["--model", f"{folder / 'own.py'}:build", "--backend", "onnxruntime"]
    done = invoke(export, folder / "run", *named, "--precision", precisions)
    assert done.exit_code == 0, done.exception
    return folder / "run"


def outputs(run: Path) -> Any:
    with np.load(run / "captures/fp16.onnxruntime.outputs.npz") as found:
        return found["output"].astype(np.float64)


@pytest.mark.slow
def test_a_model_whose_half_file_is_not_finite_goes_the_whole_way(tmp_path: Path) -> None:
    run = exported(tmp_path, "fp32,fp16")
    assert invoke(engines, run, *BOTH).exit_code == 0
    wrong = invoke(profile, run, *BOTH, *QUICK)
    assert wrong.exit_code == 1
    assert f"{TOKENS * 32} values are NaN or infinite" in wrong.exception.line()
    assert np.isnan(outputs(run)).all()
    assert invoke(report, run).exit_code == 1
    summary = json.loads((run / "report/summary.json").read_text())
    assert summary["headline"][0].startswith("ONNX Runtime fp16 does not compute")
    assert set(summary["engines"]) == {"fp32.onnxruntime", "fp16.onnxruntime"}
    assert summary["engines"]["fp32.onnxruntime"]["outputs"]["ok"] is True

    found = invoke(accuracy, run, *HALF, "--plan")
    assert found.exit_code == 0, (found.exception, found.output)
    plan = run / "fp16.onnxruntime.plan.json"
    assert [m["module"] for m in json.loads(plan.read_text())["modules_fp32"]] == ["attn"]
    assert invoke(engines, run, *HALF, "--precision-plan", str(plan)).exit_code == 0
    right = invoke(profile, run, *BOTH, *QUICK)
    assert right.exit_code == 0, right.exception
    with np.load(run / "captures/eager.fp32.outputs.npz") as eager:
        assert np.abs(outputs(run) - eager["output"]).max() < 0.01
    # What was measured of the wrong engine is gone, and missed by nobody.
    done = invoke(report, run)
    assert done.exit_code == 0, done.exception
    summary = json.loads((run / "report/summary.json").read_text())
    assert summary["engines"]["fp16.onnxruntime"]["outputs"]["ok"] is True
    kept = "keeps 1 module in fp32 by its precision plan: attn"
    assert kept in (run / "report/report.md").read_text()


@pytest.mark.slow
def test_a_plan_is_one_whose_engine_profile_calls_right(tmp_path: Path) -> None:
    """Of random weights modules decide, too: a plan by the outputs alone gave a wrong engine."""
    run = exported(tmp_path, "fp32,fp16", NORMS)
    plan = run / "fp16.onnxruntime.plan.json"
    for weights, kept in (("own", ["norm"]), ("random", ["inner", "norm"])):
        described = json.loads((run / "export/model.json").read_text())
        (run / "export/model.json").write_text(json.dumps({**described, "weights": weights}))
        assert invoke(engines, run, *HALF).exit_code == 0
        found = invoke(accuracy, run, *HALF, "--plan")
        assert found.exit_code == 0, (found.exception, found.output)
        assert "before: wrong: cosine 0." in found.output
        assert sorted(m["module"] for m in json.loads(plan.read_text())["modules_fp32"]) == kept
        assert invoke(engines, run, *HALF, "--precision-plan", str(plan)).exit_code == 0
        right = invoke(profile, run, *HALF, *QUICK)
        assert right.exit_code == 0, right.exception
        where = invoke(accuracy, run, *HALF)
        # An error inside that changes nothing is named, beside that it changes nothing.
        harmless = "goes wrong in inner" in where.output
        assert harmless is (weights == "own")
        assert ("the model's outputs are within the limit, error" in where.output) is harmless


@pytest.mark.slow
def test_where_no_plan_is_found_without_the_float_file_it_is_asked_for(tmp_path: Path) -> None:
    """The mask's constant is infinite in fp16.onnx, and nothing else says what it was."""
    run = exported(tmp_path, "fp16")
    assert invoke(engines, run, *HALF).exit_code == 0
    done = invoke(accuracy, run, *HALF, "--plan")
    assert done.exit_code == 1
    assert "export with --precision fp32,fp16" in done.exception.line()


@pytest.mark.slow
def test_a_plan_says_where_no_layer_computes_in_half(tmp_path: Path) -> None:
    """ONNX Runtime's CPU kernels take halves and compute in float, which hides an overflow."""
    run = exported(tmp_path, "fp32,fp16")
    assert invoke(engines, run, *HALF).exit_code == 0
    done = invoke(accuracy, run, *HALF, "--plan")
    assert "no layer of this engine is known to compute in fp16" in done.output


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize(
    ("profiled", "made", "ends"),
    [(0, True, 0), (1, True, 1), (3, False, 3)],
    ids=["right", "an engine is wrong", "no engine runs here"],
)
def test_make_report_has_a_report_of_what_was_measured(
    tmp_path: Path, profiled: int, made: bool, ends: int
) -> None:
    """With a program in layerline's place that says what it is asked for."""
    stand_in = tmp_path / "layerline"
    stand_in.write_text(f'#!/bin/sh\necho "$1"\n[ "$1" != profile ] || exit {profiled}\n')
    stand_in.chmod(0o755)
    given = [f"BIN={tmp_path}", f"STAMP={stand_in}", "BACKEND=onnxruntime", f"RUN={tmp_path}"]
    done = subprocess.run(
        ["make", "-s", "-C", str(ROOT), "report", *given], capture_output=True, text=True
    )
    assert done.stdout.split() == ["export", "engines", "profile", *(["report"] if made else [])]
    assert (done.returncode != 0) is (ends != 0)
    assert f"Error {ends}" in done.stderr or ends == 0
