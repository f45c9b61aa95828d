"""Words of Myelin's own beside names of nodes."""

import pytest
from resolve_graphs import run, told

NORM = (
    ("h/Add", "x y", "r"),
    ("norm/Pow", "r c", "s"),
    ("norm/ReduceMean", "s", "m"),
    ("norm/Sqrt", "m", "d"),
    ("norm/Reciprocal", "d", "i"),
    ("norm/Mul", "r i", "n"),
    ("fc/MatMul", "n w", "y2"),
)


def test_a_residual_with_the_square_of_the_next_norm_is_of_both_modules() -> None:
    found = run(told(*NORM), "h/Add+sr_pow", "norm/ReduceMean+norm/Sqrt", "norm/Mul", "fc/MatMul")
    assert found[0].nodes == ("h/Add", "norm/Pow")
    assert (found[0].modules, found[0].rule) == (("h", "norm"), "boundary")


@pytest.mark.parametrize("word", ["sr_div", "sr_div__mye33"])
def test_a_quotient_may_be_a_reciprocal(word: str) -> None:
    root = f"norm/ReduceMean+norm/Sqrt+{word}"
    found = run(told(*NORM), "h/Add", "norm/Pow", root, "norm/Mul", "fc/MatMul")
    assert "norm/Reciprocal" in found[2].nodes


def test_a_word_alone_names_no_layer() -> None:
    found = run(told(*NORM), "h/Add", "erf", "norm/ReduceMean", "norm/Mul", "fc/MatMul")
    assert found[1].rule == "elimination" and found[1].nodes == ("norm/Pow",)


def test_of_two_nodes_beside_it_none_is_meant() -> None:
    two = told(
        ("h/Add", "x y", "r"),
        ("a/Pow", "r c", "s"),
        ("b/Pow", "r c", "t"),
        ("o/Sub", "s t", "z"),
    )
    assert run(two, "h/Add+sr_pow", "o/Sub")[0].nodes == ("h/Add",)


def test_a_node_elsewhere_is_not_meant() -> None:
    far = told(
        ("h/Add", "x y", "r"),
        ("h/Relu", "r", "q"),
        ("a/Pow", "q c", "s"),
        ("o/Sub", "s c", "z"),
    )
    assert run(far, "h/Add+sr_pow", "h/Relu", "o/Sub")[0].nodes == ("h/Add",)


def test_between_two_parts_of_one_norm_it_is_a_step_of_that() -> None:
    g = told(
        ("h/Add", "x y", "r"),
        ("ln/LayerNormalization", "r w c", "n"),
        ("act/Div", "n c", "d"),
        ("o/MatMul", "d w", "z"),
    )
    steps = "ln/LayerNormalization_U0_mean+sr_div+ln/LayerNormalization_U0_finalCast"
    assert run(g, "h/Add", steps, "o/MatMul")[1].nodes == ("ln/LayerNormalization",)
    assert "act/Div" in run(g, "h/Add", steps + "+sr_div", "o/MatMul")[1].nodes


def test_in_a_softmax_it_is_a_step_of_that() -> None:
    g = told(
        ("attn/Add", "x c", "m"),
        ("attn/Softmax", "m", "p"),
        ("drop/Div", "p c", "d"),
        ("attn/MatMul", "d w", "z"),
    )
    found = run(g, "attn/Add+maxred+sub+exp__mye1+sum+sr_div", "attn/MatMul")
    assert found[0].nodes == ("attn/Add", "attn/Softmax")


def test_what_a_name_says_already_explains_no_word_twice() -> None:
    g = told(("h/Add", "x y", "r"), ("a/Div", "r c", "d"), ("b/Div", "d c", "e"))
    # One word, two quotients: the first that is found takes it.
    found = run(g, "h/Add+a/Div+sr_div")
    assert found[0].nodes == ("h/Add", "a/Div", "b/Div")
    assert run(g, "h/Add+a/Div")[0].nodes == ("h/Add", "a/Div")


def test_two_words_for_one_node_say_of_neither_which_it_is() -> None:
    found = run(told(*NORM), "h/Add+sr_pow+sr_pow", "norm/ReduceMean", "norm/Mul", "fc/MatMul")
    assert found[0].nodes == ("h/Add",)
