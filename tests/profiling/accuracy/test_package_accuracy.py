"""The error of each module in a package of inductor: where it goes wrong, and where it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from layerline.engines.command import engines
from layerline.export import inference
from layerline.export.command import export
from layerline.profile.accuracy.command import accuracy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(inference.unavailable("inductor") is not None, reason="no C++ compiler"),
]
# bfloat16 has 8 bits: beside 4096 what the layer before gave is lost, and it is what the module
# after needs. Linear layers write their results in bfloat16, so no fusion keeps it.
OWN = """
import torch
from torch import nn


class Less(nn.Module):
    def forward(self, x):
        return x - 4096


class Cancels(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shift, self.less = nn.Linear(64, 64), nn.Linear(64, 64), Less()
        self.act, self.twice, self.head = nn.ReLU(inplace=True), nn.Tanh(), nn.Linear(64, 8)
        with torch.no_grad():
            self.shift.weight.copy_(torch.eye(64))
            self.shift.bias.fill_(4096)

    def forward(self, x):
        y = self.less(self.shift(self.act(self.first(x))))
        return self.head(self.twice(self.twice(y)))


def build():
    torch.manual_seed(0)
    return Cancels(), {"x": torch.linspace(-1, 1, 32 * 64).reshape(32, 64)}
"""


def invoke(command: Any, run: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(command, ["--run", str(run), *arguments])
    assert done.exit_code == 0, done.exception
    return done


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("packages")
    (folder / "own.py").write_text(OWN)
    common = ["--precision", "fp32,bf16", "--backend", "inductor"]
    invoke(export, folder / "run", "--model", f"{folder}/own.py:build", *common)
    invoke(engines, folder / "run", *common)
    invoke(accuracy, folder / "run", *common)
    yield folder / "run"


def modules(run: Path, precision: str) -> dict[str, Any]:
    file = run / "captures" / f"{precision}.inductor.accuracy.modules.json"
    return {m["module"]: m for m in json.loads(file.read_text())["modules"]}


def test_the_first_module_that_goes_wrong_is_named(run: Path) -> None:
    found = modules(run, "bf16")
    assert [path for path, m in found.items() if m["first_wrong"]] == ["less"]
    assert found["less"]["error_in"] < 0.01 < 0.5 < found["less"]["error_out"]
    # The graph that it was compiled from is as wrong: the precision is to blame, no fusion.
    assert found["less"]["export"] == pytest.approx(found["less"]["error_out"], rel=0.1)


def test_modules_of_a_right_package_are_right(run: Path) -> None:
    found = modules(run, "fp32")
    assert not any(m["first_wrong"] for m in found.values())
    for path, module in found.items():
        if path != "twice":
            assert module["error_out"] < 1e-3, path
            assert "second engine" in module["how"], path


def test_what_a_module_changes_in_place_is_compared_as_it_was_given(run: Path) -> None:
    """`first` gives what `act` overwrites."""
    found = modules(run, "fp32")
    assert found["first"]["error_out"] < 1e-5
    assert found["act"]["error_in"] < 1e-5


def test_a_module_that_is_called_twice_has_no_error_and_says_why(run: Path) -> None:
    found = modules(run, "fp32")["twice"]
    assert found["error_out"] is None
    assert "more than once" in found["how"]


def test_there_is_no_precision_plan_for_a_package(run: Path) -> None:
    arguments = ["--run", str(run), "--precision", "bf16", "--backend", "inductor", "--plan"]
    done = CliRunner().invoke(accuracy, arguments)
    assert "keeps no module in fp32" in str(done.exception)
