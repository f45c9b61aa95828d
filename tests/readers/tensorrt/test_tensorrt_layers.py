"""TensorRT layer information: JSON of every age, names only, ONELINE text, several documents."""

from __future__ import annotations

import json

import pytest

from layerline.analysis.readers.base import Head
from layerline.analysis.readers.tensorrt import layers
from layerline.core.errors import InputError
from layerline.core.tables import SCHEMAS
from layerline.core.tensor_types import joined, precision_of


def tensor(name, kind, dimensions=(1, 3), **more):
    return {"Name": name, "Dimensions": list(dimensions), "Format/Datatype": kind, **more}


def layer(name, kind="CaskConvolution", inputs=(), outputs=(), **more):
    return {
        "Name": name,
        "LayerType": kind,
        "Inputs": list(inputs),
        "Outputs": list(outputs),
        **more,
    }


def read(tmp_path, content):
    path = tmp_path / "info.json"
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_text(text, encoding="utf-8")
    assert layers.sniff(Head(path, text.encode(), len(text)))
    artefact = layers.read(path)
    assert artefact.main.schema == SCHEMAS["layers"]
    return artefact


def test_a_detailed_engine_of_8_6(tmp_path):
    artefact = read(
        tmp_path,
        {
            "Layers": [
                layer(
                    "a/Gemm + a/Relu",
                    inputs=[tensor("x", "Row major linear FP32", Location="Device")],
                    outputs=[tensor("y", "Channel major FP16 format where channel % 8 == 0")],
                    TacticName="sm80_gemm",
                    TacticValue="0x01",
                    StreamId=2,
                    Metadata="[ONNX Layer: a/Gemm]\x1e[ONNX Layer: a/Relu]",
                )
            ],
            "Bindings": ["x", "y"],
        },
    )
    [row] = artefact.main.to_pylist()
    assert row["layer"] == "a/Gemm + a/Relu"
    assert row["kind"] == "CaskConvolution"
    assert row["nodes"] == ["a/Gemm", "a/Relu"]
    assert (row["precision_in"], row["precision_out"]) == ("fp32", "fp16")
    assert row["tactic"] == "sm80_gemm"
    # Nothing was timed, so nothing is zero.
    assert [row[c] for c in ("total_ns", "median_ns", "calls", "kernels", "modules")] == [None] * 5
    assert artefact.facts["bindings"] == ["x", "y"]
    assert artefact.tables["details"].to_pylist()[0]["stream"] == 2
    first = artefact.tables["tensors"].to_pylist()[0]
    assert (first["direction"], first["tensor"], first["dimensions"]) == ("input", "x", [1, 3])


def test_8_4_without_metadata_and_streams(tmp_path):
    content = {"Layers": [layer("a", TacticValue="0x05")]}
    [row] = read(tmp_path, content).main.to_pylist()
    assert (row["nodes"], row["tactic"], row["precision_in"]) == (None, "0x05", None)


def test_myelin_layers_of_10_join_metadata_by_unit_separators(tmp_path):
    content = {
        "Layers": [
            layer(
                "m_myl9_2",
                kind="kgen",
                inputs=[tensor("x", "Half"), tensor("alpha", "Float")],
                outputs=[tensor("y", "Half")],
                Metadata="[ONNX Layer: /c.1/Gemm]\x1f[ONNX Layer: /c.2/Relu]",
            )
        ]
    }
    [row] = read(tmp_path, content).main.to_pylist()
    assert row["nodes"] == ["/c.1/Gemm", "/c.2/Relu"]
    assert (row["kind"], row["precision_in"], row["tactic"]) == ("kgen", "fp16+fp32", None)


def test_node_names_may_hold_brackets(tmp_path):
    assert layers.onnx_nodes("[ONNX Layer: a[0]/B]\x1e[ONNX Layer: c]") == ["a[0]/B", "c"]
    assert layers.onnx_nodes("[ONNX Layer: a][ONNX Layer: b]") == ["a", "b"]
    assert layers.onnx_nodes("") is None
    assert layers.onnx_nodes("[TRT Layer: x]") is None


