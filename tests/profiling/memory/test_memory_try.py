"""From a training run to what a remedy gave when it was done: the commands, for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def layerline(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "layerline.core.cli.command", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


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
