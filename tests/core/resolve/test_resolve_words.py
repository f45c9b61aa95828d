"""What a layer's own words and its kernels' names say that no node's name says."""

import resolve_graphs

from layerline.core.nodes import NodeGraph
from layerline.core.resolve import Kernel, RawLayer, Resolution, node_status, resolve

EPILOGUE = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x128x64_gelu_beta0_execute_kernel_trt"
PLAIN = "sm90_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64_beta0_execute_kernel_trt"
STEPS = "maxred+sub+exp__mye164443+sum+sr_div+sr_div"


def graph(*nodes: tuple[str, str, str]) -> NodeGraph:
    """("module/Op", "what it reads", "what it writes") each; w and c are constants."""
    told = ((name, reads.split(), [writes]) for name, reads, writes in nodes)
    return resolve_graphs.graph(*told, outputs=[nodes[-1][2]], weights=("w", "c"))


def run(g: NodeGraph, *layers: RawLayer | str) -> list[Resolution]:
    return resolve([x if isinstance(x, RawLayer) else RawLayer(x) for x in layers], g)


ATTENTION = graph(
    ("attn/MatMul", "x w", "scores"),
    ("attn/Add", "scores c", "masked"),
    ("attn/Softmax", "masked", "probabilities"),
    ("attn/MatMul_1", "probabilities w", "y"),
)


def test_a_softmax_taken_apart_belongs_to_the_layer_that_spells_its_steps() -> None:
    found = run(ATTENTION, "attn/MatMul", f"attn/Add+{STEPS}", "attn/MatMul_1")
    assert [r.nodes for r in found] == [
        ("attn/MatMul",),
        ("attn/Add", "attn/Softmax"),
        ("attn/MatMul_1",),
    ]
    assert found[1].rule == "boundary" and found[1].node_rules == ("name", "boundary")
    assert node_status(found, ATTENTION)["attn/Softmax"].status == "fused"


def test_other_steps_are_no_softmax() -> None:
    found = run(ATTENTION, "attn/MatMul", "attn/Add+sub+sum+sr_div", "attn/MatMul_1")
    assert found[1].nodes == ("attn/Add",)
    assert node_status(found, ATTENTION)["attn/Softmax"].status == "missing"


def test_where_two_softmaxes_can_be_meant_none_is() -> None:
    two = graph(
        ("attn/Add", "x c", "masked"),
        ("attn/Softmax", "masked", "a"),
        ("other/Softmax", "masked", "b"),
        ("attn/MatMul", "a b", "y"),
    )
    found = run(two, f"attn/Add+{STEPS}", "attn/MatMul")
    assert found[0].nodes == ("attn/Add",)


def test_a_softmax_elsewhere_is_not_meant() -> None:
    far = graph(
        ("attn/Add", "x c", "masked"),
        ("attn/MatMul", "masked w", "scores"),
        ("attn/Softmax", "scores", "probabilities"),
        ("attn/MatMul_1", "probabilities w", "y"),
    )
    found = run(far, f"attn/Add+{STEPS}", "attn/MatMul", "attn/MatMul_1")
    assert found[0].nodes == ("attn/Add",)


MLP = graph(
    ("mlp.fc/Gemm", "x w", "h"),
    ("mlp.fc/Reshape", "h c", "r"),
    ("mlp.act/Mul", "r c", "half"),
    ("mlp.act/Tanh", "r", "t"),
    ("mlp.act/Mul_1", "half t", "g"),
    ("mlp.proj/Gemm", "g w", "p"),
    ("mlp/Add", "p x", "y"),
)


def mlp(kernel: str, *between: str) -> list[Resolution]:
    first = RawLayer("mlp_fc/Gemm_matrix_multiply", kernels=(Kernel(kernel),))
    return run(MLP, first, *between, "mlp_proj/Gemm_matrix_multiply", "mlp/Add")


def test_a_product_whose_kernel_applies_the_gelu_is_shared_with_its_module() -> None:
    first, second, _ = mlp(EPILOGUE)
    assert first.modules == ("mlp.fc", "mlp.act")
    assert first.nodes == ("mlp.fc/Gemm", "mlp.act/Mul", "mlp.act/Tanh", "mlp.act/Mul_1")
    assert first.rule == "boundary" and "GELU" in first.why
    assert second.modules == ("mlp.proj",)


def test_a_product_whose_kernel_says_nothing_is_its_own_modules() -> None:
    found = mlp(PLAIN)
    assert found[0].modules == ("mlp.fc",)
    assert node_status(found, MLP)["mlp.act/Tanh"].status == "missing"


def test_a_gelu_with_a_layer_of_its_own_stays_there() -> None:
    first, gelu, _, _ = mlp(EPILOGUE, "gelu_mul+gelu_tanh+gelu_mul_2")
    assert first.modules == ("mlp.fc",)
    assert gelu.modules == ("mlp.act",)


def test_a_gelu_that_two_layers_feed_is_not_one_products() -> None:
    two = graph(
        ("fc/Gemm", "x w", "h"),
        ("gate/Gemm", "x w", "g"),
        ("act/Mul", "h g", "m"),
        ("act/Tanh", "m", "t"),
        ("proj/Gemm", "t w", "y"),
    )
    layers = (
        RawLayer("fc/Gemm", kernels=(Kernel(PLAIN),)),
        RawLayer("gate/Gemm", kernels=(Kernel(EPILOGUE),)),
        RawLayer("proj/Gemm"),
    )
    assert [r.modules for r in run(two, *layers)] == [("fc",), ("gate",), ("proj",)]
