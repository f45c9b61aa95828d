"""Parity figures, worked out by hand; what is not a number is never within a tolerance."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from layerline.core.accuracy import figures
from layerline.core.errors import CheckFailed
from layerline.export import parity

REFERENCE = np.array([[[1.0, -4.0], [0.0, 3.0]]], dtype=np.float32)


def judged(got: Any, precision: str = "fp32", tolerance: float = 1e-4) -> dict[str, Any]:
    return parity.entry(
        {"logits": REFERENCE},
        {"logits": np.asarray(got)},
        precision=precision,
        tolerance=tolerance,
        facts={"reference": "eager"},
    )


def test_figures_are_those_worked_out_by_hand() -> None:
    got = np.array([[[1.0, -4.5], [3.5, 3.0]]], dtype=np.float32)
    found = parity.compare(REFERENCE, got)
    assert found["max_abs"] == 3.5  # at the third value: 3.5 instead of 0
    assert found["max_rel"] == 3.5 / 4
    assert found["top1"] == 0.5  # the second position's largest moved from 1 to 0
    assert found["n"] == 4
    # 1 + 18 + 0 + 9 over |(1,-4,0,3)| |(1,-4.5,3.5,3)|
    assert found["cosine"] == pytest.approx(28 / math.sqrt(26 * 42.5), rel=1e-12)


def test_blocks_do_not_change_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    a = generator.normal(size=(2, 7, 5)).astype(np.float32)
    b = a + generator.normal(size=a.shape).astype(np.float32) / 100
    whole = parity.compare(a, b)
    monkeypatch.setattr(figures, "_BLOCK", 3)
    assert parity.compare(a, b) == pytest.approx(whole, rel=1e-12)


def said(entry: dict[str, Any], name: str) -> str:
    """What is wrong with a file, and what to do."""
    return parity.fault(entry, name).line()


def test_fp32_beyond_the_tolerance_fails_and_within_passes() -> None:
    assert judged(REFERENCE + 2e-4)["ok"] is False
    assert judged(REFERENCE + 2e-4, tolerance=1e-3)["ok"] is True
    assert "fp32.onnx: differs from eager fp32 by 0.0002" in said(
        judged(REFERENCE + 2e-4), "fp32.onnx"
    )


def test_fp16_is_reported_not_judged() -> None:
    found = judged(REFERENCE + 0.5, precision="fp16")
    assert (found["ok"], found["enforced"], found["tolerance"]) == (True, False, None)
    assert found["max_abs"] == 0.5


@pytest.mark.parametrize("got", [REFERENCE * 3, REFERENCE[..., ::-1]])
def test_another_function_is_not_ok_in_any_precision(got: Any) -> None:
    found = judged(got, precision="fp16")
    assert found["ok"] is False
    assert "computes something else than eager fp32" in said(found, "fp16.onnx")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_nan_or_infinity_is_not_ok_in_any_precision(value: float, precision: str) -> None:
    got = REFERENCE.copy()
    got[0, 0, 0] = value
    found = judged(got, precision=precision)
    assert (found["ok"], found["non_finite"], found["max_abs"]) == (False, 1, None)
    assert "1 of 4 values of logits are NaN or infinite" in said(found, "x")


def test_a_second_output_counts_too() -> None:
    found = parity.entry(
        {"logits": REFERENCE, "pooled": REFERENCE},
        {"logits": REFERENCE, "pooled": REFERENCE + 1},
        precision="fp32",
        tolerance=1e-4,
        facts={},
    )
    assert found["max_abs"] == 0  # the main output's
    assert found["ok"] is False


def test_what_could_not_be_run_is_unknown_not_zero() -> None:
    found = parity.entry(
        {"logits": REFERENCE}, None, precision="bf16", tolerance=1e-4, facts={"reason": "no kernel"}
    )
    assert found["ok"] is None
    assert found["max_abs"] is None
    assert found["reason"] == "no kernel"


def test_an_output_of_another_shape_is_a_failed_check() -> None:
    with pytest.raises(CheckFailed, match="shape"):
        parity.compare(REFERENCE, REFERENCE[:, :1])
