"""Whom a layer belongs to that only moves data: each way to tell, and where nothing tells."""

from __future__ import annotations

from collections.abc import Sequence

from resolve_graphs import graph, run

from layerline.core.resolve import RawLayer, Resolution

UNKNOWN = "no node of the model has this name; it moves data, but not whose"


def moved(
    name: str, reads: Sequence[str] | None = None, writes: Sequence[str] | None = None
) -> RawLayer:
    return RawLayer(
        name, inputs=None if reads is None else tuple(reads),
        outputs=None if writes is None else tuple(writes),
    )  # fmt: skip


def given(r: Resolution) -> tuple[tuple[str, ...], str]:
    return r.nodes, r.rule


# Two branches side by side, which meet again.
BRANCHES = graph(
    ("a/MatMul", ["x", "w"], ["p"]), ("b/MatMul", ["x", "w"], ["q"]),
    ("b/Reshape", ["q"], ["q2"]), ("c/Relu", ["q2"], ["r"]), ("d/Add", ["p", "r"], ["s"]),
)  # fmt: skip
PAIR = graph(
    ("a/MatMul", ["x", "w"], ["p"]), ("c/Relu", ["x"], ["q"]), ("b/Add", ["p", "q"], ["r"])
)


def test_a_reformat_of_an_input_is_the_producers_of_that_input() -> None:
    added = moved("b/Add", ["p", "q"], ["r"])
    for index, producer in enumerate(("a/MatMul", "c/Relu")):
        name = f"Reformatting CopyNode for Input Tensor {index} to b/Add"
        r = run(PAIR, "a/MatMul", "c/Relu", name, added)[2]
        assert given(r) == ((producer,), "carrier")
        assert r.why == f"moves what {producer} made"
    none = run(
        PAIR, "a/MatMul", "c/Relu", "Reformatting CopyNode for Input Tensor 2 to b/Add", added
    )
    assert given(none[2]) == ((), "unresolved")


def test_a_reformat_for_a_layer_known_by_other_than_its_name_is_found_by_what_it_runs() -> None:
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("b/Relu", ["p"], ["q"]), ("c/MatMul", ["q", "w"], ["r"])
    )
    name = "Reformatting CopyNode for Output Tensor 0 to op__mye7"
    found = run(g, "a/MatMul", "op__mye7", name, "c/MatMul")
    assert given(found[1]) == (("b/Relu",), "elimination")
    assert given(found[2]) == (("b/Relu",), "carrier")


def test_of_a_moved_input_the_first_reader_is_the_carrier() -> None:
    """Also through more moves; another that reads it later has its own."""
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("b/Relu", ["x"], ["q"]), ("d/Add", ["p", "q"], ["s"])
    )
    first, second = moved("a/MatMul", ["y", "w"], ["p"]), moved("b/Relu", ["y"], ["q"])
    r = run(g, moved("cast_1", ["x"], ["y"]), first, second, "d/Add")[0]
    assert given(r) == (("a/MatMul",), "carrier")
    assert r.why == "moves an input or a constant for a/MatMul"
    chain = run(
        g, moved("cast_1", ["x"], ["y0"]), moved("copy_2", ["y0"], ["y"]), first, second, "d/Add"
    )
    assert [given(r) for r in chain[:2]] == [(("a/MatMul",), "carrier")] * 2


def test_what_an_unknown_layer_reads_is_not_its_readers() -> None:
    g = graph(("a/MatMul", ["x", "w"], ["p"]), ("b/Relu", ["p"], ["q"]))
    layers = [
        moved("cast_1", ["x"], ["y"]), moved("mystery", ["y"], ["z"]),
        moved("b/Relu", ["z"], ["q"]),
    ]  # fmt: skip
    assert given(run(g, *layers, whole=False)[0])[0] != ("b/Relu",)


