"""`layerline nodes`: nodes.json of ONNX files that other exporters wrote.

Names and metadata are in the forms of torch 2.13 (`dynamo=True` and `dynamo=False`).
"""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from onnx import ModelProto, NodeProto, TensorProto, helper, save
from onnx.helper import make_node

from layerline.analysis.commands.layers import layers
from layerline.core.cli.command import main
from layerline.core.errors import InputError
from layerline.core.nodes import load
from layerline.export.foreign_file import read

Nodes = dict[str, dict[str, Any]]


def model(
    *nodes: NodeProto, inputs: tuple[str, ...] = ("x",), weights: tuple[str, ...] = ()
) -> ModelProto:
    """A model of the nodes given; the last one's output is its own."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in inputs],
        [helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, [2, 2])],
        [helper.make_tensor(w, TensorProto.FLOAT, [2, 2], [0.0] * 4) for w in weights],
    )
    return helper.make_model(graph)


def written(folder: Path, found: ModelProto) -> Path:
    path = folder / "own.onnx"
    save(found, path)
    return path


def nodes(folder: Path, found: ModelProto) -> Nodes:
    return {n["name"]: n for n in read(written(folder, found)).document["nodes"]}


def scoped(op: str, inputs: list[str], output: str, name: str, scopes: str, classes: str) -> Any:
    node = make_node(op, inputs, [output], name=name)
    for key, value in (("name_scopes", scopes), ("class_hierarchy", classes)):
        if value:
            node.metadata_props.add(key=f"pkg.torch.onnx.{key}", value=value)
    return node


def test_modules_of_the_dynamo_exporter_come_from_its_scopes(tmp_path: Path) -> None:
    linear = "['app.Net', 'torch.nn.modules.linear.Linear', 'aten.linear.default']"
    found = nodes(
        tmp_path,
        model(
            scoped("Gemm", ["x", "w"], "p", "node_linear", "['', 'h.0.fc@1', 'linear']", linear),
            scoped("Relu", ["p"], "y", "node_relu", "['', 'relu']", "['app.Net', 'aten.relu']"),
            weights=("w",),
        ),
    )
    told = {n: (v["module"], v["module_class"]) for n, v in found.items()}
    assert told == {"node_linear": ("h.0.fc", "Linear"), "node_relu": ("", "Net")}
    assert list(found["node_linear"]["inputs"]) == ["x", "w"]


@pytest.mark.parametrize(
    ("name", "op", "module"),
    [
        ("/fc/Gemm", "Gemm", "fc"),
        ("/model/layers.0/self_attn/q_proj/MatMul_1", "MatMul", "model.layers.0.self_attn.q_proj"),
        # Children of an nn.Sequential repeat their parent.
        ("/layers.0/layers.0.1/Relu", "Relu", "layers.0.1"),
        ("/net/net.0/net.0.1/Relu", "Relu", "net.0.1"),
        ("/Add_2", "Add", ""),
        ("transformer.h.0.attn/Split_1", "Split", "transformer.h.0.attn"),
        # Names without a path, and names that an optimiser made.
        ("Add_3", "Add", None),
        ("node_linear", "Gemm", None),
        ("/fc/MatMul/MatMulScaleFusion/", "FusedMatMul", "fc"),
        ("/h.0/fc/MatMul/MatMulAddFusion", "Gemm", "h.0.fc"),
        ("/act/Mul/QuickGeluFusion/", "QuickGelu", "act"),
        ("/conv/Conv_output_0_nchwc", "Conv", "conv"),
        ("/conv/Conv_quant", "QLinearConv", "conv"),
        ("/act/Relu_output_0_QuantizeLinear", "QuantizeLinear", "act"),
        ("/Conv/Conv", "Conv", "Conv"),
        ("/MatMulAddFusion", "Gemm", None),
        ("/model/conv1/strange", "Conv", None),
        ("/fc/Gemm_input_QuantizeLinear", "QuantizeLinear", None),
    ],
)
def test_modules_of_names(tmp_path: Path, name: str, op: str, module: str | None) -> None:
    [found] = nodes(tmp_path, model(make_node(op, ["x"], ["y"], name=name))).values()
    assert (found["name"], found["module"]) == (name, module)


def test_a_node_that_lost_its_module_takes_its_readers(tmp_path: Path) -> None:
    found = nodes(
        tmp_path,
        model(
            make_node("Relu", ["x"], ["p"], name="/act/Relu"),
            make_node("QuantizeLinear", ["p", "s"], ["q"], name="quantised"),
            make_node("Neg", ["q"], ["r"], name="/out/Neg"),
            make_node("Abs", ["x"], ["alone"], name="alone"),
            make_node("Neg", ["r"], ["y"], name="/out/Neg_1"),
            weights=("s",),
        ),
    )
    assert found["quantised"]["module"] == "out"
    assert found["alone"]["module"] is None  # nobody reads it, nobody known writes for it


def test_a_node_that_tells_its_module_never_takes_its_neighbours(tmp_path: Path) -> None:
    """By a name that does not end in its operator, by a weight, by its output."""
    block = [
        ["Gemm", "x", "a.fc.weight", "g", "/a/fc/MatMul/MatMulAddFusion"],
        ["Gelu", "g", "", "h", "Gelu_0"],
        ["MatMul", "h", "a.out.weight", "i", ""],
        ["Neg", "i", "", "/a/act/Neg_output_0", "fused 7"],
        ["Gemm", "/a/act/Neg_output_0", "b.fc.weight", "y", "/b/fc/Gemm"],
    ]
    made = model(
        *(make_node(op, [x, *filter(None, [w])], [y], name=n) for op, x, w, y, n in block),
        weights=("a.fc.weight", "a.out.weight", "b.fc.weight"),
    )
    assert [n["module"] for n in nodes(tmp_path, made).values()] == [
        "a.fc", "a", "a.out", "a.act", "b.fc"
    ]  # fmt: skip


def test_a_weight_tells_the_module_through_what_dequantises_it(tmp_path: Path) -> None:
    parts = ("_quantized", "_scale", "_zero_point")
    weight = [f"m.conv.weight{part}" for part in parts]
    made = model(
        make_node("DequantizeLinear", weight, ["d"], name="m.conv.weight_DequantizeLinear"),
        make_node("Conv", ["x", "d"], ["c"]),
        make_node("Neg", ["c"], ["y"], name="/out/Neg"),
        weights=tuple(weight),
    )
    assert [n["module"] for n in nodes(tmp_path, made).values()] == ["m.conv", "m.conv", "out"]


def test_a_weight_that_several_nodes_read_tells_none_of_them(tmp_path: Path) -> None:
    made = model(
        make_node("Gather", ["wte.weight", "x"], ["e"]),
        make_node("MatMul", ["e", "wte.weight"], ["y"]),
        weights=("wte.weight",),
    )
    assert [n["module"] for n in nodes(tmp_path, made).values()] == [None, None]


def test_nodes_without_a_name_are_called_as_tensorrt_calls_them(tmp_path: Path) -> None:
    found = nodes(tmp_path, model(make_node("Relu", ["x"], ["y"])))
    assert list(found) == ["node_of_y"]


def test_nodes_of_one_name_are_numbered_and_no_layer_is_taken_for_the_first(
    tmp_path: Path,
) -> None:
    made = model(
        make_node("Relu", ["x"], ["p"], name="act"), make_node("Relu", ["p"], ["y"], name="act")
    )
    told = read(written(tmp_path, made))
    assert ([n["name"] for n in told.document["nodes"]], told.repeated) == (["act #1", "act #2"], 2)
    path, listed = tmp_path / "nodes.json", tmp_path / "layers.json"
    path.write_text(json.dumps(told.document))
    listed.write_text(json.dumps({"Layers": ["act"], "Bindings": []}))
    shown = CliRunner().invoke(layers, [str(listed), "--nodes", str(path)]).stdout
    assert "unresolved: act" in shown


def test_the_nodes_of_a_run_are_not_written_over(tmp_path: Path) -> None:
    """Beside a run's fp32.onnx lies its fp32.nodes.json, which is of own.py:build."""
    path = written(tmp_path, model(make_node("Relu", ["x"], ["y"])))
    runs, mine = path.with_suffix(".nodes.json"), str(tmp_path / "mine.json")
    runs.write_text('{"schema_version": 1, "model": "own.py:build", "nodes": []}')
    codes = []
    # What this command wrote itself is written again.
    for arguments in ([], ["-o", mine], ["-o", mine]):
        with pytest.raises(SystemExit) as ended:
            main(["nodes", str(path), *arguments])
        codes.append(ended.value.code or 0)
    assert codes == [2, 0, 0]
    assert json.loads(runs.read_text())["nodes"] == []


