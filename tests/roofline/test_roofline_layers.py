"""Floors of layers as GPT-2 has them, worked out by hand from its sizes: batch 1, 512 tokens."""

from __future__ import annotations

import pytest

from layerline.analysis.roofline.devices import Device
from layerline.analysis.roofline.floor import Floor, floor, time_ns
from layerline.core.nodes import Node, NodeGraph

T, D, H, HEAD = 512, 768, 12, 64


def graph(*nodes: Node, outputs: tuple[str, ...] = ()) -> NodeGraph:
    return NodeGraph(nodes, outputs=outputs)


def least(names: list[str], of: NodeGraph, shapes: dict[str, tuple[int, ...]], dtype: str) -> Floor:
    found = floor(names, of, {name: (dtype, dims) for name, dims in shapes.items()})
    assert found is not None
    return found


C_FC = Node("mlp.c_fc/Gemm", "Gemm", "mlp.c_fc", ("x", "w", "b"), ("h",))
C_FC_SHAPES = {"x": (T, D), "w": (D, 4 * D), "b": (4 * D,), "h": (T, 4 * D)}


@pytest.mark.parametrize(("dtype", "moved"), [("float16", 8_656_896), ("float32", 17_313_792)])
def test_c_fc_of_gpt2(dtype: str, moved: int) -> None:
    """393,216 + 2,359,296 + 3,072 + 1,572,864 elements; a multiply-add is two."""
    found = least(["mlp.c_fc/Gemm"], graph(C_FC, outputs=("h",)), C_FC_SHAPES, dtype)
    assert found.matmul == 2 * 512 * 768 * 3072 == 2_415_919_104
    assert found.flop == 2_415_919_104 + 1_572_864  # the bias
    assert found.bytes == moved
    assert found.dtype == dtype


ATTENTION = (
    Node("a/MatMul", "MatMul", "a", ("q", "k"), ("s",)),
    Node("a/Mul", "Mul", "a", ("s", "scale"), ("t",)),
    Node("a/Add", "Add", "a", ("t", "mask"), ("u",)),
    Node("a/Softmax", "Softmax", "a", ("u",), ("p",)),
    Node("a/MatMul_1", "MatMul", "a", ("p", "v"), ("y",)),
)
SCORES = (1, H, T, T)
ATTENTION_SHAPES = {
    **dict.fromkeys(("q", "v", "y"), (1, H, T, HEAD)),
    "k": (1, H, HEAD, T),
    "scale": (),
    "mask": (1, 1, T, T),
    **dict.fromkeys(("s", "t", "u", "p"), SCORES),
}


def test_attention_in_one_layer_does_not_move_its_scores() -> None:
    """12 heads of 512 x 512 scores are 3,145,728: products 2 * 64 each way, then 1 + 1 + 5."""
    names = [n.name for n in ATTENTION]
    found = least(names, graph(*ATTENTION, outputs=("y",)), ATTENTION_SHAPES, "float16")
    assert found.matmul == 2 * (2 * 64 * 3_145_728)
    assert found.flop == found.matmul + 7 * 3_145_728
    # q, k, v and y of 393,216 each, the mask of 262,144 and one scale, two bytes each.
    assert found.bytes == 2 * (4 * 393_216 + 262_144 + 1)


def test_attention_as_three_layers_moves_them_four_times() -> None:
    whole = graph(*ATTENTION, outputs=("y",))
    parts = (["a/MatMul"], ["a/Mul", "a/Add", "a/Softmax"], ["a/MatMul_1"])
    found = [least(list(p), whole, ATTENTION_SHAPES, "float16") for p in parts]
    crossing = 4 * 3_145_728  # written by the first, read and written, read by the last
    assert sum(f.bytes or 0 for f in found) == 2 * (4 * 393_216 + 262_144 + 1 + crossing)


def test_the_attention_operator_counts_as_its_parts() -> None:
    fused = Node("a/Attention", "Attention", "a", ("q", "k", "v"), ("y",))
    shapes = dict.fromkeys(("q", "k", "v", "y"), (1, H, T, HEAD))
    found = least(["a/Attention"], graph(fused, outputs=("y",)), shapes, "float16")
    assert found.matmul == 2 * (2 * 64 * 3_145_728)
    assert found.flop == found.matmul + 5 * 3_145_728
    assert found.bytes == 2 * 4 * 393_216
    # As (batch, tokens, all heads' sizes) the products are known, the heads are not.
    flat = least(
        ["a/Attention"], graph(fused), dict.fromkeys(("q", "k", "v", "y"), (1, T, D)), "float16"
    )
    assert (flat.matmul, flat.flop) == (found.matmul, None)


