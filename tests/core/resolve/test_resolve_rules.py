"""The six rules one by one, on graphs small enough to see the answer."""

import json

import pytest
from resolve_graphs import graph

from layerline.core.errors import InputError
from layerline.core.nodes import NodeGraph
from layerline.core.resolve import (
    Network,
    NetworkLayer,
    RawLayer,
    load_network,
    node_status,
    parse_network,
    resolve,
    spelling,
)


def chain(*names):
    """A graph in which each node feeds the next: x -> t0 -> t1 ..."""
    return graph(*((n, [f"t{i - 1}" if i else "x"], [f"t{i}"]) for i, n in enumerate(names)))


def one(name, g, **more):
    (r,) = resolve([RawLayer(name, **more)], g)
    return r


MLP = chain("h.0.fc/MatMul", "h.0.fc/Add", "h.0.act/Relu", "h.0.proj/MatMul", "h.0.proj/Add_2")


@pytest.mark.parametrize(
    "spelled",
    [
        "h.0.fc/MatMul",
        "h_0_fc/MatMul",
        "h_0_fc/MatMul_matrix_multiply",
        "shuffle_input_0_h_0_fc/MatMul_reshape",
        "shuffle_output_h_0_fc/MatMul_reshape",
        "h.0.fc/MatMul_clone_1",
        "h.0.fc/MatMul [profile 2]",
        "h.0.fc/MatMul_clone_0_myl12_3",
        "h.0.fc/MatMul_myl0_4",
        "__myl_h_0_fc/MatMul_myl0_4",
        "h.0.fc/MatMul_kernel_time",
        "h.0.fc/MatMul/kernel_time",
        "h.0.fc/MatMul/MatMulScaleFusion/",
        "h.0.fc/MatMul_token_3",
        "fused h.0.fc/MatMul",
        "PWN(h.0.fc/MatMul)",
        "{h_0_fc/MatMul}",
        "h_0_fc/MatMul_6",  # TensorRT's parser: another layer of the same node
    ],
)
def test_a_node_is_known_under_every_spelling_that_tools_give_it(spelled):
    r = one(spelled, MLP)
    assert (r.nodes, r.rule, r.kind) == (("h.0.fc/MatMul",), "name", "compute")


@pytest.mark.parametrize("joint", [" + ", " || ", "+", "\x1e", "\x1f"])
def test_a_list_of_names_is_all_of_them_in_graph_order(joint):
    r = one(joint.join(["h_0_act/Relu", "h.0.fc/Add", "h.0.fc/MatMul_matrix_multiply"]), MLP)
    assert r.nodes == ("h.0.fc/MatMul", "h.0.fc/Add", "h.0.act/Relu")
    assert r.modules == ("h.0.fc", "h.0.act")


def test_nested_pointwise_fusions_are_lists_too():
    g = chain("a/MatMul", "a/Add", "b/Relu", "b/Add_2")
    r = one("PWN(PWN(a/Add, b/Relu), b/Add_2)", g)
    assert r.nodes == ("a/Add", "b/Relu", "b/Add_2")


def test_a_node_that_ends_like_a_decoration_keeps_its_name():
    g = chain("a/MatMul", "a/MatMul_reshape", "a/MatMul_2")
    assert one("a/MatMul_reshape", g).nodes == ("a/MatMul_reshape",)
    assert one("a/MatMul_2", g).nodes == ("a/MatMul_2",)


def test_a_counter_is_not_stripped_from_names_that_are_no_path():
    assert one("node_add_77", chain("node_add", "node_mul")).rule == "unresolved"


@pytest.mark.parametrize("joint", ["", "\x1e", "\x1f"])
def test_metadata_names_the_nodes_of_a_kernel_with_a_name_of_the_engines_own(joint):
    metadata = joint.join(["[ONNX Layer: h.0.act/Relu]", "[ONNX Layer: h.0.fc/Add]"])
    r = one("__myl_AddRelu_myl0_3", MLP, metadata=metadata)
    assert (r.nodes, r.rule) == (("h.0.fc/Add", "h.0.act/Relu"), "name")
    assert "metadata" in r.why


def test_metadata_is_believed_before_a_name_that_the_parser_made_up():
    """TensorRT calls the second layer of a/Mul a/Mul_2, whoever has that name in the model."""
    g = chain("a/Mul", "a/Mul_2")
    assert one("a/Mul_2", g, metadata="[ONNX Layer: a/Mul]").nodes == ("a/Mul",)


