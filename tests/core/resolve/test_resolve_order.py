"""Layers of equal names: which of them is which, and where order says nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from resolve_graphs import graph, run

from layerline.core.resolve import Kernel, Network, NetworkLayer, RawLayer, Resolution, resolve
from layerline.core.resolve.order import is_gelu, pattern


def given(found: list[Resolution]) -> list[tuple[tuple[str, ...], str]]:
    return [(r.nodes, r.rule) for r in found]


@pytest.mark.parametrize(
    "name", ["gelu_mul+gelu_tanh", "GPT2Gelu", "gpt2_gelu_3", "FastGelu", "fast_gelu", "bias_gelu"]
)
def test_patterns_of_engines_for_gelu(name: str) -> None:
    assert is_gelu(name)


@pytest.mark.parametrize("name", ["", "gelu_mul+add", "regelu", "mul"])
def test_what_is_no_such_pattern(name: str) -> None:
    assert not is_gelu(name)


def test_running_numbers_make_no_difference_in_a_pattern_and_do_elsewhere() -> None:
    assert pattern("gelu_mul__mye12+gelu_tanh__mye13") == pattern("gelu_mul__mye1+gelu_tanh__mye2")
    assert pattern("op__mye1") != pattern("op__mye2")


# Two blocks in a row: product, GELU between constants, the sum of what came in.
def blocks(core: str = "Tanh", moves: str = "") -> list[tuple[str, list[str], list[str]]]:
    nodes: list[tuple[str, list[str], list[str]]] = []
    for k in range(2):
        came = f"t{k - 1}" if k else "x"
        nodes += [
            (f"h.{k}.fc/MatMul", [came, "w"], [f"f{k}"]),
            (f"h.{k}.act/Mul", [f"f{k}", "c"], [f"m{k}"]),
            *([(f"h.{k}.act/{moves}", [f"m{k}"], [f"v{k}"])] if moves else []),
            (f"h.{k}.act/{core}", [f"v{k}" if moves else f"m{k}"], [f"a{k}"]),
            (f"h.{k}/Add", [f"a{k}", came], [f"t{k}"]),
        ]
    return nodes


def gelus(text: str = "gelu_mul+gelu_tanh", sums: bool = True) -> list[RawLayer]:
    return [
        layer
        for k in range(2)
        for layer in (
            RawLayer(f"h.{k}.fc/MatMul"), RawLayer(text, occurrence=k),
            *([RawLayer(f"h.{k}/Add")] if sums else []),
        )
    ]  # fmt: skip


def test_patterns_are_regions_around_a_tanh_or_erf() -> None:
    for core in ("Tanh", "Erf"):
        found = resolve(gelus(), graph(*blocks(core)))
        assert given(found)[1::3] == [
            ((f"h.{k}.act/Mul", f"h.{k}.act/{core}"), "order") for k in range(2)
        ]
        assert found[1].why == "run 1 of 2 of this name, as in the graph"
    found = resolve(gelus(), graph(*blocks("Sigmoid")))
    assert [rule for _, rule in given(found)[1::3]] == ["unresolved"] * 2


def test_numbered_words_of_a_pattern_are_the_same_pattern() -> None:
    layers = gelus()
    layers[1] = RawLayer("gelu_mul__mye1+gelu_tanh__mye2")
    layers[4] = RawLayer("gelu_mul__mye3+gelu_tanh__mye4")
    found = resolve(layers, graph(*blocks()))
    assert [rule for _, rule in given(found)[1::3]] == ["order"] * 2


def test_a_move_within_a_pattern_is_looked_through_and_run_with_it() -> None:
    found = resolve(gelus(), graph(*blocks(moves="Cast")))
    assert found[1].nodes == ("h.0.act/Mul", "h.0.act/Cast", "h.0.act/Tanh")
    assert found[4].nodes == ("h.1.act/Mul", "h.1.act/Cast", "h.1.act/Tanh")


def test_what_another_module_applies_to_it_is_not_the_patterns() -> None:
    g = graph(
        ("a/MatMul", ["x", "w"], ["f0"]), ("a.act/Mul", ["f0", "c"], ["m0"]),
        ("a.act/Tanh", ["m0"], ["a0"]), ("a/Sqrt", ["a0"], ["t0"]),
        ("b/MatMul", ["t0", "w"], ["f1"]), ("b.act/Mul", ["f1", "c"], ["m1"]),
        ("b.act/Tanh", ["m1"], ["a1"]), ("b/Sqrt", ["a1"], ["t1"]),
        ("o/MatMul", ["t1", "w"], ["o"]),
    )  # fmt: skip
    layers = [RawLayer("a/MatMul"), gelus()[1], RawLayer("b/MatMul"), gelus()[4]]
    found = resolve([*layers, RawLayer("o/MatMul")], g, whole=False)
    assert [r.nodes for r in found[1:4:2]] == [
        ("a.act/Mul", "a.act/Tanh"), ("b.act/Mul", "b.act/Tanh")
    ]  # fmt: skip


def test_a_single_pattern_needs_no_second() -> None:
    g = graph(*blocks()[:4])
    (r,) = (r for r in resolve(gelus()[:3], g) if r.name.startswith("gelu"))
    assert (r.nodes, r.rule) == (("h.0.act/Mul", "h.0.act/Tanh"), "order")


CHAIN = graph(
    ("a/MatMul", ["x", "w"], ["p"]), ("a/Relu", ["p"], ["q"]), ("b/MatMul", ["q", "w"], ["r"]),
    ("b/Relu", ["r"], ["s"]), ("c/MatMul", ["s", "w"], ["t"]),
)  # fmt: skip


def test_equal_names_in_a_row_are_the_nodes_in_a_row() -> None:
    layers = ["a/MatMul", "act", "b/MatMul", RawLayer("act", occurrence=1), "c/MatMul"]
    found = run(CHAIN, *layers)
    assert [r.nodes for r in (found[1], found[3])] == [("a/Relu",), ("b/Relu",)]


def test_a_layer_that_cannot_have_run_there_makes_order_say_nothing() -> None:
    """Both run behind the second product: the first of them is not before what reads it."""
    layers = ["a/MatMul", "b/MatMul", "act", RawLayer("act", occurrence=1), "c/MatMul"]
    assert all(r.rule != "order" for r in run(CHAIN, *layers, whole=False))


def test_a_kernel_of_another_kind_makes_order_say_nothing() -> None:
    layers = [
        RawLayer("a/MatMul"), RawLayer("act", kernels=(Kernel("__myl_bb0_3_MovTra"),)),
        RawLayer("b/MatMul"), RawLayer("act", occurrence=1), RawLayer("c/MatMul"),
    ]  # fmt: skip
    plain = [replace(layer, kernels=()) for layer in layers]
    assert resolve(plain, CHAIN)[1].nodes == ("a/Relu",)
    assert all(r.rule != "order" for r in resolve(layers, CHAIN, whole=False))


def test_different_names_are_not_told_apart_by_order() -> None:
    found = run(CHAIN, "a/MatMul", "u", "b/MatMul", "v", "c/MatMul")
    assert all(r.rule != "order" for r in found)


def test_names_of_which_order_says_nothing_do_not_end_the_others() -> None:
    """One that is alone, two of which nothing can be, two whose kernels are of another kind."""
    lone: list[RawLayer | str] = ["alone"]
    twice: list[RawLayer | str] = ["none", RawLayer("none", occurrence=1)]
    acts = ["a/MatMul", "act", "b/MatMul", RawLayer("act", occurrence=1), "c/MatMul"]
    for before in (lone, twice):
        found = run(CHAIN, *before, *acts, whole=False)[len(before) :]
        assert (found[1].nodes, found[1].rule) == (("a/Relu",), "order"), before
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("a/Tanh", ["p"], ["q"]), ("b/MatMul", ["q", "w"], ["r"]),
        ("b/Tanh", ["r"], ["s"]), ("c/MatMul", ["s", "w"], ["t"]), ("c/Relu", ["t"], ["u"]),
        ("d/MatMul", ["u", "w"], ["v"]), ("d/Relu", ["v"], ["y"]), ("e/MatMul", ["y", "w"], ["z"]),
    )  # fmt: skip
    exp = (Kernel("__myl_bb0_3_Exp"),)
    layers = [
        RawLayer("a/MatMul"), RawLayer("k", kernels=exp), RawLayer("b/MatMul"),
        RawLayer("k", kernels=exp, occurrence=1), RawLayer("c/MatMul"), RawLayer("act"),
        RawLayer("d/MatMul"), RawLayer("act", occurrence=1), RawLayer("e/MatMul"),
    ]  # fmt: skip
    rules = [r.rule for r in resolve(layers, g, whole=False)]
    assert rules[1] != "order" and rules[3] != "order" and rules[5] == rules[7] == "order"


def test_a_move_that_others_read_too_is_not_the_patterns() -> None:
    nodes = blocks(moves="Cast")
    nodes.append(("z/Sigmoid", ["v0"], ["z"]))
    found = resolve([*gelus(), RawLayer("z/Sigmoid")], graph(*nodes))
    assert found[1].nodes == ("h.0.act/Mul", "h.0.act/Tanh")


# --- by index

NORMS = graph(
    ("a/LayerNormalization", ["x", "w"], ["p"]), ("a/MatMul", ["p", "w"], ["q"]),
    ("b/LayerNormalization", ["q", "w"], ["r"]), ("b/MatMul", ["r", "w"], ["s"]),
)  # fmt: skip


def test_normalisations_by_ascending_index_say_which_they_are() -> None:
    names = [
        "(Unnamed Layer* 7) [Normalization]",
        "a/MatMul",
        "(Unnamed Layer* 12) [Normalization]",
    ]
    found = run(NORMS, *names, "b/MatMul")
    assert given(found)[::2] == [
        (("a/LayerNormalization",), "index"), (("b/LayerNormalization",), "index")
    ]  # fmt: skip
    assert found[0].why == "normalisation 1 of 2 by network index, as in the graph"
    assert found[2].why == "normalisation 2 of 2 by network index, as in the graph"
    # One too few, or of another kind: then the index says nothing.
    assert run(NORMS, *names[:2], "b/MatMul")[0].rule != "index"
    other = run(NORMS, names[0], "a/MatMul", "(Unnamed Layer* 12) [Shuffle]", "b/MatMul")
    assert all(r.rule != "index" for r in other)


def test_a_normalisation_with_a_name_is_not_counted() -> None:
    found = run(
        NORMS, "(Unnamed Layer* 7) [Normalization]", "a/MatMul", "b/LayerNormalization", "b/MatMul"
    )
    assert found[0].nodes == ("a/LayerNormalization",) and found[0].rule == "index"
    assert found[0].why == "normalisation 1 of 1 by network index, as in the graph"


def test_the_kind_of_an_unnamed_layer_may_be_said_once() -> None:
    """Without it the second mention does not take back what the first said."""
    found = run(
        NORMS, "(Unnamed Layer* 7) [Normalization]", "a/MatMul",
        "(Unnamed Layer* 12) [Normalization]", "b/MatMul + (Unnamed Layer* 12)",
    )  # fmt: skip
    assert (found[2].nodes, found[2].rule) == (("b/LayerNormalization",), "index")


def test_the_network_says_what_an_index_is_before_any_counting() -> None:
    network = Network({12: NetworkLayer(12, "made up", node="a/LayerNormalization")})
    layers = [RawLayer("(Unnamed Layer* 12) [Normalization]"), RawLayer("(Unnamed Layer* 13)")]
    first, second = resolve(layers, NORMS, network)
    assert (first.nodes, first.rule) == (("a/LayerNormalization",), "index")
    assert first.why == "network.json says what unnamed layer 12 is"
    assert second.rule == "unresolved"


def test_a_tanh_with_a_layer_of_its_own_is_no_pattern() -> None:
    nodes = [*blocks(), ("n/Tanh", ["t1"], ["n"])]
    found = resolve([*gelus(), RawLayer("n/Tanh")], graph(*nodes))
    assert [r.rule for r in found[1::3]] == ["order", "order"]