def test_where_nobody_reads_the_copy_the_next_reader_of_the_input_carries_it() -> None:
    g = graph(
        ("b/Sigmoid", ["x"], ["q"]), ("a/MatMul", ["x", "w"], ["p"]),
        ("c/MatMul", ["x", "w"], ["o"]),
        ("d/Add", ["p", "q"], ["s"]), ("d/Mul", ["s", "o"], ["u"]),
    )  # fmt: skip
    layers = [
        moved("b/Sigmoid", ["x"], ["q"]), moved("cast_1", ["x"], ["unread"]),
        moved("a/MatMul", ["x", "w"], ["p"]), moved("c/MatMul", ["x", "w"], ["o"]), "d/Add+d/Mul",
    ]  # fmt: skip
    r = run(g, *layers)[1]
    assert given(r) == (("a/MatMul",), "carrier")
    last = run(g, *layers[:1], *layers[2:], layers[1])[-1]
    assert given(last) == ((), "unresolved") and last.why == UNKNOWN
    # Read under its new name: that reader alone.
    named = run(g, *layers[:2], moved("c/MatMul", ["unread", "w"], ["o"]), layers[2], "d/Add+d/Mul")
    assert given(named[1]) == (("c/MatMul",), "carrier")


def test_a_cast_behind_a_move_of_an_input_is_of_the_next_reader_of_the_input() -> None:
    """ONNX Runtime folds the reshapes around a transposed input, casts what it moved, and its
    product reads that (whisper's cached keys in half precision): nothing made the input."""
    g = graph(
        ("attn/MatMul", ["q0", "w"], ["q"]), ("attn/Reshape", ["x"], ["k"]),
        ("attn/Transpose", ["k"], ["kt"]), ("attn/MatMul_2", ["q", "kt"], ["s"]),
    )  # fmt: skip
    product = moved("attn/MatMul_2/MatmulTransposeFusion/", ["q", "x"], ["s"])
    reshaped = RawLayer("attn/Reshape_new", "Reshape", ("x",), ("fresh",))
    cast = RawLayer("InsertedCast_kt/F/", "Cast", ("fresh",), ("InsertedCast_kt/F/",))
    r = run(g, "attn/MatMul", reshaped, cast, product)
    assert r[1].rule == r[2].rule == "carrier"
    assert r[2].nodes == r[3].nodes == ("attn/Reshape", "attn/Transpose", "attn/MatMul_2")
    # behind the product nobody reads it any more
    assert given(run(g, "attn/MatMul", reshaped, product, cast)[3]) == ((), "unresolved")


def test_a_squeeze_that_the_engine_put_behind_a_split_is_of_what_was_split() -> None:
    """ONNX Runtime makes a Split and Squeezes of three Gathers (TimeSformer's attention)."""
    g = graph(("attn/MatMul", ["x", "w"], ["q"]), ("attn/Gather_3", ["q", "c"], ["k"]),
              ("b/Relu", ["k"], ["s"]))  # fmt: skip
    split = RawLayer("attn/Gather_3/GatherSliceToSplitFusion", "Split", ("q",), ("one", "two"))
    squeeze = RawLayer("Squeeze_token_97", "Squeeze", ("two",), ("other",))
    r = run(g, "attn/MatMul", split, squeeze, "b/Relu")
    assert given(r[2]) == (("attn/Gather_3",), "carrier")


def test_a_constant_that_nobody_reads_is_nobodys() -> None:
    g = graph(("a/MatMul", ["x", "w"], ["p"]), ("b/Relu", ["p"], ["q"]))
    layers = [moved("cast_1", ["w"], ["unread"]), moved("a/MatMul", ["x", "w"], ["p"]), "b/Relu"]
    assert given(run(g, *layers)[0]) == ((), "unresolved")
    read = [layers[0], moved("a/MatMul", ["x", "unread"], ["p"]), "b/Relu"]
    assert given(run(g, *read)[0]) == (("a/MatMul",), "carrier")


def test_what_an_unknown_layer_made_is_not_its_readers() -> None:
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("e/Erf", ["p"], ["e"]), ("e/Mul", ["e", "p"], ["e2"]),
        ("b/Relu", ["e2"], ["q"]),
    )  # fmt: skip
    layers = [
        "a/MatMul", moved("mystery", ["p"], ["s1"]), moved("copy_1", ["s1"], ["s2"]),
        moved("b/Relu", ["s2"], ["q"]),
    ]  # fmt: skip
    assert given(run(g, *layers, whole=False)[2]) == ((), "unresolved")