def test_the_network_is_believed_before_a_name_that_the_parser_made_up():
    g = chain("a/Mul", "a/Mul_2")
    network = Network({7: NetworkLayer(7, "a/Mul_2", node="a/Mul")})
    (r,) = resolve([RawLayer("a/Mul_2_matrix_multiply")], g, network)
    assert r.nodes == ("a/Mul",)


def test_an_unknown_name_is_unresolved_and_says_why():
    r = one("mystery", MLP)
    assert (r.nodes, r.modules, r.rule, r.kind) == ((), (), "unresolved", "unknown")
    assert "mystery" not in r.why and "no node of the model has this name" in r.why


@pytest.mark.parametrize("other", ["a_b/MatMul", "a*b/MatMul"])
def test_names_that_one_spelling_makes_equal_are_told_apart_by_order(other):
    """Also where the spelling is one of the two names: it is no proof of that one."""
    g = chain("a.b/MatMul", "c/Relu", other)
    layers = [RawLayer("a_b/MatMul_matrix_multiply", occurrence=k) for k in range(2)]
    found = resolve(layers, g)
    assert [(r.nodes, r.rule) for r in found] == [(("a.b/MatMul",), "order"), ((other,), "order")]
    r = resolve(layers[:1], g)[0]
    assert r.rule == "unresolved" and r.why.startswith(f"the name fits a.b/MatMul and {other}")


def test_an_exact_name_leaves_the_other_spelling_to_the_other_node():
    g = chain("a.b/MatMul", "c/Relu", "a_b/MatMul")
    found = resolve([RawLayer("a.b/MatMul"), RawLayer("c/Relu"), RawLayer("a_b/MatMul")], g)
    assert [r.nodes for r in found] == [("a.b/MatMul",), ("c/Relu",), ("a_b/MatMul",)]


# --- index


def test_normalisations_go_by_ascending_index_if_their_numbers_agree():
    g = chain("a/LayerNormalization", "b/LayerNormalization")
    names = ["(Unnamed Layer_ 40) [Normalization]_U0_mean", "(Unnamed Layer* 7) [Normalization]"]
    found = resolve([RawLayer(n) for n in names], g)
    assert [r.modules for r in found] == [("b",), ("a",)]
    assert {r.rule for r in found} == {"index"}
    three = chain("a/LayerNormalization", "b/LayerNormalization", "c/LayerNormalization")
    assert {r.rule for r in resolve([RawLayer(n) for n in names], three)} == {"unresolved"}


def test_network_json_says_what_an_unnamed_layer_is():
    g = chain("a/LayerNormalization", "b/Add", "c/LayerNormalization")
    network = parse_network(
        {
            "schema_version": 1,
            "layers": [
                {"index": 7, "name": "(Unnamed Layer* 7) [Normalization]", "kind": "N",
                 "inputs": ["t1"], "outputs": ["t2"], "node": None},
                {"index": 3, "name": "(Unnamed Layer* 3) [ElementWise]", "kind": "E",
                 "inputs": [], "outputs": [], "node": "b/Add"},
            ],
        }
    )  # fmt: skip
    layers = [RawLayer("(Unnamed Layer_ 3) [ElementWise]+(Unnamed Layer_ 7) [Normalization]_U0_x")]
    (r,) = resolve(layers, g, network)
    assert r.modules == ("b", "c") and r.rule == "index"


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ([], "not a network.json"),
        ({"schema_version": 2, "layers": []}, "schema version 2"),
        ({"schema_version": 1, "layers": [{"name": "x"}]}, "layers[0]"),
        ({"schema_version": 1, "layers": [{"index": 1}, {"index": 1}]}, "occurs twice"),
        ({"schema_version": 1, "layers": [{"index": 1, "outputs": [3]}]}, "outputs"),
        ({"schema_version": 1, "layers": [{"index": 1, "node": 3}]}, "node"),
    ],
)
def test_a_broken_network_json_is_named_with_its_entry(document, problem, tmp_path):
    path = tmp_path / "network.json"
    path.write_text(json.dumps(document))
    with pytest.raises(InputError) as e:
        load_network(path)
    assert problem in e.value.line() and str(path) in e.value.line()


# --- boundary


def test_a_layer_is_the_nodes_between_its_tensors():
    r = one("GPT2Gelu", MLP, op="FastGelu", inputs=("t0",), outputs=("t2",))
    assert (r.nodes, r.rule) == (("h.0.fc/Add", "h.0.act/Relu"), "boundary")


