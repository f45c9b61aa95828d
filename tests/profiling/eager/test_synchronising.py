"""The exact lines that make the host wait, of a step that is trained for real."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from layerline.analysis.captures import eager, files
from layerline.analysis.rundir.problems import Problems
from layerline.core.run import open_run
from layerline.profile.eager import hooks
from layerline.profile.eager.synchronising import SynchronisingLines
from layerline.workloads.loop import train
from layerline.workloads.plugin import Plugin
from layerline.workloads.training import Training

SEEN: list[float] = []


class Gate(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = (x > -100).nonzero()  # GATE
        return x * len(chosen)


def scaled(output: torch.Tensor, batch: Any) -> torch.Tensor:
    loss = output.sum()
    SEEN.append(loss.item())  # LOSS
    if loss > 1e9:  # BRANCH
        return loss * 0
    return loss


def line(function: Any, mark: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, text in enumerate(lines) if f"# {mark}" in text)


class Ranges(Plugin):
    """The ranges that every trace of ours has."""

    def step(self, number: int) -> Any:
        return hooks.iteration(number)

    def phase(self, name: str) -> Any:
        return hooks.phase(name)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run")
    (path / "captures").mkdir()
    (path / "manifests").mkdir()
    (path / "manifests/version.json").write_text('{"schema_version": 1}')
    model = nn.Sequential(nn.Linear(2, 2), Gate())
    training = Training(
        nn.ModuleDict({"net": model}),
        torch.optim.SGD(model.parameters(), 0.1),
        iter([{"x": torch.ones(1, 2)}] * 9),
        scaled,
        torch.device("cpu"),
    )
    training.forward = lambda batch: model(batch["x"])  # type: ignore[method-assign]
    lines = SynchronisingLines(path / "captures/train.fp32.waits.json")
    list(train(training, 3, [lines]))
    with (
        hooks.module_ranges(training.model),
        torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], with_stack=True
        ) as profiler,
    ):
        list(train(training, 2, [Ranges()]))
    profiler.export_chrome_trace(str(path / "captures/train.fp32.trace.json"))
    return path


def test_each_line_is_the_one_that_called(run: Path) -> None:
    rows = json.loads((run / "captures/train.fp32.waits.json").read_text())["rows"]
    found = {
        (r["operator"], r["phase"], r["module"], f["line"])
        for r in rows
        for f in r["stack"]
        if f["file"].endswith("test_synchronising.py") and f["function"] in ("forward", "scaled")
    }
    assert found == {
        ("aten::nonzero", "forward", "net.1", line(Gate.forward, "GATE")),
        ("aten::_local_scalar_dense", "loss", None, line(scaled, "LOSS")),
        ("aten::_local_scalar_dense", "loss", None, line(scaled, "BRANCH")),
    }
    assert {r["count"] for r in rows} == {1}


def test_the_report_joins_them_to_the_trace_by_function(run: Path) -> None:
    opened = open_run(run)
    captured = eager.eager(files.of_eager(opened, "train", "fp32", None, Problems()), Problems())
    waiting = captured.sides[-1].side.waiting
    assert waiting is not None and waiting.stacks and not waiting.on_device
    by_cause = {w.cause: [text.rpartition(":")[2] for text in w.lines] for w in waiting.waits}
    of_loss = [f"{line(scaled, mark)})" for mark in ("LOSS", "BRANCH")]
    assert by_cause["aten::nonzero"] == [f"{line(Gate.forward, 'GATE')})"]
    assert by_cause["aten::item"] == of_loss
    assert [w.module for w in waiting.waits if w.cause == "aten::nonzero"] == ["net.1"]


def test_without_being_asked_no_operator_is_watched(run: Path) -> None:
    """Only one step has the mode on."""
    from torch.utils._python_dispatch import _get_current_dispatch_mode

    assert _get_current_dispatch_mode() is None
