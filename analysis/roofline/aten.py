"""The graph that torch.export captures, in the words of ONNX: its least work is counted alike.

An operator that is not here keeps its name, and its work is unknown. aten.linear is a product of
its input and its weight; the addition of its bias is not counted.
"""

from __future__ import annotations

from dataclasses import replace

from ...core.nodes import Node, NodeGraph

_WORDS = """
    linear:MatMul mm:MatMul matmul:MatMul bmm:MatMul addmm:Gemm
    scaled_dot_product_attention:Attention conv1d:Conv conv2d:Conv conv3d:Conv convolution:Conv
    layer_norm:LayerNormalization group_norm:GroupNormalization rms_norm:RMSNormalization
    batch_norm:BatchNormalization softmax:Softmax _softmax:Softmax log_softmax:LogSoftmax
    embedding:Gather index:Gather gather:GatherElements index_select:Gather slice:Slice
    select:Slice narrow:Slice split:Split split_with_sizes:Split chunk:Split
    gelu:Gelu gelu_:Gelu relu:Relu relu_:Relu silu:Swish silu_:Swish tanh:Tanh sigmoid:Sigmoid
    erf:Erf exp:Exp log:Log neg:Neg abs:Abs sqrt:Sqrt rsqrt:Sqrt cos:Cos sin:Sin pow:Pow
    reciprocal:Reciprocal clamp:Clip add:Add add_:Add sub:Sub rsub:Sub mul:Mul mul_:Mul div:Div
    maximum:Max minimum:Min eq:Equal ne:Equal lt:Less le:LessOrEqual gt:Greater ge:GreaterOrEqual
    logical_and:And logical_or:Or logical_not:Not bitwise_and:And bitwise_or:Or bitwise_not:Not
    __and__:And __or__:Or where:Where masked_fill:Where cumsum:CumSum tril:Trilu triu:Trilu
    mean:ReduceMean sum:ReduceSum amax:ReduceMax amin:ReduceMin argmax:ArgMax
    cat:Concat stack:Concat pad:Pad constant_pad_nd:Pad repeat:Tile clone:Identity to:Cast
    _to_copy:Cast view:Reshape reshape:Reshape _unsafe_view:Reshape flatten:Flatten
    unflatten:Reshape unsqueeze:Unsqueeze squeeze:Squeeze contiguous:Identity alias:Identity
    detach:Identity detach_:Identity dropout:Identity getitem:Identity transpose:Transpose
    permute:Transpose t:Transpose expand:Expand expand_as:Expand arange:Range
    full:ConstantOfShape ones:ConstantOfShape zeros:ConstantOfShape new_ones:ConstantOfShape
    new_zeros:ConstantOfShape full_like:ConstantOfShape scalar_tensor:Constant
"""
_ONNX: dict[str, str] = dict(pair.split(":") for pair in _WORDS.split())


def in_words_of_onnx(graph: NodeGraph) -> NodeGraph:
    """The graph with ONNX's operators, and inputs in their order."""
    return replace(graph, nodes=tuple(map(_node, graph.nodes)))


def _node(node: Node) -> Node:
    name = node.op.rpartition(".")[2]
    inputs = node.inputs
    if name == "addmm" and len(inputs) == 3:  # bias, A, B
        inputs = (inputs[1], inputs[2], inputs[0])
    return replace(node, op=_ONNX.get(name, node.op), inputs=inputs)