def test_tensors_that_do_not_bound_a_layer_give_nothing():
    g = graph(("a/Relu", ["x"], ["p"]), ("b/Relu", ["y"], ["q"]), ("c/Add", ["p", "q"], ["r"]),
              inputs=("x", "y"))  # fmt: skip
    r = one("k", g, inputs=("p",), outputs=("r",))
    assert r.rule == "unresolved" and "y is not among its inputs" in r.why
    assert one("k", g, inputs=("p", "y"), outputs=("r",)).nodes == ("b/Relu", "c/Add")


def test_renamed_tensors_are_said_to_be_the_reason():
    r = one("k", MLP, inputs=("t0",), outputs=("reformatted",))
    assert r.rule == "unresolved" and "output tensors are not the model's (reformatted)" in r.why


def test_casts_that_the_engine_put_in_stand_for_what_they_cast():
    layers = [
        RawLayer("InsertedPrecisionFreeCast_t0", "Cast", ("t0",), ("half",)),
        RawLayer("GPT2Gelu", "FastGelu", ("half",), ("half2",)),
        RawLayer("InsertedPrecisionFreeCast_t2", "Cast", ("half2",), ("t2",)),
    ]
    found = resolve(layers, MLP)
    assert found[1].nodes == ("h.0.fc/Add", "h.0.act/Relu")
    assert [r.rule for r in found] == ["carrier", "boundary", "carrier"]
    assert [r.nodes for r in found[::2]] == [("h.0.fc/MatMul",), ("h.0.act/Relu",)]


def test_a_product_that_another_layer_runs_by_name_is_not_claimed_again():
    layers = [RawLayer("h.0.fc/MatMul"), RawLayer("k", inputs=("x",), outputs=("t2",))]
    r = resolve(layers, MLP)[1]
    assert r.rule == "unresolved" and "h.0.fc/MatMul, which another layer runs" in r.why


def test_cheap_nodes_may_be_recomputed_and_keep_their_first_rule():
    g = graph(("a/Relu", ["x"], ["p"]), ("b/Add", ["p", "x"], ["q"]), outputs=("p", "q"))
    found = resolve([RawLayer("a/Relu"), RawLayer("k", inputs=("x",), outputs=("q",))], g)
    assert [r.nodes for r in found] == [("a/Relu",), ("a/Relu", "b/Add")]
    assert node_status(found, g)["a/Relu"].rule == "name"


def test_what_feeds_shapes_is_not_between():
    g = graph(
        ("m/Relu", ["x"], ["p"]),
        ("m/Shape", ["p"], ["s"]),
        ("m/Gather", ["s", "c"], ["g"]),
        ("m/MatMul", ["p", "w"], ["q"]),
        ("n/Reshape", ["q", "g"], ["r"]),
        ("n/Sigmoid", ["r"], ["z"]),
    )
    r = one("k", g, inputs=("q",), outputs=("z",))
    assert r.nodes == ("n/Reshape", "n/Sigmoid")


def test_a_view_of_another_module_does_not_make_a_layer_shared():
    g = chain("a/MatMul", "b/Reshape", "c/Relu", "d/Softmax")
    assert one("k", g, inputs=("t0",), outputs=("t3",)).modules == ("c", "d")


def test_one_node_run_as_several_layers_is_all_of_theirs():
    """ONNX Runtime inlines an fp16 Softmax; the layers have no names."""
    g = chain("a/MatMul", "a/Softmax", "a/MatMul_2")
    layers = [
        RawLayer("a/MatMul", "MatMul", ("x", "w"), ("t0",)),
        RawLayer("", "ReduceMax", ("t0",), ("_inlfunc_max",)),
        RawLayer("", "Sub", ("t0", "_inlfunc_max"), ("_inlfunc_sub",)),
        RawLayer("", "Exp", ("_inlfunc_sub",), ("t1",)),
        RawLayer("a/MatMul_2", "MatMul", ("t1",), ("t2",)),
    ]
    assert [r.nodes for r in resolve(layers, g)[1:4]] == [("a/Softmax",)] * 3


def test_a_foreign_node_is_the_paths_between_its_two_ends():
    r = one("{ForeignNode[h.0.fc/Add...h.0.proj/MatMul]}", MLP)
    assert r.nodes == ("h.0.fc/Add", "h.0.act/Relu", "h.0.proj/MatMul") and r.rule == "boundary"
    gone = one("{ForeignNode[eq...h.0.proj/MatMul]}", MLP)
    assert gone.rule == "unresolved" and "eq, which is no node of the model" in gone.why
    whole = one(
        "{ForeignNode[eq...h.0.proj/Add_2]}", MLP, inputs=("x",), outputs=("t4",)
    )  # its tensors say what its name does not
    assert len(whole.nodes) == 5


