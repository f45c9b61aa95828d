"""Products that an engine runs as one: the evidence, and each case in which nothing is said."""

import pytest
from resolve_graphs import ran, run, told

from layerline.core.resolve import node_status

GEMM = "sm90_xmma_gemm_f16f16_f16f32_f32_nn_n_tilesize64x64x64_execute_kernel_trt"
SHAPES = {"q": (1, 128, 768), "k": (1, 128, 768), "v": (1, 128, 768)}
QKV = (
    ("ln/LayerNormalization", "x w c", "n"),
    ("attn.q/MatMul", "n w", "q0"),
    ("attn.q/Add", "q0 c", "q"),
    ("attn.k/MatMul", "n w", "k"),
    ("attn.v/MatMul", "n w", "v"),
    ("attn/MatMul", "q k", "s"),
    ("attn/Softmax", "s", "p"),
    ("attn/MatMul_1", "p v", "y"),
)
AROUND = ("ln/LayerNormalization", "attn/MatMul+attn/Softmax", "attn/MatMul_1")
ALL = ("attn.q", "attn.k", "attn.v")


def test_products_of_one_tensor_run_as_one_with_their_biases() -> None:
    found = run(told(*QKV), AROUND[0], "fc__mye15762", *AROUND[1:])
    assert found[1].nodes == ("attn.q/MatMul", "attn.q/Add", "attn.k/MatMul", "attn.v/MatMul")
    assert (found[1].modules, found[1].rule, found[1].kind) == (ALL, "boundary", "compute")
    assert "3 products that read n run as one" in found[1].why
    assert node_status(found, told(*QKV))["attn.k/MatMul"].status == "fused"


@pytest.mark.parametrize("word", ["fc", "fc__mye1", "gemm__mye3", "MatMul"])
def test_words_of_a_product_are_taken(word: str) -> None:
    assert run(told(*QKV), AROUND[0], word, *AROUND[1:])[1].modules == ALL


def test_another_word_is_no_product() -> None:
    found = run(told(*QKV), AROUND[0], "kernel__mye1", *AROUND[1:])
    assert found[1].rule == "unresolved"


def test_two_layers_in_the_window_are_not_told_apart() -> None:
    found = run(told(*QKV), AROUND[0], "fc__mye1", "fc__mye2", *AROUND[1:])
    assert [r.rule for r in found[1:3]] == ["unresolved"] * 2
    assert "2 layers could be the products that read n" in found[1].why


def test_another_group_that_fits_is_an_alternative() -> None:
    two = (*QKV[:-1], ("o.a/MatMul", "x w", "a"), ("o.b/MatMul", "x w", "b"), QKV[-1])
    g = told(*two, outputs=("y", "a", "b"))
    assert run(g, AROUND[0], "fc__mye1", *AROUND[1:])[1].rule == "unresolved"


def test_another_product_that_can_have_run_there_is_an_alternative() -> None:
    other = ("side/MatMul", "n n", "z")  # of two changing tensors: in no group
    g = told(*QKV[:-1], other, QKV[-1], outputs=("y", "z"))
    found = run(g, AROUND[0], "fc__mye1", *AROUND[1:])
    assert found[1].rule == "unresolved" and "side/MatMul can have run here" in found[1].why


def test_products_of_two_changing_tensors_are_no_group() -> None:
    g = told(*QKV[:4], ("attn.v/MatMul", "n n", "v"), *QKV[5:])
    assert run(g, AROUND[0], "fc__mye1", *AROUND[1:])[1].rule == "unresolved"


SIZED = told(*QKV, shapes=SHAPES | {"q0": (1, 128, 768)})


def test_a_grid_of_the_products_together_is_no_objection() -> None:
    # 2 tiles of 64 rows, 36 of 64 columns: 3 * 768 = 2304.
    for grid in ((36, 2, 1), (2, 36, 1), (2, 36, 4)):
        found = run(SIZED, AROUND[0], ran("fc__mye1", GEMM, grid), *AROUND[1:])
        assert found[1].modules == ALL


def test_a_grid_of_another_product_is_a_veto() -> None:
    found = run(SIZED, AROUND[0], ran("fc__mye1", GEMM, (24, 2, 1)), *AROUND[1:])
    assert found[1].rule == "unresolved" and "its grid is not that of" in found[1].why


def test_beside_another_unresolved_layer_the_grid_must_confirm() -> None:
    crowd = "kernel__mye7"
    silent = run(SIZED, AROUND[0], ran("fc__mye1", GEMM), crowd, *AROUND[1:])
    assert silent[1].rule == "unresolved" and "kernel__mye7 can be one of" in silent[1].why
    sure = run(SIZED, AROUND[0], ran("fc__mye1", GEMM, (36, 2, 1)), crowd, *AROUND[1:])
    assert sure[1].modules == ALL and sure[2].rule == "unresolved"


def test_a_product_that_ran_elsewhere_is_not_of_the_group() -> None:
    found = run(told(*QKV), AROUND[0], "attn.v/MatMul", "fc__mye1", *AROUND[1:])
    assert found[2].modules == ("attn.q", "attn.k")
