"""Kernels without a name of their own inside a ForeignNode, and fills."""

from dataclasses import replace

from resolve_graphs import nameless, ran, run, told

from layerline.core.nodes import NodeGraph
from layerline.core.resolve import RawLayer

G = told(
    ("a/Relu", "x", "r"),
    ("norm/ReduceMean", "r", "m"),
    ("norm/Sub", "r m", "n"),
    ("z/MatMul", "n w", "z"),
)
MEAN, FILL = "__myl_bb0_5_Mea", "__myl_bb0_4_Mov"
REST = ("norm/Sub", "z/MatMul")


def test_one_candidate_that_the_kernel_names_is_an_answer() -> None:
    found = run(G, "a/Relu", nameless(MEAN), *REST)
    assert (found[1].nodes, found[1].rule) == (("norm/ReduceMean",), "elimination")


def test_one_candidate_that_it_does_not_name_is_none() -> None:
    for kernel in ("__myl_bb0_5_Sum", "__myl_bb0_5_MulMea", "mha1", "__myl_bb0_5_Div"):
        found = run(G, "a/Relu", nameless(kernel), *REST)
        assert found[1].rule == "unresolved"
        assert "without a name" in found[1].why


def test_two_candidates_are_none() -> None:
    g = told(
        ("a/Relu", "x", "r"),
        ("norm/ReduceMean", "r", "m"),
        ("b/ReduceMean", "r", "k"),
        ("norm/Sub", "k m", "n"),
        ("z/MatMul", "n w", "z"),
    )
    assert run(g, "a/Relu", nameless(MEAN), *REST)[1].rule == "unresolved"


def test_it_is_never_given_the_whole_region() -> None:
    """The name is the region's; a layer that is the whole region still gets its nodes."""
    part = replace(nameless("mha1"), name="{ForeignNode[a/Relu...z/MatMul]}")
    assert run(G, part)[0].rule == "unresolved"
    whole = run(G, replace(part, nameless=False))[0]
    assert whole.rule == "boundary" and len(whole.nodes) == 4


def filled(g: NodeGraph = G, *layers: RawLayer | str) -> list[tuple[str, ...]]:
    return [r.modules for r in run(g, *(layers or ("a/Relu", FILLS, MEANS, *REST)))]


FILLS = nameless(FILL, (1, 1, 1))
MEANS = ran("norm/ReduceMean", MEAN)


def test_a_fill_of_one_block_belongs_to_the_reduction_that_follows() -> None:
    found = run(G, "a/Relu", FILLS, MEANS, *REST)
    assert (found[1].nodes, found[1].rule) == (("norm/ReduceMean",), "carrier")
    assert found[1].kind == "movement"


def test_a_move_of_more_blocks_or_of_unknown_size_is_no_fill() -> None:
    assert filled(G, "a/Relu", nameless(FILL, (2, 1, 1)), MEANS, *REST)[1] == ()
    assert filled(G, "a/Relu", nameless(FILL), MEANS, *REST)[1] == ()


def test_one_run_that_does_not_precede_a_reduction_is_an_exception() -> None:
    assert filled()[1] == ("norm",)
    assert filled(G, "a/Relu", FILLS, MEANS, "norm/Sub", FILLS, "z/MatMul")[1] == ()
    assert filled(G, "a/Relu", FILLS, MEANS, *REST, FILLS)[1] == ()


def test_of_two_reductions_in_the_layer_none_is_meant() -> None:
    g = told(
        ("a/Relu", "x", "r"),
        ("b/ReduceMean", "r", "m"),
        ("c/ReduceMean", "r", "k"),
        ("z/Sub", "k m", "n"),
    )
    both = ran("b/ReduceMean+c/ReduceMean", MEAN)
    assert filled(g, "a/Relu", FILLS, both, "z/Sub")[1] == ()


def test_a_copy_or_a_fill_by_the_driver_has_no_kernel_and_stays_unresolved() -> None:
    found = run(G, "a/Relu", RawLayer("{ForeignNode[a/Relu...z/MatMul]}", nameless=True), *REST)
    assert (found[1].rule, found[1].kind) == ("unresolved", "movement")