# --- order


def gelu_blocks(count):
    nodes = []
    for k in range(count):
        t = f"t{k - 1}" if k else "x"
        nodes += [
            (f"h.{k}.fc/MatMul", [t, "w"], [f"f{k}"]),
            (f"h.{k}.act/Mul", [f"f{k}", "c"], [f"m{k}"]),
            (f"h.{k}.act/Tanh", [f"m{k}"], [f"a{k}"]),
            (f"h.{k}.act/Mul_2", [f"a{k}", f"f{k}"], [f"g{k}"]),
            (f"h.{k}/Add", [f"g{k}", t], [f"t{k}"]),
        ]
    return graph(*nodes)


def gelu_layers(count, text="gelu_mul+gelu_tanh+gelu_mul_2"):
    for k in range(count):
        yield RawLayer(f"h_{k}_fc/MatMul_matrix_multiply")
        yield RawLayer(text, occurrence=k)
        yield RawLayer(f"h_{k}/Add")


def test_the_same_text_in_every_block_is_told_apart_by_order():
    found = resolve(list(gelu_layers(3)), gelu_blocks(3))
    assert [r.modules for r in found if r.rule == "order"] == [(f"h.{k}.act",) for k in range(3)]


def test_order_gives_nothing_when_the_numbers_disagree():
    layers = list(gelu_layers(3))
    del layers[4]  # one of the three was not seen
    found = resolve(layers, gelu_blocks(3))
    assert [r.rule for r in found if r.name.startswith("gelu")] == ["unresolved"] * 2


def test_branches_side_by_side_are_not_told_apart_by_order():
    """Experts run in any order; the same text says nothing of which is which."""
    g = graph(
        ("e.0/Tanh", ["x"], ["p"]), ("e.1/Tanh", ["x"], ["q"]), ("o/Add", ["p", "q"], ["r"])
    )  # fmt: skip
    layers = [RawLayer("gelu_tanh"), RawLayer("gelu_tanh", occurrence=1), RawLayer("o/Add")]
    assert [r.rule for r in resolve(layers, g)] == ["unresolved", "unresolved", "name"]


# --- elimination


def test_the_only_node_that_can_have_run_there_is_the_layer():
    layers = [RawLayer("h.0.fc/MatMul+h.0.fc/Add"), RawLayer("k"), RawLayer("h.0.proj/MatMul")]
    r = resolve(layers, MLP)[1]
    assert (r.nodes, r.rule) == (("h.0.act/Relu",), "elimination")


def test_two_candidates_are_none():
    layers = [RawLayer("h.0.fc/MatMul"), RawLayer("k"), RawLayer("h.0.proj/MatMul")]
    r = resolve(layers, MLP)[1]
    assert r.rule == "unresolved" and "2 nodes can have run here" in r.why


def test_two_layers_for_one_candidate_are_none():
    layers = [
        RawLayer("h.0.fc/MatMul+h.0.fc/Add"),
        RawLayer("k1"),
        RawLayer("k2"),
        RawLayer("h.0.proj/MatMul"),
    ]
    assert [r.rule for r in resolve(layers, MLP)[1:3]] == ["unresolved"] * 2


def test_an_answer_narrows_the_next():
    """q and k are two candidates for the first layer until the second can only be k."""
    g = graph(
        ("q/MatMul", ["x", "w"], ["q"]),
        ("a/Relu", ["x"], ["a"]),
        ("k/MatMul", ["a", "w"], ["k"]),
        ("s/Add", ["q", "k"], ["s"]),
        ("u/Sigmoid", ["q"], ["u"]),
    )
    layers = [RawLayer(n) for n in ("fc__mye1", "a/Relu", "u/Sigmoid", "fc__mye2", "s/Add")]
    assert [r.nodes for r in resolve(layers, g)] == [
        ("q/MatMul",), ("a/Relu",), ("u/Sigmoid",), ("k/MatMul",), ("s/Add",)
    ]  # fmt: skip
    wide = [layers[k] for k in (1, 0, 3, 4, 2)]  # both between a and s: nothing tells them apart
    assert [r.rule for r in resolve(wide, g)[1:3]] == ["unresolved"] * 2