def test_a_copy_without_tensors_is_of_the_layer_before_it_that_the_next_one_reads() -> None:
    """Kind: two results wait to be read; what runs next says which of them is moved."""
    order = ["a/MatMul", "b/MatMul", "copy_1", "copy_2", "c/Relu", "d/Add"]
    found = run(BRANCHES, *order)
    assert [given(r) for r in found[2:4]] == [(("b/MatMul",), "carrier")] * 2
    # The one before it is not what is read next, or two are.
    assert given(run(BRANCHES, "b/MatMul", "a/MatMul", "copy_1", "c/Relu", "d/Add")[2])[0] == ()
    assert given(run(PAIR, "a/MatMul", "c/Relu", "copy_1", "b/Add")[2]) == ((), "unresolved")
    # Nothing runs before it, or after.
    assert given(run(PAIR, "copy_1", "a/MatMul", "c/Relu", "b/Add")[0]) == ((), "unresolved")
    both = graph(("a/MatMul", ["x", "w"], ["p"]), ("c/Relu", ["x"], ["q"]), outputs=("p", "q"))
    assert given(run(both, "a/MatMul", "c/Relu", "copy_1")[2]) == ((), "unresolved")


def test_a_copy_of_what_two_modules_made_in_one_layer_is_neithers() -> None:
    both = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("c/Relu", ["p"], ["q"]), ("b/Add", ["p", "q"], ["r"])
    )
    assert given(run(both, "a/MatMul+c/Relu", "copy_1", "b/Add")[1]) == ((), "unresolved")


def test_a_slice_of_a_tensor_with_the_models_name_is_its_producers() -> None:
    """Were it the node, what it writes would have a name of the model, too."""
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("a/Slice", ["p"], ["s"]), ("b/Relu", ["s"], ["q"]),
    )  # fmt: skip
    named = run(g, "a/MatMul", moved("slice__mye1", ["p"], ["engines"]), "b/Relu")[1]
    assert given(named) == (("a/MatMul",), "carrier")
    first, second = run(g, "a/MatMul", "slice__mye1", "slice__mye2", "b/Relu")[1:3]
    assert given(first) == (("a/Slice",), "elimination")
    assert first.why == "only a/Slice moves what a/MatMul made"
    assert given(second) == (("a/MatMul",), "carrier")  # one node runs once


def test_a_slice_behind_other_work_is_not_the_one() -> None:
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]), ("a/Erf", ["p"], ["e"]), ("a/Exp", ["e"], ["f"]),
        ("a/Slice", ["f"], ["s"]), ("b/Relu", ["s"], ["q"]),
    )  # fmt: skip
    r = run(g, "a/MatMul", "slice__mye1", "b/Relu")[1]
    assert given(r) == (("a/MatMul",), "carrier")


def test_of_many_producers_three_are_named() -> None:
    makers = [(f"m.{i}/MatMul", ["x", "w"], [f"t{i}"]) for i in range(4)]
    g = graph(*makers, ("o/Add", ["t0", "t1", "t2", "t3"], ["o"]))
    copy = moved("concat_9", [f"t{i}" for i in range(4)], ["engines"])
    r = run(g, *(name for name, _, _ in makers), copy, "o/Add")[4]
    assert r.nodes == tuple(name for name, _, _ in makers)
    assert r.why == "moves what m.0/MatMul, m.1/MatMul, m.2/MatMul made"


def test_a_cast_of_an_input_that_no_node_reads_is_unresolved() -> None:
    g = graph(("a/MatMul", ["x", "w"], ["p"]), inputs=("x", "unread"))
    r = run(g, "InsertedPrecisionFreeCast_unread", "a/MatMul")[0]
    assert given(r) == ((), "unresolved")
    assert given(run(g, "InsertedPrecisionFreeCast_x", "a/MatMul")[0])[0] == ("a/MatMul",)


def test_an_unknown_layer_counts_only_since_what_is_moved_was_made() -> None:
    """It may have made what is moved if it ran after the last known one, not before."""
    g = graph(
        ("o/Erf", ["x"], ["o"]), ("o/Exp", ["o"], ["e"]), ("a/MatMul", ["e", "w"], ["p"]),
        ("b/Relu", ["p"], ["q"]),
    )  # fmt: skip
    before = run(g, "mystery", "a/MatMul", "copy_1", "b/Relu", whole=False)
    assert given(before[0]) == ((), "unresolved")
    assert given(before[2]) == (("a/MatMul",), "carrier")
    after = run(g, "a/MatMul", "mystery", "copy_1", "b/Relu", whole=False)
    assert given(after[2]) == ((), "unresolved")
    assert after[2].why.endswith(
        "a layer before it is unresolved: what that made may be what is moved"
    )
