"""Rotary copies (xpos), and the restraint of carriers and of views."""

from resolve_graphs import ran, run, told

from layerline.core.nodes import NodeGraph

MOVE = "__myl_bb0_46_Mov"


def rotary(*more: tuple[str, str, str], into: str = "r") -> NodeGraph:
    return told(
        ("attn/Neg", "x", "a"),
        ("attn/Concat", "a x", "r"),
        *more,
        ("attn/Mul", f"{into} c", "m"),
        ("o/MatMul", "m w", "z"),
    )


REST = ("attn/Mul", "o/MatMul")


def test_the_only_movement_not_yet_placed_is_the_copy() -> None:
    found = run(rotary(), "attn/Neg", ran("post_xpos__mye26516", MOVE), *REST)
    assert (found[1].nodes, found[1].rule) == (("attn/Concat",), "elimination")
    assert found[1].kind == "movement"


def test_several_movements_of_one_module_are_its_own() -> None:
    g = rotary(("attn/Transpose", "r", "t"), into="t")
    found = run(g, "attn/Neg", ran("xpos__mye1", MOVE), *REST)
    assert found[1].modules == ("attn",) and found[1].rule == "carrier"
    assert "attn/Concat or attn/Transpose" in found[1].why


def test_movements_of_two_modules_are_none() -> None:
    g = rotary(("other/Transpose", "r", "t"), into="t")
    found = run(g, "attn/Neg", ran("xpos__mye1", MOVE), *REST)
    assert found[1].rule == "unresolved"


def test_without_a_movement_it_is_not_given_to_the_one_result_that_is_still_read() -> None:
    g = told(("q/MatMul", "x w", "a"), ("attn/Mul", "a c", "m"), ("o/MatMul", "m w", "z"))
    found = run(g, "q/MatMul", ran("xpos__mye1", MOVE), *REST)
    assert found[1].rule == "unresolved" and found[1].kind == "movement"
    # A slice, whose word is known, is.
    assert run(g, "q/MatMul", "slice__mye1", *REST)[1].modules == ("q",)


def test_views_are_no_copies() -> None:
    g = rotary(("other/Reshape", "r", "t"), into="t")
    found = run(g, "attn/Neg", ran("xpos__mye1", MOVE), *REST)
    assert found[1].nodes == ("attn/Concat",)


def test_a_copy_that_computes_too_is_no_copy() -> None:
    found = run(rotary(), "attn/Neg", ran("xpos__mye1", "__myl_bb0_4_MovNeg"), *REST)
    assert found[1].rule != "carrier" and "attn/Concat" not in found[1].nodes


def test_two_copies_of_one_movement_are_not_told_apart() -> None:
    copies = (ran("xpos__mye1", MOVE), ran("xpos__mye2", MOVE))
    found = run(rotary(), "attn/Neg", *copies, *REST)
    assert all(r.rule in ("unresolved", "carrier") for r in found[1:3])


def test_a_move_after_an_unresolved_layer_has_no_carrier() -> None:
    """What is moved may be what that layer made."""
    g = told(
        ("a/MatMul", "x w", "a"),
        ("p/Sigmoid", "a", "b"),
        ("p/Tanh", "b", "d"),
        ("o/MatMul", "d w", "z"),
    )
    found = run(g, "a/MatMul", "kernel__mye1", "slice__mye2", "o/MatMul")
    assert [r.rule for r in found[1:3]] == ["unresolved"] * 2
    assert "a layer before it is unresolved" in found[2].why
    sure = run(g, "a/MatMul", "slice__mye2", "kernel__mye1", "o/MatMul")
    assert sure[1].modules == ("a",)


def test_a_view_makes_no_module_beside_work_that_was_found_otherwise() -> None:
    g = told(
        ("a/MatMul", "x w", "a"),
        ("v/Reshape", "a c", "b"),
        ("attn/Add", "b c", "m"),
        ("attn/Softmax", "m", "p"),
        ("o/MatMul", "p w", "z"),
    )
    name = "v/Reshape+attn/Add+maxred+sub+exp__mye1+sum+sr_div"
    found = run(g, "a/MatMul", name, "o/MatMul")
    assert found[1].modules == ("attn",)
    # Beside names alone it stays: the layer says that it is of both.
    assert run(g, "a/MatMul", "v/Reshape+attn/Add", "attn/Softmax", "o/MatMul")[1].modules == (
        "v", "attn",
    )  # fmt: skip
