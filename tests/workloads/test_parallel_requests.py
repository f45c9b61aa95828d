"""Parallel workloads as `layerline train` asks for them, of one rank."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import rank_job
import torch.distributed as dist

from layerline.core.errors import InputError
from layerline.workloads import request
from layerline.workloads.loop import train
from layerline.workloads.parallel.step import ParallelTraining
from layerline.workloads.request import Defaults, Request, defaults


@pytest.fixture
def alone() -> Iterator[None]:
    """The process group of one rank goes with the test."""
    yield
    dist.destroy_process_group()


def test_a_command_without_sizes_gets_those_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "bus_id", lambda: "0000:3B:00.0")
    assert defaults("gpt-layouts", None, None) == Defaults("345m", 4, 1024, 4)
    assert defaults("gpt-layouts", "tiny", None).seq == 64
    assert defaults("llama", None, None) == Defaults("7b", 1, 4096)
    assert defaults("llama", "no such model", None).seq == 4096  # which building it refuses
    assert defaults("sequence-parallel", None, None) == Defaults(seq=4608, steps=18)
    assert defaults("gpt2", None, None) == Defaults(None, 1, 128, 1, 30)


def test_without_a_gpu_the_model_is_one_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request, "bus_id", lambda: "0000:3B:00.0")
    assert defaults("llama", None, "cpu") == Defaults("tiny", seq=64)
    monkeypatch.setattr(request, "bus_id", lambda: None)
    assert defaults("llama", None, None).model == defaults("gpt-layouts", None, None).model
    assert defaults("llama", "7b", None) == Defaults("7b", seq=4096)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (Request("llama", "x", settings={"tp": "2"}), "no option is called tp; of text,"),
        (Request("gpt-layouts", "x", settings={"tp": "two"}), "Expected `int | null`, got `str`"),
        (Request("gpt-layouts", "x", checkpoint=True), "gpt-layouts is neither checkpointed"),
        (Request("gpt-layouts", "x", precision="fp16"), "precision fp16: not one of"),
        (Request("gpt-layouts", "x", settings={"layout": "P"}), "layout P: not one of"),
        (Request("sequence-parallel", "x", precision="tf32"), "precision tf32: not one of"),
    ],
)
def test_a_request_that_cannot_be_is_refused(request_: Request, said: str) -> None:
    with pytest.raises(InputError) as error:
        request_.build()
    assert said in error.value.line()


@pytest.mark.usefixtures("alone")
def test_a_llama_is_built_with_its_settings(tmp_path: Path) -> None:
    text = str(rank_job.text(tmp_path / "text.txt"))
    settings = {
        "layers": "3", "parallel": "ddp", "checkpoint_every": "2", "report_every": "2",
    }  # fmt: skip
    request = Request(
        "llama", str(tmp_path), model="tiny", batch=2, seq=16, accumulate=3, text=text,
        device="cpu", settings=settings,
    )  # fmt: skip
    run = request.build()
    assert isinstance(run, ParallelTraining)
    assert run.tokens == 2 * 16 * 3
    phases, journal = rank_job.Phases(), run.watchers["reports and checkpoints"]
    steps = list(train(run, 2, [phases, journal]))
    assert float(steps[0].loss) == pytest.approx(6.24, abs=0.2)  # ln 512
    micro = ["data", "forward", "loss", "backward", "recompute", "recompute"]
    assert phases.seen == [*micro * 3, "optimizer"] * 2  # blocks 0 and 2 of 3
    assert run.facts["recomputed_blocks"] == ["model.layers.0", "model.layers.2"]
    assert run.facts["text"] == text
    (report,) = journal.facts()["reports"]
    assert (report["step"], report["loss"]) == (2, float(steps[1].loss))


@pytest.mark.usefixtures("alone")
def test_a_global_batch_is_that_of_all_micro_batches(tmp_path: Path) -> None:
    text = str(rank_job.text(tmp_path / "text.txt"))
    common = {"model": "tiny", "batch": 2, "seq": 16, "text": text, "device": "cpu"}
    of_command = Request("gpt-layouts", str(tmp_path), accumulate=3, **common).build()
    assert (of_command.accumulate, of_command.facts["global_batch"]) == (3, 6)
    told = Request("gpt-layouts", str(tmp_path), settings={"global_batch": "8"}, **common).build()
    assert (told.accumulate, told.facts["degrees"]) == (4, {"pp": 1, "dp": 1, "tp": 1})


@pytest.mark.usefixtures("alone")
def test_an_exchange_leaves_the_times_of_its_parts() -> None:
    settings = {"hidden": "32", "warmup": "2"}
    run = Request("sequence-parallel", "x", seq=24, device="cpu", settings=settings).build()
    assert run.length(3, 4) == (2, 4)  # the workload's own warm-up
    list(train(run, 5, [run.watchers["parts"]]))
    assert run.watchers["parts"].facts() == {}
    list(train(run, 6, [run.watchers["parts"]], first=5))
    list(train(run, 9, first=6))  # which are a profiler's
    parts = run.watchers["parts"].facts()["parts"]["seconds"]
    assert len(parts["matmul_1"]) == len(parts["iteration"]) == 4
