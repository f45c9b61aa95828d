"""Operations in the names of Myelin's kernels."""

from resolve_graphs import ran, run, told

from layerline.core.resolve import Kernel, RawLayer
from layerline.core.resolve.kernel_tokens import only_moves, tokens

G = told(
    ("h/Add", "x y", "r"),
    ("norm/Mul", "r r", "s"),
    ("norm/ReduceMean", "s", "m"),
    ("norm/Sub", "r m", "n"),
    ("fc/MatMul", "n w", "z"),
)
REST = ("norm/Sub", "fc/MatMul")


def test_the_tokens_of_a_kernel() -> None:
    assert tokens(Kernel("__myl_bb0_17_AddMulMea")) == ("Add", "Mul", "Mea")
    for other in ("mha1", "sm80_xmma_gemm_f16", "x__myl_bb0_1_Add", "__myl_bb0_1_Add_2"):
        assert tokens(Kernel(other)) == ()
    assert only_moves([Kernel("__myl_bb0_1_MovResTra")]) and not only_moves([])
    assert not only_moves([Kernel("__myl_bb0_1_MovNeg")]) and not only_moves([Kernel("mha1")])


def test_a_mean_that_no_node_of_the_layer_is_lies_beside_them() -> None:
    found = run(G, ran("h/Add+norm/Mul", "__myl_bb0_3_AddMulMea"), *REST)
    assert found[0].nodes == ("h/Add", "norm/Mul", "norm/ReduceMean")
    assert found[0].modules == ("h", "norm") and found[0].rule == "boundary"


def test_without_the_token_or_with_one_that_is_explained_nothing_is_added() -> None:
    assert run(G, ran("h/Add+norm/Mul", "__myl_bb0_3_AddMul"), *REST)[0].modules == ("h", "norm")
    found = run(G, ran("h/Add+norm/Mul", "__myl_bb0_3_AddMul"), *REST)
    assert "norm/ReduceMean" not in found[0].nodes
    two = told(*[(n.name, " ".join(n.inputs), " ".join(n.outputs)) for n in G.nodes[:3]],
               ("o/ReduceMean", "m", "n"), ("fc/MatMul", "n w", "z"))  # fmt: skip
    known = run(two, ran("h/Add+norm/Mul+norm/ReduceMean", "__myl_bb0_3_AddMulMea"), "fc/MatMul")
    assert "o/ReduceMean" not in known[0].nodes


def test_of_two_means_beside_it_none_is_meant() -> None:
    g = told(
        ("h/Add", "x y", "r"),
        ("a/ReduceMean", "r", "m"),
        ("b/ReduceMean", "r", "n"),
        ("o/Sub", "m n", "z"),
    )
    assert run(g, ran("h/Add", "__myl_bb0_3_AddMea"), "o/Sub")[0].nodes == ("h/Add",)


def test_a_norm_explains_its_own_means_and_a_softmax_its_sum() -> None:
    g = told(
        ("ln/LayerNormalization", "x w c", "n"),
        ("pool/ReduceMean", "n", "m"),
        ("o/MatMul", "m w", "z"),
    )
    found = run(g, ran("ln/LayerNormalization", "__myl_bb0_1_CasMeaSubMulMea"), "o/MatMul")
    assert found[0].nodes == ("ln/LayerNormalization",)
    found = run(g, ran("ln/LayerNormalization", "__myl_bb0_1_MulMeaAddSqrDivMul"), "o/MatMul")
    assert found[0].nodes == ("ln/LayerNormalization",)
    g = told(
        ("attn/Add", "x c", "m"),
        ("attn/Softmax", "m", "p"),
        ("pool/ReduceSum", "p", "s"),
        ("o/MatMul", "s w", "z"),
    )
    name = "attn/Add+maxred+sub+exp__mye1+sum+sr_div"
    found = run(g, ran(name, "__myl_bb0_1_AddMaxSubExpSumDiv"), "o/MatMul")
    assert found[0].nodes == ("attn/Add", "attn/Softmax")


def test_of_several_kernels_it_is_not_known_which_ran_the_nodes() -> None:
    kernels = (Kernel("__myl_bb0_3_AddMul"), Kernel("__myl_bb0_4_Mea"))
    found = run(G, RawLayer("h/Add+norm/Mul", kernels=kernels), *REST)
    assert "norm/ReduceMean" not in found[0].nodes