def test_a_convolution_by_hand() -> None:
    """3 channels 224 x 224 to 64 channels 112 x 112 by 7 x 7: ResNet's first, 236 million FLOP."""
    node = Node("c/Conv", "Conv", "c", ("x", "w", "b"), ("y",))
    shapes = {"x": (1, 3, 224, 224), "w": (64, 3, 7, 7), "b": (64,), "y": (1, 64, 112, 112)}
    found = least(["c/Conv"], graph(node, outputs=("y",)), shapes, "float32")
    assert found.matmul == 2 * 802_816 * 147 == 236_027_904
    assert found.flop == 236_027_904 + 802_816
    assert found.bytes == 4 * (150_528 + 9_408 + 64 + 802_816)


GELU = Node("act/Gelu", "Gelu", "act", ("h",), ("g",))


def test_a_fused_layer_does_not_move_what_only_it_reads() -> None:
    shapes = C_FC_SHAPES | {"g": (T, 4 * D)}
    names = ["mlp.c_fc/Gemm", "act/Gelu"]
    found = least(names, graph(C_FC, GELU, outputs=("g",)), shapes, "float16")
    assert found.bytes == 8_656_896  # h is inside, g has its size
    assert found.flop == 2_415_919_104 + 2 * 1_572_864


def test_a_view_that_no_layer_runs_does_not_bring_an_inner_tensor_outside() -> None:
    """Gemm -> Reshape (nobody's) -> Gelu in one layer: h never leaves it."""
    view = Node("mlp/Reshape", "Reshape", "mlp", ("h", "shape"), ("hv",))
    act = Node("act/Gelu", "Gelu", "act", ("hv",), ("g",))
    shapes = C_FC_SHAPES | {"hv": (1, T, 4 * D), "g": (1, T, 4 * D)}
    whole = graph(C_FC, view, act, outputs=("g",))
    assert least(["mlp.c_fc/Gemm", "act/Gelu"], whole, shapes, "float16").bytes == 8_656_896


def test_a_tensor_and_a_view_of_it_are_read_once() -> None:
    view = Node("Reshape", "Reshape", "m", ("x", "shape"), ("xv",))
    add = Node("Add", "Add", "m", ("x", "xv"), ("y",))
    shapes = dict.fromkeys(("x", "xv", "y"), (T, D))
    found = least(["Add"], graph(view, add, outputs=("y",)), shapes, "float16")
    assert found.bytes == 2 * 2 * T * D


def test_three_layers_share_one_split_and_each_moves_its_third() -> None:
    """Queries, keys and values: each layer turns its third of c_attn's output round."""
    split = Node("a/Split", "Split", "a", ("qkv",), ("q", "k", "v"))
    turn = [Node(f"a/Transpose_{t}", "Transpose", "a", (t,), (f"{t}t",)) for t in "qkv"]
    use = [Node(f"a/Relu_{t}", "Relu", "a", (f"{t}t",), (f"{t}y",)) for t in "qkv"]
    third = (1, T, D)
    shapes = {"qkv": (1, T, 3 * D)} | {f"{t}{s}": third for t in "qkv" for s in ("", "t", "y")}
    whole = graph(split, *turn, *use, outputs=("qy", "ky", "vy"))
    for node in turn:
        found = least(["a/Split", node.name], whole, shapes, "float16")
        assert (found.flop, found.bytes) == (0, 2 * 2 * T * D)
    alone = least(["a/Split"], whole, shapes, "float16")
    assert alone.bytes == 2 * 2 * 3 * T * D


def test_a_node_that_the_graph_lacks_leaves_no_floor() -> None:
    assert floor(["mlp.c_fc/Gemm", "gone"], graph(C_FC), {}) is None


def test_fp32_without_tf32_is_held_against_the_ordinary_cores() -> None:
    """1e9 FLOP: at 1e13 100 us, at TF32's 1e14 10 us."""
    card = Device("card", "made up", bandwidth=1e12, fp32=1e13, tensor={"tf32": 1e14})
    work = Floor(1e9, 1e6, 1e9, "float32")
    assert time_ns(work, card, tf32=False) == pytest.approx(100_000)
    assert time_ns(work, card) == pytest.approx(10_000)
