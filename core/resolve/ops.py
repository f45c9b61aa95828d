"""What kinds of ONNX operators there are, as far as attribution needs to know.

Operator names and the positions of their operands: https://onnx.ai/onnx/operators/
"""

from __future__ import annotations


def words(text: str) -> frozenset[str]:
    """The words of `text`."""
    return frozenset(text.split())


# Move, view or convert data and compute nothing: an engine drops them or hides them in others.
MOVEMENT = words(
    "Cast CastLike Concat CopyFromSequence DepthToSpace Expand Flatten Identity Pad Reshape "
    "Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze"
)

# Of these, what costs nothing: the data stay where they are.
VIEW = words("Flatten Identity Reshape Squeeze Unsqueeze")

# Their result depends on the shape of the input, never on its values.
SHAPE_QUERY = frozenset({"Shape", "Size"})

NORMALISATION = words(
    "LayerNormalization InstanceNormalization GroupNormalization RMSNormalization "
    "SimplifiedLayerNormalization"
)

MATRIX = frozenset({"MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "Einsum", "FusedMatMul"})
CONVOLUTION = frozenset(
    {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "DeformConv", "FusedConv"}
)
# No engine runs one of these twice to save memory traffic.
HEAVY = MATRIX | CONVOLUTION | {"Attention", "LSTM", "GRU", "RNN", "MultiHeadAttention"}

ELEMENTWISE = words(
    "Abs Add And BiasGelu BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Celu Clip Cos "
    "Cosh Div Elu Equal Erf Exp FastGelu Floor Gelu Greater GreaterOrEqual HardSigmoid HardSwish "
    "IsInf IsNaN LeakyRelu Less LessOrEqual Log Max Mean Min Mish Mod Mul Neg Not Or PRelu Pow "
    "QuickGelu Reciprocal Relu Round Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Sub Sum "
    "Swish Tan Tanh ThresholdedRelu Where Xor"
)

# Operand positions that hold shapes, axes, sizes or indices of a layout, not data.
_SHAPE_OPERANDS: dict[str, frozenset[int]] = {
    "Reshape": frozenset({1}),
    "Expand": frozenset({1}),
    "Tile": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}),
    "Squeeze": frozenset({1}),
    "Unsqueeze": frozenset({1}),
    "Split": frozenset({1}),
    "Pad": frozenset({1, 3}),
    "Resize": frozenset({1, 2, 3}),
    "Upsample": frozenset({1}),
    "ConstantOfShape": frozenset({0}),
    "Range": frozenset({0, 1, 2}),
    "TopK": frozenset({1}),
    "Trilu": frozenset({1}),
    "CumSum": frozenset({1}),
    **{
        f"Reduce{kind}": frozenset({1})
        for kind in words("L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare")
    },
}
_NONE: frozenset[int] = frozenset()


def data_inputs(op: str, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The input tensors whose values the operator works on: without shape and axis operands."""
    if op in SHAPE_QUERY:
        return ()
    skip = _SHAPE_OPERANDS.get(op, _NONE)
    return tuple(t for i, t in enumerate(inputs) if t and i not in skip)
