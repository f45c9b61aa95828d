"""Random weights: an engine is right only if its modules are, as far as that takes seconds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from layerline.core.accuracy import by_module
from layerline.core.accuracy.limits import LIMITS, Limits, Verdict
from layerline.core.documents import ModuleError
from layerline.core.errors import ToolMissing
from layerline.profile.accuracy import gate

RIGHT, FP16 = Verdict(True), LIMITS["fp16"]
GOOD = [ModuleError(module="a", error_in=1e-4, error_out=2e-4)]
BAD = [*GOOD, ModuleError(module="b", error_in=2e-4, error_out=1.0, first_wrong=True)]
UNKNOWN = [ModuleError(module="a")]


def of_error(error: float, *, random: bool = True) -> dict[str, Any]:
    return {"cosine": 1 - error**2 / 2, "random_weights": random}


def verdict(error: float, modules: list[ModuleError], limits: Limits = FP16) -> bool | None:
    return by_module.judge(RIGHT, of_error(error), limits, "fp16", modules).ok


def test_a_wrong_module_of_random_weights_is_a_wrong_engine_however_right_its_outputs() -> None:
    assert verdict(1e-4, BAD) is False
    assert verdict(1e-4, GOOD) is True
    # Of trained weights the outputs decide, and where a lower limit was asked for.
    trained = of_error(1e-4, random=False)
    assert by_module.judge(RIGHT, trained, FP16, "fp16", BAD).ok is True
    assert verdict(1e-4, BAD, Limits(0.9, 0.9)) is True
    # What is wrong or unknown by its outputs stays so.
    for first in (Verdict(False, "x"), Verdict(None, "x")):
        assert by_module.judge(first, of_error(1e-4), FP16, "fp16", GOOD) is first


def test_more_than_rounding_makes_is_unknown_until_the_modules_were_followed() -> None:
    assert verdict(0.02, []) is None and verdict(0.02, UNKNOWN) is None
    assert verdict(0.02, GOOD) is True
    assert verdict(0.001, []) is True
    # Three bits less of mantissa: what is much in fp16 is rounding in bf16.
    assert by_module.judge(RIGHT, of_error(0.02), LIMITS["bf16"], "bf16", []).ok is True
    assert by_module.judge(RIGHT, of_error(0.001), LIMITS["fp32"], "fp32", []).ok is None


def test_why_the_modules_change_a_verdict_is_said() -> None:
    def why(error: float, modules: list[ModuleError], precision: str) -> str:
        figures = of_error(error)
        return by_module.judge(RIGHT, figures, LIMITS["bf16"], precision, modules).why

    assert why(1e-4, BAD, "bf16") == "its outputs are within the limits, a module's are not"
    end = "and weights are random"
    assert why(0.0625, [], "bf16") == f"its error 0.062 is more than rounding makes (0.05), {end}"


def test_outputs_that_are_all_zero_have_no_cosine_and_no_error() -> None:
    figures = {"cosine": None, "max_abs": 0.0, "random_weights": True}
    assert by_module.error(None) == 0
    assert by_module.judge(RIGHT, figures, FP16, "fp16", []).ok is True


def test_a_precision_without_limits_of_its_own_is_held_to_those_of_fp32() -> None:
    """The error is between the rounding of fp32 and that of everything else."""
    assert by_module.beyond_rounding(of_error(1e-3), "int8")
    assert not by_module.beyond_rounding(of_error(1e-3), "tf32")
    assert by_module.judge(RIGHT, of_error(1e-3), LIMITS["fp32"], "int8", []).ok is None
    assert by_module.module_limit(LIMITS["fp32"], "int8", random=True) == 2e-4


@pytest.mark.parametrize(
    ("precision", "random", "trained"),
    [  # twice the rounding; the root of twice what the cosine may lack
        ("fp32", 2e-4, math.sqrt(2e-4)),
        ("tf32", 1e-2, math.sqrt(2e-3)),
        ("fp16", 1e-2, math.sqrt(2e-3)),
        ("bf16", 1e-1, math.sqrt(2e-2)),
    ],
)
def test_a_module_is_held_to_twice_rounding_and_to_no_more_than_asked(
    precision: str, random: float, trained: float
) -> None:
    limits = LIMITS[precision]
    assert by_module.module_limit(limits, precision, random=True) == pytest.approx(random)
    assert by_module.module_limit(limits, precision, random=False) == pytest.approx(trained)
    strict = Limits(1 - 5e-9, 0.9)
    asked = by_module.module_limit(strict, precision, random=True)
    assert asked == pytest.approx(1e-4)  # less than twice the rounding of any


def subject(path: Path, suffix: str, elements: int = 8) -> Any:
    node = {"name": "a/Relu", "op": "Relu", "module": "a", "inputs": ["x"], "outputs": ["t"]}
    tensors = {"t": {"dtype": "float16", "shape": [elements]}}
    graph = {"inputs": ["x"], "outputs": ["t"], "nodes": [node], "tensors": tensors}
    (path / "nodes.json").write_text(json.dumps({"schema_version": 1, "initializers": [], **graph}))
    run = SimpleNamespace(file=lambda *parts: path / parts[-1])
    return SimpleNamespace(precision="fp16", run=run, backend=SimpleNamespace(suffix=suffix))


@pytest.mark.parametrize(
    ("suffix", "error", "elements", "measured"),
    [
        (".onnx", 1e-4, 8, True),
        (".engine", 1e-4, 8, False),  # a second engine is a build
        (".engine", 0.02, 8, True),
        (".onnx", 1e-4, gate.MOST_BYTES, False),
    ],
)
def test_modules_are_measured_where_it_takes_seconds_or_the_outputs_ask_for_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    suffix: str,
    error: float,
    elements: int,
    measured: bool,
) -> None:
    asked: list[bool] = []

    def located(*_: Any, whole: bool) -> Any:
        asked.append(whole)
        return SimpleNamespace(modules=BAD)

    monkeypatch.setattr(gate, "located", located)
    monkeypatch.setattr(gate, "known", lambda *_: [])
    of = subject(tmp_path, suffix, elements)
    given = (of_error(error), FP16, SimpleNamespace())
    assert gate.judge(of, RIGHT, *given).ok is not measured
    assert asked == [False] * measured
    trained = of_error(error, random=False)
    assert gate.judge(of, RIGHT, trained, FP16, SimpleNamespace()).ok is True
    assert len(asked) == measured
    # Those that `layerline accuracy` left are believed without measuring.
    monkeypatch.setattr(gate, "known", lambda *_: BAD)
    assert gate.judge(of, RIGHT, *given).ok is False and len(asked) == measured


def test_modules_that_cannot_be_measured_leave_the_verdict_of_the_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def located(*_: Any, **__: Any) -> Any:
        raise ToolMissing("PyTorch is not installed")

    monkeypatch.setattr(gate, "located", located)
    monkeypatch.setattr(gate, "known", lambda *_: [])
    of = subject(tmp_path, ".onnx")
    assert gate.judge(of, RIGHT, of_error(1e-4), FP16, SimpleNamespace()).ok is True
    assert gate.judge(of, RIGHT, of_error(0.02), FP16, SimpleNamespace()).ok is None
    assert "were not checked: PyTorch is not installed" in capsys.readouterr().err
