"""`layerline train --nproc`: a workload of ours on two CPU ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from layerline.core.capture_names import CaptureName
from layerline.core.files import read_json

LAYERLINE = [sys.executable, "-P", "-m", "layerline.core.cli.command", "train"]


def train(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*LAYERLINE, "--run", str(folder / "run"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_chosen_ranks_are_profiled_and_all_take_the_same_steps(tmp_path):
    done = train(
        tmp_path, "gpt2", "--model", "tiny", "--seq", 16, "--steps", 2, "--nproc", 2, "--ranks", 1,
        "--schedule", "0,1,2", "--profile", "torch",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[int | None, set[str]] = {}
    for path in (tmp_path / "run/captures").iterdir():
        name = CaptureName.parse(path)
        assert name is not None
        found.setdefault(name.rank, set()).add(name.suffix)
    assert found == {
        0: {".latency.json", ".meta.json"},
        1: {".latency.json", ".meta.json", ".trace.json.gz"},
    }
    meta = [read_json(p) for p in sorted((tmp_path / "run/captures").glob("*.meta.json"))]
    assert [m["rank"] for m in meta] == [0, 1]
    assert len({len(m["losses"]) for m in meta}) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpt2", "--", "python"], "a workload or a program after --, not both"),
        (["--"], "there is nothing after --"),
        ([], "name a workload"),
        (["gpt2", "--ranks", "0"], "--ranks is of no use without --nproc"),
        (["--profile", "memory", "--", "true"], "watches workloads of ours only"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, arguments, said):
    done = train(tmp_path, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
