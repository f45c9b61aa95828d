"""Sums and activations that only a product's epilogue can have run."""

from dataclasses import replace

import pytest
from resolve_graphs import ran, run, told

from layerline.core.resolve import Kernel, RawLayer

GEMM = "sm80_xmma_gemm_f16f16_f16f16_f16_tn_n_tilesize64x64x64_execute_kernel_trt"
MLP = told(
    ("ln/LayerNormalization", "x w c", "n"),
    ("fc1/MatMul", "n w", "a"),
    ("fc1/Add", "a c", "b"),
    ("act/Relu", "b", "r"),
    ("fc2/MatMul", "r w", "y"),
    ("h/Add", "y x", "s"),
    ("h/Sub", "s c", "z"),
)
LN, FC1, FC2 = "ln/LayerNormalization", ran("fc1/MatMul", GEMM), ran("fc2/MatMul", GEMM)
SUB = ran("h/Sub", "__myl_bb0_2_Sub")


def test_a_relu_between_two_products_ran_in_the_first() -> None:
    found = run(MLP, LN, FC1, FC2, "h/Add+h/Sub")
    assert found[1].nodes == ("fc1/MatMul", "fc1/Add", "act/Relu")
    assert (found[1].modules, found[1].rule) == (("fc1", "act"), "boundary")


def test_a_sum_before_a_kernel_that_lists_all_its_operations_ran_in_the_product() -> None:
    found = run(MLP, LN, FC1, FC2, SUB)
    assert found[2].modules == ("fc2", "h") and found[3].nodes == ("h/Sub",)


@pytest.mark.parametrize("kernel", ["__myl_bb0_2_AddSub", "mha1", "copyVectorizedKernel"])
def test_what_follows_may_have_run_it(kernel: str) -> None:
    assert run(MLP, LN, FC1, FC2, ran("h/Sub", kernel))[2].modules == ("fc2",)


def test_an_unresolved_layer_between_may_have_run_it() -> None:
    for between in ("kernel__mye1", ran("slice__mye1", "__myl_bb0_2_Sli")):
        assert "act" not in run(MLP, LN, FC1, between, FC2, SUB)[1].modules


def test_layers_without_kernels_say_nothing() -> None:
    assert run(MLP, LN, "fc1/MatMul", FC2, SUB)[1].modules == ("fc1",)
    assert run(MLP, LN, FC1, "fc2/MatMul", SUB)[1].modules == ("fc1",)


def test_where_not_all_layers_are_listed_others_may_have_run_it() -> None:
    assert run(MLP, LN, FC1, FC2, SUB, whole=False)[1].modules == ("fc1",)


def test_of_a_product_split_along_k_only_the_last_kernel_applies_it() -> None:
    split = RawLayer("fc1/MatMul", kernels=(Kernel(GEMM), Kernel(GEMM + "_splitK")))
    assert run(MLP, LN, split, FC2, SUB)[1].modules == ("fc1",)


def test_an_operator_that_products_do_not_apply_is_not_theirs() -> None:
    nodes = [replace(n, op="Tanh") if n.op == "Relu" else n for n in MLP.nodes]
    found = run(replace(MLP, nodes=tuple(nodes)), LN, FC1, FC2, SUB)
    assert found[1].modules == ("fc1",)
    behind = [replace(n, op="Tanh") if n.name == "fc1/Add" else n for n in MLP.nodes]
    found = run(replace(MLP, nodes=tuple(behind)), LN, FC1, FC2, SUB)
    assert found[1].modules == ("fc1",)