@pytest.mark.parametrize("suffix", ["onnx", "pbtxt", "json", "onnxtxt", "textproto", "txt"])
@pytest.mark.parametrize("content", [b"hi", b"{}", b"\x08\x08\x12\x07garbage\xff", b"", b"\0" * 99])
def test_any_content_under_any_suffix_is_refused_in_one_line(
    tmp_path: Path, suffix: str, content: bytes
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no ONNX model"):
        read(path)


def test_names_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, model(make_node("Relu", ["x"], ["y"], name="/act/Relu")))
    path.write_bytes(path.read_bytes().replace(b"/act/Relu", b"/act\xff\xfeelu"))
    with pytest.raises(InputError, match=r"is no usable ONNX model|not UTF-8"):
        read(path)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "a.onnx"
    os.mkfifo(path)
    with pytest.raises(InputError, match="is a pipe"):
        read(path)
    with pytest.raises(InputError, match="is a pipe"):
        load(path.rename(tmp_path / "nodes.json"))


def test_weights_that_are_inputs_too_are_weights(tmp_path: Path) -> None:
    made = model(
        make_node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul"), inputs=("x", "w"), weights=("w",)
    )
    document = read(written(tmp_path, made)).document
    assert (document["inputs"], document["initializers"]) == (["x"], ["w"])