def test_names_only_says_what_is_missing(tmp_path):
    artefact = read(tmp_path, {"Layers": ["[trainStation1]", "conv + relu"], "Bindings": ["x"]})
    assert artefact.main["layer"].to_pylist() == ["[trainStation1]", "conv + relu"]
    assert artefact.main["kind"].to_pylist() == [None, None]
    assert artefact.facts["detailed"] is False
    assert any("detailed profiling verbosity" in note for note in artefact.notes)
    assert list(artefact.tables) == ["layers"]


def test_several_engines_are_numbered(tmp_path):
    one, two = {"Layers": [layer("a")]}, {"Layers": [layer("a"), layer("b")]}
    artefact = read(tmp_path, json.dumps(one) + "\n" + json.dumps(two))
    rows = [(r["engine"], r["layer"]) for r in artefact.main.to_pylist()]
    assert rows == [("0", "a"), ("1", "a"), ("1", "b")]


def test_layers_one_by_one_are_one_engine(tmp_path):
    artefact = read(tmp_path, json.dumps(layer("a")) + "\n" + json.dumps(layer("b")))
    assert artefact.main["layer"].to_pylist() == ["a", "b"]
    assert artefact.main["engine"].to_pylist() == [None, None]


def test_a_json_string_that_holds_the_json(tmp_path):
    artefact = read(tmp_path, json.dumps(json.dumps({"Layers": [layer("a")]})))
    assert artefact.main["layer"].to_pylist() == ["a"]


def test_optimisation_profiles_are_said(tmp_path):
    artefact = read(tmp_path, {"Layers": [layer("a"), layer("a [profile 1]")]})
    assert artefact.tables["details"]["profile"].to_pylist() == [None, 1]
    assert any(note.startswith("2 optimisation profiles") for note in artefact.notes)


ONELINE = (
    "Layers:\n"
    "Name: a/Conv + b, with comma, LayerType: CaskConvolution, Inputs: [ { Name: x, y, Location: "
    "Device, Dimensions: [1,3], Format/Datatype: Row major linear FP32 }], Outputs: [ { Name: z, "
    'Dimensions: [1,-1], Format/Datatype: Half }], Kernel: [1,1], Weights: {"Type": "Half", '
    '"Count": 9}, TacticName: t_name, StreamId: 1, Metadata: '
    "[ONNX Layer: a/Conv]\x1f[ONNX Layer: b]\n"
    "Name: c, LayerType: Reformat, Inputs: [], Outputs: [], Origin: QDQ, TacticValue: 0x03\n"
    "\n"
    "Bindings:\nx, y\nz\n"
)


def test_oneline_text(tmp_path):
    artefact = read(tmp_path, ONELINE)
    first, second = artefact.main.to_pylist()
    assert first["layer"] == "a/Conv + b, with comma"
    assert first["nodes"] == ["a/Conv", "b"]
    assert (first["precision_in"], first["precision_out"]) == ("fp32", "fp16")
    assert (first["kind"], first["tactic"]) == ("CaskConvolution", "t_name")
    assert (second["layer"], second["kind"], second["tactic"]) == ("c", "Reformat", "0x03")
    assert artefact.facts["bindings"] == ["x, y", "z"]
    assert artefact.tables["tensors"]["tensor"].to_pylist() == ["x, y", "z"]
    assert artefact.tables["details"]["stream"].to_pylist() == [1, None]


def test_oneline_inside_a_log_is_taken_once(tmp_path):
    log = (
        "[01/10/2026-21:55:12] [V] [TRT] Layers:\n"
        + ONELINE.removeprefix("Layers:\n")
        + "\n[01/10/2026-21:55:13] [I] Starting inference\n[01/10/2026-21:55:13] [I] Layers:\n"
        + ONELINE.removeprefix("Layers:\n")
        + "\n[01/10/2026-21:55:14] [I] === Performance summary ===\n"
    )
    artefact = read(tmp_path, log)
    assert artefact.main.num_rows == 2
    assert artefact.facts["bindings"] == ["x, y", "z"]
    assert any("printed 2 times" in note for note in artefact.notes)


