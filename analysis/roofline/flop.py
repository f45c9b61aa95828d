"""FLOP of ONNX operators, from the shapes of their tensors.

FLOP, with a multiply-add as two:

- MatMul 2*M*N*K, batches included; Gemm the same, and one per output element for its bias;
- Conv 2*outputs*(input channels of a group * kernel size), and the bias; ConvTranspose the same
  with its inputs for the outputs; Attention (opset 23) 2*elements(Q)*keys + 2*elements(Y)*keys,
  and a softmax over batch*heads*queries*keys. What a causal mask could leave out is counted;
- Softmax 5 an element (maximum, difference, exponential, sum, quotient), LogSoftmax 6,
  LayerNormalization, GroupNormalization and InstanceNormalization 8 (mean, difference, square,
  variance, product, scale, shift, with the sums), RMSNormalization 4, BatchNormalization 2;
- elementwise operators and reductions 1 an element, whatever the function; moving data none;
- any other operator: unknown, None.

The first two lines are exact (ONNX operator specification, https://onnx.ai/onnx/operators/); the
counts per element are a convention.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ...core.nodes import Node
from ...core.stats import sum_all

# dtype and dims of a tensor: ("float16", (1, 128, 768)).
Shapes = Mapping[str, tuple[str, Sequence[int]]]

# Their output is their first input, under another shape.
VIEWS = frozenset(["Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten"])
# What reads no data, or is folded into the kernel.
DATALESS = frozenset(["Shape", "Size", "Constant", "ConstantOfShape"])
# What reads no more of its first input than it writes.
PARTS = frozenset(["Gather", "GatherElements", "GatherND", "Slice", "Split"])
_MOVES = (
    VIEWS
    | DATALESS
    | PARTS
    | frozenset(["Transpose", "Concat", "Cast", "CastLike", "Expand", "Pad", "Tile"])
    | frozenset(["Where", "Range", "Trilu"])
)
_ELEMENTWISE_WORDS = """
    Add Sub Mul Div Pow Mod Max Min Sqrt Exp Log Neg Abs Sign Reciprocal Floor Ceil Round Clip
    Tanh Erf Sigmoid HardSigmoid Relu LeakyRelu PRelu Elu Celu Selu Gelu Swish HardSwish Mish
    Softplus Softsign Sin Cos Not And Or Xor Equal Greater Less GreaterOrEqual LessOrEqual IsNaN
    IsInf CumSum"""
_ELEMENTWISE = frozenset(_ELEMENTWISE_WORDS.split())
_REDUCTION_WORDS = """
    ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ArgMax
    ArgMin GlobalAveragePool GlobalMaxPool"""
_REDUCTIONS = frozenset(_REDUCTION_WORDS.split())
_PER_ELEMENT = {
    "Softmax": 5,
    "LogSoftmax": 6,
    "LayerNormalization": 8,
    "GroupNormalization": 8,
    "InstanceNormalization": 8,
    "RMSNormalization": 4,
    "BatchNormalization": 2,
}
# Matrix products: they run on tensor cores where these take their type.
PRODUCTS = frozenset(["MatMul", "Gemm", "Conv", "ConvTranspose", "Attention"])


def flop(node: Node, shapes: Shapes) -> float | None:
    """FLOP of one node; None for an operator or a shape that is not known, and for a node with
    fewer inputs, outputs or dimensions than its operator has."""
    try:
        return _flop(node, shapes)
    except IndexError:
        return None


def _flop(node: Node, shapes: Shapes) -> float | None:
    if node.op in _MOVES:
        return 0.0
    out = _elements(node.outputs[0], shapes) if node.outputs else None
    if node.op in PRODUCTS:
        beside = _softmax(node, shapes) if node.op == "Attention" else _bias(node, out)
        return added([product(node, shapes), beside])
    if node.op in _ELEMENTWISE:
        return out
    if node.op in _REDUCTIONS:
        return _elements(node.inputs[0], shapes)
    if node.op in _PER_ELEMENT and out is not None:
        return _PER_ELEMENT[node.op] * out
    return None


def product(node: Node, shapes: Shapes) -> float | None:
    """FLOP of the products alone; None as in `flop`."""
    try:
        return _product(node, shapes)
    except IndexError:
        return None


def _product(node: Node, shapes: Shapes) -> float | None:
    first, out = shapes.get(node.inputs[0]), shapes.get(node.outputs[0])
    if first is None or out is None or not first[1]:
        return None
    if node.op == "MatMul":
        return 2.0 * math.prod(out[1]) * first[1][-1]
    if node.op == "Attention":
        keys = _keys(node, shapes)
        elements = math.prod(first[1]) + math.prod(out[1])
        return None if keys is None else 2.0 * elements * keys
    if node.op in ("Conv", "ConvTranspose"):
        weight = shapes.get(node.inputs[1])
        if weight is None:
            return None
        return 2.0 * math.prod((out if node.op == "Conv" else first)[1]) * math.prod(weight[1][1:])
    # Gemm: A may be transposed, B as well, and the attributes are not known here. K is what A
    # has beside M, the rows of the output.
    rows, total = out[1][0], math.prod(first[1])
    return None if not rows or total % rows else 2.0 * math.prod(out[1]) * (total // rows)


def _bias(node: Node, out: float | None) -> float | None:
    """One addition an element where a product has a bias."""
    return out if node.op != "MatMul" and len(node.inputs) > 2 and node.inputs[2] else 0.0


def _keys(node: Node, shapes: Shapes) -> int | None:
    """Number of keys that an Attention node looks at: (batch, [heads,] keys, size), and a cache."""
    keys = 0
    for i in (1, 4):  # K, past_key
        if i < len(node.inputs) and node.inputs[i]:
            known = shapes.get(node.inputs[i])
            if known is None:
                return None
            keys += known[1][-2]
    return keys


def _softmax(node: Node, shapes: Shapes) -> float | None:
    """Of an Attention node with queries (batch, heads, queries, size); three dimensions do not
    tell the heads."""
    queries, keys = shapes.get(node.inputs[0]), _keys(node, shapes)
    if queries is None or keys is None or len(queries[1]) != 4:
        return None
    return float(_PER_ELEMENT["Softmax"] * math.prod(queries[1][:3]) * keys)


def added(values: Iterable[float | None]) -> float | None:
    """The sum; None where one of them is."""
    found = sum_all(values)
    return None if found is None else float(found)


def _elements(tensor: str, shapes: Shapes) -> float | None:
    known = shapes.get(tensor)
    return None if known is None else float(math.prod(known[1]))