def test_nodes_of_branches_are_listed(tmp_path: Path) -> None:
    out = [helper.make_tensor_value_info("b", TensorProto.FLOAT, [2, 2])]
    branch = helper.make_graph([make_node("Neg", ["x"], ["b"], name="/f/Neg")], "t", [], out)
    node = make_node("If", ["c"], ["y"], name="/If", then_branch=branch, else_branch=branch)
    document = read(written(tmp_path, model(node, inputs=("c", "x")))).document
    assert [n["name"] for n in document["nodes"]] == ["/If", "/f/Neg #1", "/f/Neg #2"]


def test_weights_beside_the_file_need_not_be_there(tmp_path: Path) -> None:
    made = model(make_node("MatMul", ["x", "w"], ["y"], name="/fc/MatMul"), weights=("w",))
    weight = made.graph.initializer[0]
    weight.ClearField("float_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gone.data")
    assert list(nodes(tmp_path, made)) == ["/fc/MatMul"]


def test_scopes_that_are_no_list_are_no_traceback(tmp_path: Path) -> None:
    made = model(scoped("Relu", ["x"], "y", "/act/Relu", "[oops", "7"))
    assert nodes(tmp_path, made)["/act/Relu"]["module"] == "act"


@pytest.mark.parametrize("data", [b"", b"nothing of the kind", b'{"nodes": []}'])
def test_what_is_no_model_is_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "own.onnx"
    with pytest.raises(InputError, match="no such file"):
        read(path)
    path.write_bytes(data)
    with pytest.raises(InputError, match="is no ONNX model"):
        read(path)


def test_from_ones_own_onnx_file_to_the_modules_of_a_foreign_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = written(
        tmp_path,
        model(
            make_node("Gemm", ["x", "w"], ["/fc/Gemm_output_0"], name="/fc/Gemm"),
            make_node("Relu", ["/fc/Gemm_output_0"], ["y"], name="/act/Relu"),
            weights=("w",),
        ),
    )
    with pytest.raises(SystemExit) as ended:
        main(["nodes", str(source)])
    assert not ended.value.code
    made = tmp_path / "own.nodes.json"
    assert "2 nodes, of which 2 tell their module" in capsys.readouterr().err
    assert len(load(made).nodes) == 2
    name = "{ForeignNode[onnx::Gemm_3.../act/Relu]}"
    prof, info = tmp_path / "prof.json", tmp_path / "layerinfo.json"
    prof.write_text(json.dumps([{"count": 2}, {"name": name, "timeMs": 4, "averageMs": 2}]))
    sides = {"Inputs": [{"Name": "x"}], "Outputs": [{"Name": "y"}]}
    one = {"Name": name, "LayerType": "Myelin", **sides, "Metadata": ""}
    info.write_text(json.dumps({"Layers": [one], "Bindings": ["x", "y"]}))
    out = tmp_path / "out.json"
    wanted = [prof, "--layer-info", info, "--nodes", made, "-o", out]
    CliRunner().invoke(layers, [str(a) for a in wanted], catch_exceptions=False)
    [row] = json.loads(out.read_text())
    assert (row["total_ns"], row["modules"]) == (4_000_000, ["fc", "act"])


def test_wrong_files_as_nodes_say_what_they_are(tmp_path: Path) -> None:
    source = written(tmp_path, model(make_node("Relu", ["x"], ["y"], name="/act/Relu")))
    with pytest.raises(InputError, match=r"is an ONNX model.*layerline nodes"):
        load(source)
    packed = tmp_path / "nodes.json.gz"
    packed.write_bytes(gzip.compress(b"{}"))
    with pytest.raises(InputError, match=r"is compressed \(gzip\); decompress it"):
        load(packed)


def test_a_layers_json_of_ours_is_sent_to_no_option_that_refuses_it(tmp_path: Path) -> None:
    path = tmp_path / "fp16.onnxruntime.layers.json"
    document = {"schema_version": 1, "engine": "e", "backend": "onnxruntime", "precision": "fp16",
                "layers": [{"name": "a"}], "nodes": [{"name": "a", "op": "Relu"}]}  # fmt: skip
    path.write_text(json.dumps(document))
    with pytest.raises(InputError, match=r"is a layers\.json.*name the capture"):
        CliRunner().invoke(layers, [str(path)], catch_exceptions=False)
    with pytest.raises(InputError, match=r"is a layers\.json.*RUN/export/nodes\.json"):
        load(path)