def test_oneline_names_only(tmp_path):
    artefact = read(
        tmp_path, "Layers:\nconv1 + relu\n(Unnamed Layer* 3) [Shuffle]\n\nBindings:\nx\n"
    )
    assert artefact.main["layer"].to_pylist() == ["conv1 + relu", "(Unnamed Layer* 3) [Shuffle]"]
    assert artefact.facts["bindings"] == ["x"]


@pytest.mark.parametrize(
    "content",
    [
        '{"Layers": []}',
        '{"Layers": [1]}',
        '{"Layers": [{"LayerType": "x"}]}',
        '{"Layers": [{"Name": "a", "Inputs": 3}]}',
        '{"Layers": [{"Name": "a", "Inputs": [3]}]}',
        '{"Layers": ["a"',
        '[3, {"Layers": []}]',
    ],
)
def test_what_is_no_layer_information_is_one_line(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(InputError) as e:
        layers.read(path)
    assert "\n" not in e.value.line()


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("Row major linear FP32", "fp32"),
        ("Channel major FP16 format where channel % 4 == 0", "fp16"),
        ("Thirty-two wide channel vectorized row major Int8 format", "int8"),
        ("Two wide channel vectorized row major FP16 format", "fp16"),
        ("Half", "fp16"),
        ("Float", "fp32"),
        ("BFloat16", "bf16"),
        ("Row major linear BFloat16", "bf16"),
        ("FP8", "fp8"),
        ("Int64", "int64"),
        ("Row major linear Bool", "bool"),
        ("N/A due to dynamic shapes", None),
        ("", None),
        (None, None),
    ],
)
def test_precision_of_formats(text, precision):
    assert precision_of(text) == precision


def test_partly_unknown_precisions_show_it():
    assert joined(["fp16", None, "fp16"]) == "fp16+?"
    assert joined([None, None]) is None
    assert joined([]) is None


@pytest.mark.parametrize(
    ("content", "limit"),
    [
        ({"Layers": [layer(str(i)) for i in range(6)]}, "MAX_ROWS"),
        ({"Layers": [layer("a", inputs=[tensor("x", "Half")] * 6)]}, "MAX_ROWS"),
        ("".join(json.dumps({"Layers": [str(i)]}) for i in range(6)), "MAX_ENGINES"),
    ],
)
def test_more_than_any_engine_holds_is_refused(tmp_path, monkeypatch, content, limit):
    assert read(tmp_path, content)
    monkeypatch.setattr(layers, limit, 5)
    with pytest.raises(InputError, match="more than"):
        read(tmp_path, content)


def test_text_that_was_made_to_be_slow_is_read_once(tmp_path, monkeypatch):
    """Tensors that never end would each be looked for up to the end of the line; and a file of
    layers without end is given up, not read to the end."""
    monkeypatch.setattr(layers, "MAX_ROWS", 5)
    line = "Name: a, LayerType: kgen, Inputs: [" + "{ Name: x, " * 30_000 + "]\n"
    assert read(tmp_path, "Layers:\n" + line).main["layer"].to_pylist() == ["a"]
    with pytest.raises(InputError, match="with 6 layers, more than"):
        read(tmp_path, "Layers:\n" + "Name: a, LayerType: kgen\n" * 30)


@pytest.mark.parametrize("odd", ["\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\u2028"])
@pytest.mark.parametrize("joint", ["\x1e", "\x1f"])
def test_only_line_ends_end_a_line_of_text(tmp_path, joint, odd):
    """`str.splitlines` also cuts where TensorRT joins names."""
    text = f"Name: a, LayerType: gemm, Metadata: [ONNX Layer: a{odd}b]{joint}[ONNX Layer: c]"
    (row,) = read(tmp_path, f"Layers:\n{text}\n\nBindings:\nx\n").main.to_pylist()
    assert row["nodes"] == [f"a{odd}b", "c"]
