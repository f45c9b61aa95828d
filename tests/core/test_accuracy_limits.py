"""Whether outputs are right, by figures written out."""

from __future__ import annotations

from typing import Any

import pytest

from layerline.core.accuracy.limits import (
    FEWEST_POSITIONS,
    LIMITS,
    Asked,
    Limits,
    Verdict,
    default,
    judge,
)

LIMIT = Limits(0.75, 0.5)


def verdict(**figures: Any) -> tuple[bool | None, str]:
    found = judge({"cosine": 1.0, "max_abs": 0.1} | figures, LIMIT)
    return found.ok, found.why


@pytest.mark.parametrize(
    ("figures", "ok", "why"),
    [
        ({}, True, ""),
        ({"cosine": 0.75}, True, ""),  # at least that
        ({"cosine": 0.7499}, False, "cosine 0.7499, below 0.75"),
        ({"cosine": float("nan")}, False, "cosine nan, below 0.75"),
        ({"cosine": None}, None, "the cosine is unknown"),
        ({"cosine": None, "max_abs": None}, None, "the cosine is unknown"),
        ({"cosine": None, "max_abs": 0.0}, True, ""),  # both are zero
        ({"top1": 0.5, "positions": FEWEST_POSITIONS}, True, ""),
        ({"top1": 0.4}, False, "top-1 agreement 40.0 %, below 50 %"),
        ({"top1": 0.4, "positions": FEWEST_POSITIONS}, False,
         "top-1 agreement 40.0 %, below 50 %"),
        ({"top1": 0.4, "positions": FEWEST_POSITIONS - 1}, True, ""),
        ({"top1": float("nan"), "positions": 100}, False, "top-1 agreement nan %, below 50 %"),
        ({"nonfinite": 1}, False, "1 value is NaN or infinite"),
        ({"nonfinite": 1200, "cosine": 0.1}, False, "1,200 values are NaN or infinite"),
        ({"nonfinite": 0}, True, ""),
        ({"constant": 0.0, "cosine": None}, False, "every value is 0"),
        ({"constant": 0.123456}, False, "every value is 0.1235"),
        ({"reference_nonfinite": 1200, "nonfinite": 3}, None,
         "the reference itself has 1,200 values that are NaN or infinite"),
    ],
)  # fmt: skip
def test_one_output_is_judged_by_its_figures(
    figures: dict[str, Any], ok: bool | None, why: str
) -> None:
    assert verdict(**figures) == (ok, why)
    # Named only where there are several.
    assert verdict(outputs={"y": {"cosine": 1.0, "max_abs": 0.1} | figures}) == (ok, why)


RIGHT, WRONG = {"cosine": 1.0}, {"cosine": 0.1}
UNKNOWN: dict[str, Any] = {"cosine": None}
BROKEN = {"reference_nonfinite": 2}


@pytest.mark.parametrize(
    ("outputs", "ok", "why"),
    [
        ({"a": RIGHT, "b": WRONG, "c": UNKNOWN}, False, "b: cosine 0.1, below 0.75"),
        ({"a": RIGHT, "b": UNKNOWN}, None, "the cosine of b is unknown"),
        ({"a": BROKEN, "b": RIGHT}, None,
         "the reference itself has 2 values of a that are NaN or infinite"),
        ({"a": RIGHT, "b": RIGHT}, True, ""),
    ],
)  # fmt: skip
def test_of_several_outputs_one_that_is_wrong_decides_then_one_that_is_unknown(
    outputs: dict[str, Any], ok: bool | None, why: str
) -> None:
    assert verdict(cosine=0.0, outputs=outputs) == (ok, why)


def test_only_what_is_wrong_for_sure_is_wrong() -> None:
    assert [Verdict(ok).wrong for ok in (False, None, True)] == [True, False, False]


def test_what_was_asked_for_goes_before_what_was_recorded_and_the_defaults() -> None:
    asked = Asked({"fp16": 0.5, "": 0.6}, {"bf16": 0.25})
    assert asked.limits("fp16") == Limits(0.5, LIMITS["fp16"].top1)
    assert asked.limits("bf16", {"cosine": 0.1, "top1": 0.1}) == Limits(0.6, 0.25)
    recorded = {"cosine": None, "top1": 0.1}
    assert asked.limits("fp32", recorded) == Limits(0.6, 0.1)
    assert Asked().limits("fp16", recorded) == Limits(LIMITS["fp16"].cosine, 0.1)
    assert Asked().limits("tf32") == default("tf32") == LIMITS["tf32"]
    assert Asked().limits("int8") == default("int8") == LIMITS["fp32"]


def test_a_manifest_has_what_was_asked_for_and_nothing_else() -> None:
    assert Asked().as_json() == {}
    assert Asked(top1={"": 0.5}).as_json() == {"top1": {"": 0.5}}
