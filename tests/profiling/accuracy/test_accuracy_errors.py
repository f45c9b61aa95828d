"""Errors of tensors against eager's: what is a mask, what overflowed, what has no value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from layerline.profile.accuracy.errors import Error, error, error_in, first, jumps, of_tensors
from layerline.profile.accuracy.tensors import Eager, Placed

LOWEST, HALF = float(np.finfo(np.float32).min), float(np.finfo(np.float16).min)


def of(value: list[float], reference: list[float]) -> Error:
    found = error(np.array(value), np.array(reference))
    assert found is not None
    return found


def test_the_error_is_the_norm_of_the_difference_over_that_of_the_reference() -> None:
    # (3, 4) of norm 5, away by (0.3, 0.4) of norm 0.5
    assert of([3.3, 4.4], [3.0, 4.0]).relative == pytest.approx(0.1)
    assert of([1.0], [0.0]) == Error(None, 0)  # nothing to hold it against
    assert error(None, np.zeros(2)) is None
    assert error(np.zeros(3), np.zeros(2)) is None


@pytest.mark.parametrize("reference", [LOWEST, HALF, -math.inf])
@pytest.mark.parametrize("value", [LOWEST, HALF, -math.inf])
def test_masks_of_different_depth_are_the_same(value: float, reference: float) -> None:
    """Kind: an engine masks with the least half, eager with the least float, or with infinity."""
    assert of([value, 3.3, 4.4], [reference, 3.0, 4.0]).relative == pytest.approx(0.1)


def test_a_mask_that_the_graph_adds_earlier_than_eager_is_no_error() -> None:
    """Kind: T5's exported bias has its mask added already, eager's adds it inside of the module."""
    assert of([LOWEST, 3.3, 4.4], [-7.0, 3.0, 4.0]).relative == pytest.approx(0.1)
    assert of([LOWEST + 5.0, 3.0, 4.0], [5.0, 3.0, 4.0]) == Error(0.0, 0)


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
def test_what_overflowed_is_never_taken_for_a_mask(value: float) -> None:
    """Kind: a wrong result that looks like a mask. A mask is finite, or eager has it, too."""
    assert of([value, 3.0, 4.0], [-7.0, 3.0, 4.0]) == Error(None, 1)


def test_large_values_that_no_mask_has_count() -> None:
    assert of([-65_504.0, 4.0], [-3.0, 4.0]).relative == pytest.approx(65_501 / 5)
    assert of([1e31, 4.0], [3.0, 4.0]).relative == pytest.approx(1e31 / 5)
    assert of([-59_000.0], [-50_000.0]).relative == pytest.approx(0.18)


def placed(module: str, reads: tuple[str, ...], output: str | None) -> Placed:
    return Placed(Eager(module, module, (), None), reads, {}, output)


def test_the_first_module_with_an_error_of_its_own_is_the_one() -> None:
    """An error that was handed on is not its reader's; one of unknown inputs is nobody's."""
    order = [
        placed("unknown", ("?",), "a"),
        placed("none", ("a",), None),
        placed("small", ("x",), "b"),
        placed("handed on", ("a", "x"), "c"),
        placed("wrong", ("b", "x"), "d"),
        placed("later", ("b",), "e"),
    ]
    found = {
        "a": Error(0.5, 0), "b": Error(0.01, 0), "c": Error(1.9, 0), "d": Error(0.05, 0),
        "e": Error(None, 3), "x": Error(0.0, 0), "?": None,
    }  # fmt: skip
    assert first(order, found, 0.01) == order[4]
    assert first(order, found, 0.05) == order[5]
    assert first(order[:4], found, 0.01) is None


def test_an_error_of_its_own_is_more_than_four_times_what_was_given() -> None:
    given = Error(0.25, 0)
    assert not jumps(given, Error(1.0, 0), 0.1) and jumps(given, Error(1.01, 0), 0.1)
    assert jumps(given, Error(None, 1), 0.1)
    assert not jumps(Error(None, 1), Error(None, 9), 0.1)
    assert not jumps(None, Error(1.0, 0), 0.1) and not jumps(given, None, 0.1)


def test_norms_are_of_doubles() -> None:
    """A half that is squared overflows at 256."""
    values, reference = np.array([3300, 4400], np.float16), np.array([3000, 4000], np.float16)
    found = error(values, reference)
    assert found is not None and found.relative == pytest.approx(0.1)


def test_the_least_of_a_mask_is_one_and_beside_it_is_none() -> None:
    assert of([0.0, 3.0, 4.0], [-60_000.0, 3.0, 4.0]) == Error(0.0, 0)
    assert of([0.0, 3.0, 4.0], [-59_999.0, 3.0, 4.0]).relative == pytest.approx(1.0)
    assert of([-1e30, 3.0, 4.0], [0.0, 3.0, 4.0]) == Error(0.0, 0)
    assert of([-9e29, 3.0, 4.0], [0.0, 3.0, 4.0]).relative == pytest.approx(1.8e29)


def test_a_module_is_given_the_largest_error_that_is_known() -> None:
    found = {"a": Error(0.5, 0), "b": Error(None, 1), "c": None, "d": Error(0.7, 0)}
    assert error_in(placed("m", ("a", "d", "c", "?"), None), found) == Error(0.7, 0)
    assert error_in(placed("m", ("a", "b", "d"), None), found) == Error(None, 1)
    assert error_in(placed("m", ("c", "?"), None), found) is None


def test_tensors_without_a_value_have_no_error() -> None:
    values, references = {"a": np.array([2.0])}, {"a": np.array([1.0]), "b": np.array([1.0])}
    assert of_tensors(values, references, ["a", "b"]) == {"a": Error(1.0, 0), "b": None}