def test_constants_shapes_and_views_are_no_candidates():
    g = graph(
        ("m/Relu", ["x"], ["p"]),
        ("m/Transpose", ["w"], ["wt"]),  # folded
        ("m/Mul", ["c", "b"], ["cb"]),  # folded
        ("m/Shape", ["p"], ["s"]),
        ("m/Add", ["s", "c"], ["s1"]),  # arithmetic on shapes
        ("m/MatMul", ["p", "wt"], ["q"]),
        ("m/Reshape", ["q", "s1"], ["r"]),
        ("m/Sigmoid", ["r", "cb"], ["z"]),
    )
    found = resolve([RawLayer("m/Relu"), RawLayer("fc__mye1"), RawLayer("m/Sigmoid")], g)
    assert found[1].nodes == ("m/MatMul",)
    status = node_status(found, g)
    folded = ["m/Transpose", "m/Mul", "m/Shape", "m/Add"]
    assert {n for n, s in status.items() if s.status == "folded"} == set(folded)
    assert status["m/Reshape"].status == "fused" and status["m/Reshape"].layer == "fc__mye1"


def test_a_word_of_the_engines_own_can_veto_but_never_choose():
    layers = [
        RawLayer("h.0.fc/MatMul+h.0.fc/Add"),
        RawLayer("fc__mye7"),
        RawLayer("h.0.proj/MatMul"),
    ]
    r = resolve(layers, MLP)[1]
    assert r.rule == "unresolved" and "h.0.act/Relu, is no such operation" in r.why


def test_a_product_and_its_bias_are_one_candidate():
    layers = [RawLayer("fc__mye7"), RawLayer("h.0.act/Relu")]
    assert resolve(layers, MLP)[0].nodes == ("h.0.fc/MatMul", "h.0.fc/Add")


# --- carrier


def test_a_movement_layer_belongs_to_the_producer_of_what_it_moves():
    layers = [
        RawLayer("h.0.fc/MatMul + h.0.fc/Add", "Conv", ("x",), ("t1",)),
        RawLayer("Reformatting CopyNode for Input Tensor 0 to h.0.act/Relu", "Reformat",
                 ("t1",), ("Reformatted Input Tensor 0 to h.0.act/Relu",)),
        RawLayer("h.0.act/Relu", "PointWise",
                 ("Reformatted Input Tensor 0 to h.0.act/Relu",), ("t2",)),
    ]  # fmt: skip
    r = resolve(layers, MLP)[1]
    assert (r.nodes, r.rule, r.kind) == (("h.0.fc/Add",), "carrier", "movement")


def test_a_reformat_is_never_taken_for_the_layer_it_names():
    """Without tensors its name still says whose output it moves."""
    layers = [
        RawLayer("h.0.fc/MatMul + h.0.fc/Add"),
        RawLayer("Reformatting CopyNode for Output Tensor 0 to h.0.fc/MatMul + h.0.fc/Add"),
    ]
    r = resolve(layers, MLP)[1]
    assert (r.nodes, r.rule, r.kind) == (("h.0.fc/Add",), "carrier", "movement")


def test_a_reformat_of_the_models_input_belongs_to_the_fused_layer_that_it_names():
    layers = [
        RawLayer("Reformatting CopyNode for Input Tensor 0 to h.0.fc/MatMul + h.0.fc/Add"),
        RawLayer("h.0.fc/MatMul + h.0.fc/Add"),
        # Another layer's input is what the layer before it made.
        RawLayer("Reformatting CopyNode for Input Tensor 0 to h.0.act/Relu + h.0.proj/MatMul"),
    ]
    first, _, other = resolve(layers, MLP)
    assert (first.nodes, first.rule) == (("h.0.fc/MatMul", "h.0.fc/Add"), "carrier")
    assert first.kind == "movement" and other.nodes == ("h.0.fc/Add",)


def test_a_moved_model_input_is_carried_by_its_reader():
    layers = [
        RawLayer("ReorderInput", "ReorderInput", ("x",), ("blocked",)),
        RawLayer("t1_nchwc", "Conv", ("blocked", "w_blocked"), ("blocked1",)),
        RawLayer("ReorderOutput", "ReorderOutput", ("blocked1",), ("t1",)),
    ]
    found = resolve(layers, MLP)
    assert [r.rule for r in found] == ["carrier", "boundary", "carrier"]
    assert [r.modules for r in found] == [("h.0.fc",)] * 3


