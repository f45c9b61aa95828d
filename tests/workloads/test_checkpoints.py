"""Checkpoints: whole or not there, resumed by any number of ranks, also after a rank was killed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rank_job
import torch
import torch.distributed as dist

from layerline.core.errors import InputError
from layerline.workloads.loop import train
from layerline.workloads.parallel.checkpoints import Checkpoints, complete
from layerline.workloads.parallel.llama import LlamaOptions, build
from layerline.workloads.parallel.options import Options
from layerline.workloads.parallel.report import Journal, Report
from layerline.workloads.parallel.step import ParallelTraining


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return rank_job.text(tmp_path_factory.mktemp("text") / "text.txt")


@pytest.fixture
def alone() -> Iterator[None]:
    """The process group of one rank goes with the test."""
    yield
    dist.destroy_process_group()


def run_to(
    run: ParallelTraining, steps: int, kept: Path | None = None, every: int = 1, save_every: int = 0
) -> list[Report]:
    """Train, with a report after each `every` steps and a checkpoint at the end."""
    told: list[Report] = []
    options = Options(report_every=every, checkpoints=kept, save_every=save_every)
    run.length(0, steps)
    for _ in train(run, steps, [Journal(options, told.append)]):
        pass
    return told


def training(words: Path, **changed: Any) -> ParallelTraining:
    options: dict[str, Any] = {
        "model": "tiny", "seq": 16, "layers": 2, "parallel": "ddp", "micro_batch": 2,
        "learning_rate": 0.005, "text": words, "cache": words.parent / "cache",
    }  # fmt: skip
    return build(LlamaOptions(**{**options, **changed}), torch.device("cpu"), 0, 1)


@pytest.mark.usefixtures("alone")
def test_a_resumed_run_goes_on_as_if_never_stopped(words: Path, tmp_path: Path) -> None:
    whole = training(words)
    losses = [float(s.loss) for s in train(whole, 5)]
    begun = training(words)
    run_to(begun, 3, tmp_path)
    resumed = training(words, seed=0)
    assert Checkpoints(tmp_path, resumed).resume() == 3
    assert [float(s.loss) for s in train(resumed, 5, first=3)] == losses[3:]
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.usefixtures("alone")
def test_an_incomplete_checkpoint_is_passed_over(words: Path, tmp_path: Path) -> None:
    run = training(words)
    kept = Checkpoints(tmp_path, run, keep=3)
    for step in train(run, 6):
        if step.number % 2:
            kept.save()
    assert [p.name for p in complete(tmp_path)] == [f"step-{n:08d}" for n in (6, 4, 2)]
    part = tmp_path / "step-00000006/__0_0.distcp"
    part.write_bytes(part.read_bytes()[:-100])  # a disk that was full, a copy cut off
    (tmp_path / "step-00000004/.metadata").unlink()
    (tmp_path / ".partial.step-00000008").mkdir()
    (tmp_path / "step-00000010").mkdir()
    assert [p.name for p in complete(tmp_path)] == ["step-00000002"]
    assert Checkpoints(tmp_path, training(words)).resume() == 2


@pytest.mark.usefixtures("alone")
def test_only_the_newest_checkpoints_stay(words: Path, tmp_path: Path) -> None:
    run = training(words)
    run_to(run, 5, tmp_path, save_every=1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["step-00000004", "step-00000005"]


@pytest.mark.usefixtures("alone")
def test_a_checkpoint_of_another_model_or_text_is_refused(words: Path, tmp_path: Path) -> None:
    run_to(training(words), 1, tmp_path)
    with pytest.raises(InputError, match=r"model tiny layers 2 sequence 16, not of .* layers 3"):
        Checkpoints(tmp_path, training(words, layers=3)).resume()
    with pytest.raises(InputError, match="position is one of seed 0"):
        Checkpoints(tmp_path, training(words, seed=1)).resume()


@pytest.mark.usefixtures("alone")
def test_a_report_says_what_the_steps_did(words: Path) -> None:
    steps = list(train(training(words, warmup=4), 5))
    rows = run_to(training(words, warmup=4), 5, every=2)
    assert [r.step for r in rows] == [2, 4, 5]
    assert [r.tokens for r in rows] == [64, 128, 160]  # 2 sequences of 16 a step
    assert [r.learning_rate for r in rows] == pytest.approx([0.0025, 0.005, 0.005])
    assert [r.loss for r in rows] == [float(steps[at].loss) for at in (1, 3, 4)]
    for row in rows:
        assert row.tokens_per_second == pytest.approx(32 / row.seconds)
        assert row.gradient_norm > 0
        assert row.allocated is row.reserved is None
    assert "step 4  tokens 128  loss " in rows[1].line()


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("every", "calls"), [(0, 4), (1, 8), (2, 6), (3, 6)])
def test_every_kth_block_is_computed_again(words: Path, every: int, calls: int) -> None:
    run = training(words, layers=4, checkpoint_every=every)
    seen = []
    for block in run.model.model.layers:
        block.mlp.register_forward_pre_hook(lambda *_: seen.append(1))
    list(train(run, 1))
    assert len(seen) == calls


def reports(run: Path) -> dict[int, float]:
    """The losses that rank 0 left in its capture, by step."""
    meta = min(run.glob("captures/train.fp32*.meta.json"))
    return {row["step"]: row["loss"] for row in json.loads(meta.read_text())["reports"]}


@pytest.mark.slow
def test_a_killed_rank_is_named_and_the_job_resumes(words: Path, tmp_path: Path) -> None:
    def start(run: str, ranks: int, steps: int, kept: str) -> subprocess.Popen[str]:
        command = [
            *(sys.executable, "-P", "-m", "layerline.core.cli.command", "train", "llama"),
            *("--device", "cpu", "--model", "tiny", "--seq", "16", "--batch", "2"),
            *("--text", words, "--nproc", ranks, "--run", tmp_path / run, "--ranks", "0"),
            *("--steps", steps, "--profile", "graph"),
        ]
        settings = {
            "layers": 2, "global_batch": 8, "report_every": 1, "save_every": 2,
            "checkpoints": tmp_path / kept,
        }  # fmt: skip
        command += [word for k, v in settings.items() for word in ("--set", f"{k}={v}")]
        environment = {**os.environ, "TMPDIR": str(tmp_path)}  # where the machine's lock is
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*map(str, command)], text=True, env=environment, **pipes)

    with start("killed", 2, 1000, "kept") as job:
        assert job.stdout is not None
        assert job.stderr is not None
        for line in job.stdout:
            if "step 5 " in line:
                (rank,) = tmp_path.glob("killed/job/*/rank0001.*.json")
                os.kill(json.loads(rank.read_text())["process"], signal.SIGKILL)
        errors = job.stderr.read()
    assert job.returncode == 2
    assert re.search(r"rank 1 of 2 .* was killed \(SIGKILL\)", errors)
    newest = complete(tmp_path / "kept")[0]
    done = int(newest.name.split("-")[1])
    assert done >= 4

    def losses(ranks: int, kept: str) -> dict[int, float]:
        run = f"{kept}{ranks}"
        job = start(run, ranks, done - 1, kept)  # after 3 of warm-up
        _, errors = job.communicate(timeout=240)
        assert job.returncode == 0, errors
        return {step: loss for step, loss in reports(tmp_path / run).items() if step > done}

    shutil.copytree(tmp_path / "kept", tmp_path / "copy")
    never_stopped = losses(2, "none")
    assert sorted(never_stopped) == [done + 1, done + 2]
    assert losses(2, "kept") == never_stopped
    assert complete(tmp_path / "kept")[0].name == f"step-{done + 2:08d}"
    assert losses(1, "copy") == pytest.approx(never_stopped, rel=1e-4)
