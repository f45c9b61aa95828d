"""Which tensor is which module's output, where the exporter folded one module into another."""

from __future__ import annotations

from typing import Any

import numpy as np

from layerline.core.nodes import Node, NodeGraph
from layerline.profile.accuracy.tensors import Eager, Placed, place, references

SHAPE = {"dtype": "float32", "shape": [2, 2]}
X, Y, Z = (np.array([[1.0, 2.0], [3.0, k]]) for k in (4.0, 5.0, 6.0))


def graph(*nodes: tuple[str, str, str]) -> NodeGraph:
    return NodeGraph(
        tuple(
            Node(n, n.rpartition("/")[2], n.rpartition("/")[0], tuple(r.split()), tuple(w.split()))
            for n, r, w in nodes
        ),
        inputs=("x",), outputs=(nodes[-1][2],),
    )  # fmt: skip


def found(g: NodeGraph, *modules: Eager) -> dict[str, Placed]:
    names = {t for n in g.nodes for t in (*n.inputs, *n.outputs)}
    return {p.module.path: p for p in place(g, dict.fromkeys(names, SHAPE), modules)}


CONV, NORM = Eager("conv", "Conv2d", [X], Y), Eager("norm", "BatchNorm2d", [Y], Z)


def test_a_folded_batch_normalisation_is_what_the_convolutions_tensor_holds() -> None:
    """Kind: trained statistics. A right engine was said to be wrong in the convolution."""
    g = graph(("conv/Conv", "x", "t"), ("act/Relu", "t", "y"))
    wrapped = Eager("conv.inner", "Conv2d", [X], Y)
    act = Eager("act", "ReLU", [Z], Z)
    by_path = found(g, CONV, NORM, act)
    assert by_path["conv"].output == "t" and by_path["conv"].module.output is Z
    assert by_path["conv"].inputs == {"x": X} and by_path["norm"].output is None
    assert references(by_path.values())["t"] is Z
    inner = graph(("conv.inner/Conv", "x", "t"), ("act/Relu", "t", "y"))
    by_path = found(inner, wrapped, CONV, NORM, act)
    assert [by_path[k].module.output is Z for k in ("conv.inner", "conv")] == [True, True]


def test_one_with_nodes_of_its_own_is_compared_as_it_is() -> None:
    g = graph(("conv/Conv", "x", "t"), ("norm/BatchNormalization", "t", "y"))
    by_path = found(g, CONV, NORM)
    assert by_path["conv"].module.output is Y and by_path["norm"].output == "y"


def test_another_module_without_nodes_is_no_folded_one() -> None:
    g = graph(("conv/Conv", "x", "t"), ("act/Relu", "t", "y"))
    drop: dict[str, Any] = found(g, CONV, Eager("drop", "Dropout", [Y], Z))
    assert drop["conv"].module.output is Y


def test_where_two_tensors_have_the_values_that_it_read_neither_is_known() -> None:
    g = graph(("conv/Conv", "x", "t"), ("other/Conv", "x", "u"), ("sum/Add", "t u", "y"))
    by_path = found(g, CONV, Eager("other", "Conv2d", [X], Y), NORM)
    assert by_path["conv"].output is by_path["other"].output is None
    assert by_path["conv"].why == "norm is folded into it, or into another"
