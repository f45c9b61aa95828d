"""Executions, layers and engines of a capture, as numbers: small columns worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from layerline.analysis.attribution.engines import Engines, _whole, one
from layerline.analysis.attribution.executions import Nameless, joined, moments, picked
from layerline.analysis.attribution.tensorrt_ranges import (
    Layer,
    _dense,
    _execution_order,
    _labelled,
    _layer_names,
    _occurrences,
)
from layerline.analysis.readers.nsys.source import NULL
from layerline.core.own_ranges import NO_LAYER

LAST = np.iinfo(np.int64).max


def small(*values: int) -> Any:
    return np.array(values, np.int32)


def flags(text: str) -> Any:
    return np.array([x == "x" for x in text], np.bool_)


def executions(of: Nameless, number: Any, iterations: int) -> tuple[list[int], ...]:
    found = of.executions(number, iterations)
    assert {x.dtype for x in (found.piece, found.iteration, found.of)} == {np.dtype(np.int32)}
    return found.piece.tolist(), found.iteration.tolist(), found.of.tolist()


def test_columns_of_none_are_empty_and_what_is_nowhere_stays_so() -> None:
    assert joined([], np.bool_).dtype == np.bool_ and not len(joined([], np.bool_))
    assert joined([small(1), small(2)], int).size == 2
    assert picked(small(7, 8), small(1, -1, 0)).tolist() == [8, -1, 7]
    assert picked(small(), small(-1, -1)).tolist() == [-1, -1]
    assert picked(small(), small(-1)).dtype == np.int32


def test_a_layers_range_in_an_iteration_is_one_execution() -> None:
    """What an iteration does outside every layer is one too; what is in none has none."""
    of = Nameless(4, small(2, 2, 0, -1, 3, -1, -1), flags("...."), small(0, 0, 0, 0, 0, 0, 0))
    assert executions(of, small(0, 0, 0, 0, 1, -1, 1), 2) == (
        [0, 2, 3, -1, -1], [0, 0, 1, 0, 1], [1, 1, 0, 3, 2, -1, 4],
    )  # fmt: skip
    assert of.home(small(0, 3, -1)).tolist() == [0, 3, -1]


@pytest.mark.parametrize("outside", [False, True])
def test_a_range_in_several_iterations_is_an_execution_of_each(outside: bool) -> None:
    """Nodes of CUDA graphs stay in the range in which they were captured."""
    piece, number = [1, 1, 0, -1], [0, 1, 1, 1]
    if outside:
        piece, number = [*piece, 1], [*number, -1]
    of = Nameless(2, small(*piece), flags(".."), small(*piece))
    assert executions(of, small(*number), 2) == (
        [1, -1, 0, 1], [0, 1, 1, 1], [0, 3, 2, 1, *([-1] if outside else [])],
    )  # fmt: skip


def test_what_the_first_iteration_does_outside_of_a_repeated_range_is_an_execution() -> None:
    of = Nameless(2, small(1, 1, -1), flags(".."), small(0, 0, 0))
    assert executions(of, small(0, 1, 0), 2) == ([-1, 1, 1], [0, 0, 1], [1, 2, 0])


def test_what_runs_outside_every_iteration_orders_nothing() -> None:
    """Piece 0 is divided; the third operation, in no iteration, was launched before both."""
    of = Nameless(1, small(0, 0, -1), flags("x"), np.array([40, 50, 5], np.int64))
    assert executions(of, small(0, 0, -1), 1) == ([1, 2], [0, 0], [0, 1, -1])


def test_operations_without_a_name_are_executions_in_the_order_of_their_moments() -> None:
    """Two of piece 1; what is outside every layer comes last, whenever it ran."""
    moment = np.array([50, 40, 30, 20, 10, 45, 5], np.int64)
    piece = small(1, 1, 2, -1, 0, 2, 1)
    of = Nameless(3, piece, flags(".x."), moment)
    assert of.own.tolist() == [3, 4, 2, -1, 0, 2, 5] and piece.tolist()[0] == 1
    assert executions(of, small(0, 0, 0, 0, 0, 0, -1), 1) == (
        [0, 2, 4, 3, -1], [0, 0, 0, 0, 0], [3, 2, 1, 4, 0, 1, -1],
    )  # fmt: skip
    assert of.home(small(0, 2, 4, 3, 5, -1)).tolist() == [0, 2, 1, 1, 1, -1]


def test_an_operation_is_ordered_by_its_launch_else_by_when_it_ran() -> None:
    """Those of a CUDA graph are launched at once: they are ordered by when they ran."""
    plain = SimpleNamespace(
        call_start=np.array([5, NULL]), origin=None,
        operations=SimpleNamespace(start=np.array([10, 20])),
    )  # fmt: skip
    graph = SimpleNamespace(
        call_start=np.array([6, 6, NULL]), origin=small(0, -1, -1),
        operations=SimpleNamespace(start=np.array([30, 40, 50])),
    )  # fmt: skip
    both: list[Any] = [plain, graph]
    assert moments(both).tolist() == [5, 20, 30, 6, 50]
    assert moments([]).dtype == np.int64


@pytest.mark.parametrize("size", [4, 10**9], ids=["counted", "sorted"])
def test_equal_names_are_numbered_in_their_order(size: int) -> None:
    found = _occurrences(np.array([3, 1, 3, 3, 1, 0], np.int64), size)
    assert found.tolist() == [0, 0, 1, 2, 1, 0] and found.dtype == np.int32
    assert _occurrences(np.array([2, 0, 1], np.int64), size).tolist() == [0, 0, 0]
    assert _occurrences(np.empty(0, np.int64), size).tolist() == []


@pytest.mark.parametrize("far", [9, 10**10], ids=["counted", "sorted"])
def test_codes_become_dense_in_their_order(far: int) -> None:
    distinct, at = _dense(np.array([5, 2, far, 5], np.int64))
    assert (distinct.tolist(), at.tolist()) == ([2, 5, far], [1, 0, 2, 1])
    assert at.dtype == np.int32
    nothing = _dense(np.empty(0, np.int64))
    assert [x.tolist() for x in nothing] == [[], []]


def test_layers_stand_as_in_the_fullest_iteration_and_the_others_after_it() -> None:
    """Iteration 1 runs 2, 1, 0 and 1 again; 3 runs in another one, 4 in none."""
    layer, iteration = small(0, 1, 2, 1, 0, 1, 3), small(0, 0, 1, 1, 1, 1, 2)
    assert _execution_order(layer, iteration, 5, one(3)).tolist() == [2, 1, 0, 7 + 6, LAST]
    # Of iterations alike the first counts.
    order = _execution_order(small(0, 1, 1, 0), small(0, 0, 1, 1), 2, one(2))
    assert order.tolist() == [0, 1]
    assert _execution_order(small(), small(), 2, one(0)).tolist() == [LAST, LAST]


def test_one_engines_layers_come_before_the_next_ones() -> None:
    whose = Engines(small(0, 1, 0), [1, 1])
    layer, iteration = small(3, 1, 0, 2, 3), small(0, 0, 1, 1, 2)
    assert _execution_order(layer, iteration, 4, whose).tolist() == [10, 1, 11, 0]


def test_a_layer_is_labelled_by_its_name_its_occurrence_and_its_engine() -> None:
    texts = ["a", "b"]
    assert _labelled([1, 2, 4, 0], 3, texts, 1, {1}) == [
        Layer("a", 0, "a #1"), Layer("b", 0, "b", 0, True), Layer("a", 1, "a #2"),
        Layer(NO_LAYER, 0, NO_LAYER),
    ]  # fmt: skip
    twice = [f"{NO_LAYER} #1", f"{NO_LAYER} #2"]
    assert [x.label for x in _labelled([0, 3], 3, texts, 1, set())] == twice
    # (occurrence * 2 + engine) * 3 + name
    assert _labelled([1, 4, 10, 5, 0], 3, texts, 2, set()) == [
        Layer("a", 0, "a (engine 1)"), Layer("a", 0, "a #1 (engine 2)", 1),
        Layer("a", 1, "a #2 (engine 2)", 1), Layer("b", 0, "b", 1), Layer(NO_LAYER, 0, NO_LAYER),
    ]  # fmt: skip


def test_the_numbers_of_single_calls_are_no_part_of_a_name() -> None:
    texts = [
        "layerline/module/h.0", "layerline/module/", "aten::mm, op_id = 34", "aten::mm, seq = 3",
        "aten::mm", "x, y", "layerline/module/h, op_id = 1",
    ]  # fmt: skip
    names, codes = _layer_names(texts)
    assert names == ["h.0", "(model)", "aten::mm", "x, y", "h, op_id = 1"]
    assert codes.tolist() == [0, 1, 2, 2, 2, 3, 4, -1] and codes.dtype == np.int32


def test_a_part_of_one_engines_names_is_of_that_engine() -> None:
    """Of the same process alone; of two engines, or of none, it is one of its own."""
    a, b, both = frozenset({1, 2}), frozenset({2, 3}), frozenset({2})
    kinds = [(7, a), (7, b), (7, both), (7, frozenset({1})), (8, both), (7, frozenset[int]())]
    assert _whole(kinds) == {
        (7, a): (7, a), (7, b): (7, b), (7, both): (7, both), (7, frozenset({1})): (7, a),
        (8, both): (8, both), (7, frozenset()): (7, frozenset()),
    }  # fmt: skip
    # A part of a part is of the whole.
    chain = [(7, frozenset({1})), (7, a), (7, frozenset({1, 2, 3}))]
    assert set(_whole(chain).values()) == {chain[2]}


def test_several_engines_are_said_by_their_layers_and_runs() -> None:
    several = Engines(small(0, 1, 0), [10, 11])
    assert several.iterations == [2, 1] and len(several) == 2
    assert several.note([["conv", "relu", "fc"], ["mm"]]) == [
        "the capture holds 2 engines, told apart by their processes and layers: "
        "engine 1 (conv and 2 more layers; process 10) 2 enqueues, "
        "engine 2 (mm; process 11) 1 enqueues"
    ]
    single = one(3)
    assert (single.of.tolist(), single.processes, single.iterations) == ([0, 0, 0], [0], [3])
    assert single.note([["conv"]]) == [] and one(0).iterations == [0]