def test_a_slice_with_a_node_of_its_own_is_that_node():
    g = graph(
        ("a/MatMul", ["x", "w"], ["p"]),
        ("b/Split", ["p"], ["s0", "s1"]),
        ("c/MatMul", ["s0", "s1"], ["q"]),
    )
    layers = [RawLayer("a/MatMul"), RawLayer("slice__mye3"), RawLayer("c/MatMul")]
    r = resolve(layers, g)[1]
    assert (r.nodes, r.rule, r.kind) == (("b/Split",), "elimination", "movement")


def test_a_slice_that_could_move_either_of_two_results_is_unresolved():
    g = graph(("a/Relu", ["x"], ["p"]), ("b/Tanh", ["x"], ["q"]), ("c/Add", ["p", "q"], ["r"]))
    layers = [RawLayer("a/Relu"), RawLayer("b/Tanh"), RawLayer("slice__mye3"), RawLayer("c/Add")]
    r = resolve(layers, g)[2]
    assert (r.rule, r.kind) == ("unresolved", "movement")


# --- status


def test_every_node_has_a_status_and_missing_ones_are_said():
    found = resolve([RawLayer("h.0.fc/MatMul + h.0.fc/Add"), RawLayer("h.0.proj/MatMul")], MLP)
    status = {n: s.status for n, s in node_status(found, MLP).items()}
    assert status == {
        "h.0.fc/MatMul": "fused",
        "h.0.fc/Add": "fused",
        "h.0.act/Relu": "missing",
        "h.0.proj/MatMul": "executed",
        "h.0.proj/Add_2": "missing",
    }


def test_a_node_fed_and_read_by_one_layer_ran_in_it():
    """Myelin writes a Softmax as maxred+sub+exp+sum and keeps the names around it."""
    g = chain("a/MatMul", "a/Mul", "a/Softmax", "a/MatMul_2", "b/Relu")
    names = ["a/MatMul+a/Mul+maxred+sub+exp__mye9+sum+a/MatMul_2", "b/Relu"]
    found = resolve([RawLayer(n) for n in names], g)
    assert "a/Softmax" in found[0].nodes
    assert node_status(found, g)["a/Softmax"].rule == "boundary"


def test_no_layers_and_no_nodes_are_no_error():
    empty = NodeGraph(nodes=())
    assert resolve([], MLP) == [] and resolve([RawLayer("k")], empty)[0].rule == "unresolved"
    assert {s.status for s in node_status([], MLP).values()} == {"missing"}


def residual(*more):
    """Two residual sums, a normalisation after each: x + e -> norm -> product, and once more."""
    return graph(
        ("wte/Gather", ["w", "x"], ["e"]),
        ("wpe/Gather", ["b", "x"], ["p"]),
        ("m/Add", ["e", "p"], ["s"]),
        ("m.ln/LayerNormalization", ["s"], ["n"]),
        ("m.fc/MatMul", ["n", "c"], ["f"]),
        ("m/Add_2", ["s", "f"], ["s2"]),
        ("m.ln2/LayerNormalization", ["s2"], ["n2"]),
        *more,
    )


NORM = "(Unnamed Layer_ {}) [Normalization]_U0_mean"


def test_nodes_listed_by_names_of_another_export_are_found_beside_the_one_that_is_known():
    first = "node_embedding_1+node_embedding+node_add_3+sr_div+" + NORM.format(4)
    a, b, c = resolve(
        [RawLayer(first), RawLayer("node_linear_2"), RawLayer("node_add_9+" + NORM.format(7))],
        residual(),
    )
    assert a.modules == ("wte", "wpe", "m", "m.ln") and a.rule == "elimination"
    assert a.node_rules == ("elimination", "elimination", "elimination", "index")
    assert (b.modules, b.rule) == (("m.fc",), "elimination")
    assert c.nodes == ("m/Add_2", "m.ln2/LayerNormalization")


def test_where_such_a_name_can_be_two_nodes_it_is_none():
    """An addition before the second normalisation, and one after it."""
    g = residual(("m/Add_3", ["s2", "n2"], ["s3"]))
    found = resolve([RawLayer(NORM.format(4)), RawLayer("node_add_9+" + NORM.format(7))], g)
    assert found[1].nodes == ("m.ln2/LayerNormalization",)


def test_a_region_that_a_dla_runs_is_all_the_layers_that_it_lists():
    assert spelling.parts("{conv1,relu1,pool1}") == ("conv1", "relu1", "pool1")
    assert not spelling.is_movement("{conv1,relu1,pool1}")
    for name in ("input to nvm", "{conv1,relu1} from nvm", "data copy finish"):
        assert spelling.is_movement(name), name
