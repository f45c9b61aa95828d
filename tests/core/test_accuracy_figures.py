"""How far an output is from the reference's, by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from layerline.core.accuracy import figures
from layerline.core.accuracy.figures import of_output

NAN, INF = math.nan, math.inf


def of(got: Any, reference: Any) -> dict[str, Any]:
    return of_output(np.array(got, np.float32), np.array(reference, np.float32))


def test_figures_of_two_positions() -> None:
    """Differences 1, 0, 2 and 0; the second position's largest feature is another one."""
    found = of([[[3, 4], [2, 1]]], [[[2, 4], [0, 1]]])
    assert found == {
        "max_abs": 2,
        "max_rel": 2 / 4,
        "cosine": pytest.approx((6 + 16 + 0 + 1) / math.sqrt(30 * 21)),
        "top1": 0.5,
        "positions": 2,
        "n": 4,
        "nonfinite": 0,
        "reference_nonfinite": 0,
        "constant": None,
    }


def test_sums_go_on_over_blocks_of_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five positions, two at a time: the largest difference first, the largest value last."""
    monkeypatch.setattr(figures, "_BLOCK", 2)
    found = of(
        [[4, 0], [0, 2], [0, INF], [0, 2], [1, 8]],
        [[1, 0], [0, 2], [1, 0], [2, 0], [1, 9]],
    )
    assert (found["max_abs"], found["max_rel"]) == (3, 3 / 9)
    assert (found["top1"], found["positions"], found["n"]) == (3 / 5, 5, 10)
    assert found["nonfinite"] == 1
    dot, squares, reference = 4 + 4 + 0 + 0 + 73, 16 + 4 + 0 + 4 + 65, 1 + 4 + 1 + 4 + 82
    assert found["cosine"] == pytest.approx(dot / math.sqrt(squares * reference))


def test_what_an_earlier_block_lacks_stays_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures, "_BLOCK", 1)
    found = of([[2, 2], [2, 2]], [[1, INF], [2, 2]])
    assert (found["reference_nonfinite"], found["constant"]) == (1, None)
    found = of([[2, NAN], [2, 2]], [[1, 2], [2, 2]])
    assert (found["nonfinite"], found["constant"]) == (1, None)


def test_every_block_counts() -> None:
    """Two blocks of 256 positions and one of a single one, each off by one more."""
    reference = np.zeros((513, 2), np.float32)
    got = np.repeat(np.array([1, 2, 3], np.float32), [256, 256, 1])[:, None].repeat(2, axis=1)
    found = of_output(got, reference)
    assert (found["max_abs"], found["positions"]) == (3, 513)
    assert found["max_rel"] is found["cosine"] is None  # the reference is zero throughout


def test_what_is_not_finite_is_counted_and_left_out_and_never_agrees() -> None:
    found = of([[NAN, 1], [INF, 2], [1, 2]], [[3, 1], [3, 2], [NAN, 5]])
    assert (found["nonfinite"], found["reference_nonfinite"]) == (2, 1)
    assert (found["max_abs"], found["max_rel"]) == (3, 3 / 5)
    assert found["cosine"] == pytest.approx((1 + 4 + 10) / math.sqrt((1 + 4 + 4) * (1 + 4 + 25)))
    # Infinity is the largest of its position, as in the reference 3 is.
    assert found["top1"] == pytest.approx(1 / 3)
    both = of([[NAN, 1]], [[INF, 1]])
    assert (both["nonfinite"], both["reference_nonfinite"]) == (0, 1)


def test_where_nothing_is_finite_in_both_nothing_is_known() -> None:
    found = of([[NAN, 1]], [[1, INF]])
    assert [found[k] for k in ("max_abs", "max_rel", "cosine", "constant")] == [None] * 4
    assert (found["top1"], found["n"]) == (0, 2)
    empty = of_output(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32))
    assert (empty["n"], empty["positions"], empty["top1"], empty["max_abs"]) == (0, 0, None, None)


@pytest.mark.parametrize("shape", [(), (1,), (3, 1)])
def test_without_several_features_there_are_no_positions(shape: tuple[int, ...]) -> None:
    reference = np.ones(shape, np.float32)
    found = of_output(reference * 2, reference)
    assert (found["positions"], found["top1"]) == (None, None)
    assert (found["n"], found["max_abs"]) == (reference.size, 1)
    assert of_output(np.zeros((2, 0)), np.zeros((2, 0)))["n"] == 0


def test_parallel_outputs_have_a_cosine_of_one_and_no_more() -> None:
    generator = np.random.default_rng(0)
    for _ in range(20):
        reference = generator.normal(size=(3, 7))
        assert of_output(reference * 3, reference)["cosine"] <= 1
    assert of([[1, 1]], [[-1, -1]])["cosine"] == pytest.approx(-1)
    assert of([[0, 0]], [[1, 1]])["cosine"] is None


@pytest.mark.parametrize(
    ("got", "reference", "constant"),
    [
        ([[2, 2], [2, 2]], [[1, 2], [2, 2]], 2),
        ([[0, 0], [0, 0]], [[0, 0], [0, -1]], 0),
        ([[2, 2], [2, 3]], [[1, 2], [2, 2]], None),
        ([[2, 2], [2, 2]], [[5, 5], [5, 5]], None),  # the reference is constant, too
        ([[2, NAN], [2, 2]], [[1, 2], [2, 2]], None),
        ([[2, 2], [2, 2]], [[1, INF], [2, 2]], None),
    ],
)
def test_one_value_throughout_is_said_where_the_reference_has_several(
    got: Any, reference: Any, constant: float | None
) -> None:
    assert of(got, reference)["constant"] == constant


def test_half_precision_is_computed_in_double() -> None:
    """65,504 squared is infinite in half precision."""
    found = of_output(np.full((1, 2), 65504, np.float16), np.array([[65504, 65472]], np.float16))
    assert found["max_abs"] == 32 and found["max_rel"] == 32 / 65504
    assert found["cosine"] == pytest.approx(1, abs=1e-6)
