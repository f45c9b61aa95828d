"""From a training run to what a remedy gave when it was done: the commands, for real."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

Done = subprocess.CompletedProcess[str]

# Stands in bitsandbytes' place: moments of a byte an element and a scale for 256 of them.
BITSANDBYTES = """
import torch

class AdamW8bit(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state and p.numel() < 4096:
                state.update(one=torch.zeros_like(p), two=torch.zeros_like(p))
            elif not state:
                state.update({m: torch.zeros(p.numel(), dtype=torch.uint8) for m in ("one", "two")})
                state.update({m: torch.zeros(-(-p.numel() // 256)) for m in ("scale", "other")})
            p.sub_(p.grad, alpha=1e-4)
"""


def layerline(*arguments: str | Path, packages: Path | None = None) -> Done:
    command = [sys.executable, "-P", "-m", "layerline.core.cli.command", *map(str, arguments)]
    env = os.environ if packages is None else {**os.environ, "PYTHONPATH": str(packages)}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=600, check=False, env=env
    )


@pytest.mark.slow
def test_a_remedy_is_tried_and_gives_what_was_estimated(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train = ("train", "gpt2", "--run", run, "--model", "tiny", "--batch", "4", "--seq", "64")
    done = layerline(*train, "--steps", "3", "--profile", "memory")
    assert done.returncode == 0, done.stderr
    done = layerline("memory", "--run", run, "--try", "checkpoint,checkpoint-half")
    assert done.returncode == 0, done.stderr
    document = json.loads((run / "report/memory.json").read_text())
    assert [c["ok"] for c in document["checks"]] == [True]
    for name, most in (("checkpoint", 0.8), ("checkpoint-half", 0.9)):
        [remedy] = [r for r in document["remedies"] if r["name"] == name]
        assert remedy["after"] == pytest.approx(remedy["tried"]["peak_bytes"], rel=0.02)
        assert remedy["tried"]["peak_bytes"] < most * document["allocated_bytes"]
        assert remedy["tried"]["step"]["median"] > 0
    refused = layerline("memory", "--run", run, "--try", "batch,expandable")
    assert refused.returncode == 2 and "no segments on the CPU" in refused.stderr
    assert not (run / "tried/batch").exists()  # nothing is trained before all of it can be


@pytest.mark.slow
def test_moments_of_8_bits_are_tried_where_bitsandbytes_is(tmp_path: Path) -> None:
    run = tmp_path / "run"
    train = ("train", "gpt2", "--run", run, "--model", "tiny", "--steps", "3", "--seq", "16")
    done = layerline(*train, "--profile", "memory")
    assert done.returncode == 0, done.stderr
    without = layerline("memory", "--run", run, "--try", "checkpoint,8bit")
    assert without.returncode == 3 and "pip install bitsandbytes" in without.stderr
    assert not (run / "tried").exists()
    packages = tmp_path / "packages"
    (packages / "bitsandbytes").mkdir(parents=True)
    (packages / "bitsandbytes/__init__.py").touch()
    (packages / "bitsandbytes/optim.py").write_text(BITSANDBYTES)
    done = layerline("memory", "--run", run, "--try", "8bit", packages=packages)
    assert done.returncode == 0, done.stderr
    document = json.loads((run / "report/memory.json").read_text())
    [remedy] = [r for r in document["remedies"] if r["name"] == "8bit"]
    assert remedy["after"] == pytest.approx(remedy["tried"]["peak_bytes"], rel=0.02)
    assert remedy["tried"]["peak_bytes"] < 0.9 * document["allocated_bytes"]
