"""A model of the user's own the whole way, and its training: coverage, and mistakes in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from paths import ROOT

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("transformers")

from layerline.analysis.commands.report import report  # noqa: E402
from layerline.core.errors import InputError  # noqa: E402
from layerline.core.files import read_json, write_json  # noqa: E402
from layerline.core.run import Run  # noqa: E402
from layerline.engines.command import engines  # noqa: E402
from layerline.export.command import export  # noqa: E402
from layerline.profile.command import profile  # noqa: E402
from layerline.profile.eager.stage import sides  # noqa: E402
from layerline.profile.train.command import train  # noqa: E402
from layerline.workloads.request import Request  # noqa: E402
from layerline.workloads.training import unwatched  # noqa: E402

NETS = ROOT / "tests" / "support" / "models" / "own_nets.py"
HEAD = "import torch\nfrom torch import nn\n"
LIMITS = {"target": 0.5, "seconds": 1.0, "iterations": 6}


def invoke(command: Any, *arguments: str | Path) -> Any:
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=True)


def coverages(run: Path) -> dict[str, float]:
    summary = read_json(run / "report" / "summary.json")
    assert not summary.get("unusable")
    both = {**summary["engines"], **summary["eager"]}
    return {name: side["coverage"] for name, side in both.items()}


@pytest.mark.slow
def test_a_model_of_ones_own_goes_the_whole_way(tmp_path: Path) -> None:
    """From the function to the report, with training: nearly all time is a module's."""
    run = tmp_path / "run"
    more = ("--precision", "fp32", "--backend", "onnxruntime")
    few = ("--iterations", "6", "--seconds", "2")
    for command, arguments in (
        (export, ("--run", run, "--model", f"{NETS}:resnet", *more)),
        (engines, ("--run", run, *more)),
        (profile, ("--run", run, *more, *few)),
        (report, ("--run", run)),
    ):
        result = invoke(command, *arguments)
        assert result.exit_code == 0, (command.name, result.exception, result.output)
    found = coverages(run)
    assert {"fp32.onnxruntime", "fp32.inference", "fp32.step"} <= set(found)
    assert min(found.values()) >= 0.995, found
    meta = read_json(run / "captures" / "train.fp32.meta.json")
    assert meta["loss"] == "own" and meta["batch"] == 2 and meta["sequence"] is None
    assert "own_nets.py:resnet, batch 2" in (run / "report" / "index.html").read_text()


@pytest.mark.slow
def test_training_it_alone_is_measured_by_module(tmp_path: Path) -> None:
    run = tmp_path / "run"
    few = ("--steps", "6", "--device", "cpu", "--profile", "torch", "--batch", "3")
    result = invoke(train, f"{NETS}:mlp", "--run", run, *few)
    assert result.exit_code == 0, result.exception
    assert invoke(report, "--run", run).exit_code == 0
    assert min(coverages(run).values()) >= 0.995
    meta = read_json(run / "captures" / "train.fp32.meta.json")
    assert meta["batch"] == 3 and meta["loss"] == "own"
    assert meta["losses"][-1] < meta["losses"][0]  # of the same batch again


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("model, torch.ones(1, 2)", "gave no loss"),
        ("model, torch.ones(1, 2), lambda o: o.nothing", "the loss fails, AttributeError"),
    ],
)
def test_a_loss_that_is_missing_or_wrong_is_one_line(
    tmp_path: Path, returned: str, said: str
) -> None:
    (tmp_path / "own.py").write_text(
        f"{HEAD}def build():\n    model = nn.Linear(2, 1)\n    return {returned}\n"
    )
    request = Request(f"{tmp_path / 'own.py'}:build", str(tmp_path), device="cpu")
    with pytest.raises(InputError) as caught:
        request.build().gradients(unwatched)
    assert said in caught.value.line() and "\n" not in caught.value.line()


def test_what_own_code_has_no_use_for_is_refused(tmp_path: Path) -> None:
    own = f"{NETS}:mlp"
    for more, said in (({"model": "gpt2"}, "makes its own model"), ({"text": "x"}, "no text"),
                       ({"ranks": 2}, "not divided among ranks")):  # fmt: skip
        with pytest.raises(InputError, match=said):
            Request(own, str(tmp_path), device="cpu", **more).build()
    with pytest.raises(InputError, match=r"own\.py:build"):
        Request("gpt3", str(tmp_path)).build()


@pytest.mark.parametrize(
    ("described", "tasks"),
    [
        ({"own": {"loss": False}}, {"eager"}),
        ({"own": {"loss": True}}, {"eager", "train"}),
        ({"own": None, "past": 12}, {"eager"}),
        ({"own": None, "past": None}, {"eager", "train"}),
    ],
)
def test_training_is_measured_where_there_is_a_loss_and_said_where_not(
    tmp_path: Path, described: dict[str, Any], tasks: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "export" / "model.json", described)
    found = sides(Run(tmp_path), ["eager", "train"], ["fp32"], LIMITS)
    assert {s.task for s in found} == tasks
    assert ("training is not measured" in capsys.readouterr().err) == ("train" not in tasks)
