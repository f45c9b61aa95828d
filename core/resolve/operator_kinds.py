"""Kinds of ONNX operators: which count as a normalisation, as movement, as a matrix product, as
elementwise work, and which of their operands are shapes and no data.

The rules look a node's operator up here, e.g. to say what a norm's node in a fused kernel is.
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

# Convert data between a number and its quantised form.
QUANTISING = words("QuantizeLinear DequantizeLinear DynamicQuantizeLinear")

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
_REDUCE = words("L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare")
_SECOND = words("Reshape Expand Tile Squeeze Unsqueeze Split Upsample TopK Trilu CumSum")
_SHAPE_OPERANDS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys((*_SECOND, *(f"Reduce{kind}" for kind in _REDUCE)), (1,)),
    "Slice": (1, 2, 3, 4),
    "Pad": (1, 3),
    "Resize": (1, 2, 3),
    "ConstantOfShape": (0,),
    "Range": (0, 1, 2),
}


def data_inputs(op: str, inputs: tuple[str, ...]) -> tuple[str, ...]:
    """The input tensors whose values the operator works on: without shape and axis operands."""
    if op in SHAPE_QUERY:
        return ()
    skip = _SHAPE_OPERANDS.get(op, ())
    return tuple(t for i, t in enumerate(inputs) if t and i not in skip)
