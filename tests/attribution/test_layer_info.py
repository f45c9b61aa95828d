"""`layerline layers PROFILE --layer-info FILE`: times and layer information joined by name.

The model is `a` then `b`, two Gemms with an Add between; forms are those of TensorRT 8.6 (Myelin's
ForeignNode, no metadata), 10 and 11 (layers inside Myelin with metadata, kinds in lower case).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import paths
import pytest
from click.testing import CliRunner, Result
from nsys_build import Export

from layerline.analysis.commands.layers import layers
from layerline.core.cli.command import main
from layerline.core.errors import InputError

FOREIGN = "{ForeignNode[eq...node_linear]}"
COPY = f"Reformatting CopyNode for Output Tensor 0 to {FOREIGN}"


def node(name: str, inputs: list[str], output: str) -> dict[str, Any]:
    module, _, op = name.rpartition("/")
    return {"name": name, "op": op, "module": module, "inputs": inputs, "outputs": [output]}


def model(folder: Path) -> Path:
    nodes = [
        node("a/Gemm", ["x", "a.weight"], "p"),
        node("/Add", ["p", "x"], "q"),
        node("b/Gemm", ["q", "b.weight"], "y"),
    ]
    path = folder / "nodes.json"
    document = {"schema_version": 1, "inputs": ["x"], "outputs": ["y"],
                "initializers": ["a.weight", "b.weight"], "nodes": nodes}  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def tensor(name: str, kind: str = "Row major linear FP16 format") -> dict[str, Any]:
    return {"Name": name, "Location": "Device", "Dimensions": [1, 4], "Format/Datatype": kind}


def layer(name: str, kind: str, inputs: list[str], outputs: list[str], **more: Any) -> Any:
    return {"Name": name, "LayerType": kind, "Inputs": [*map(tensor, inputs)],
            "Outputs": [*map(tensor, outputs)], "Metadata": "", **more}  # fmt: skip


def told(folder: Path, *found: Any) -> Path:
    path = folder / "layerinfo.json"
    path.write_text(json.dumps({"Layers": list(found), "Bindings": ["x", "y"]}))
    return path


def profile(folder: Path, *times: tuple[str, float]) -> Path:
    """As trtexec --exportProfile writes it, of ten iterations; times in ms of one."""
    records: list[dict[str, Any]] = [{"count": 10}]
    for name, ms in times:
        records.append(
            {"name": name, "timeMs": ms * 10, "averageMs": ms, "medianMs": ms, "percentage": 1}
        )
    path = folder / "prof.json"
    path.write_text(json.dumps(records))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(layers, [str(a) for a in arguments], catch_exceptions=False)


def table(folder: Path, *arguments: object) -> list[dict[str, Any]]:
    out = folder / "out.json"
    run(*arguments, "-o", out)
    found: list[dict[str, Any]] = json.loads(out.read_text())
    return found


def of_8_6(folder: Path) -> tuple[Path, Path, Path]:
    inner = f"Reformatted Output Tensor 0 to {FOREIGN}"
    info = told(
        folder,
        layer(FOREIGN, "Myelin", ["x"], [inner], TacticValue="0x0"),
        layer(COPY, "Reformat", [inner], ["y"], Origin="REFORMAT"),
    )
    return profile(folder, (FOREIGN, 0.9), (COPY, 0.1)), info, model(folder)


def test_a_foreign_node_of_8_6_has_times_of_one_file_and_modules_of_the_other(
    tmp_path: Path,
) -> None:
    prof, info, nodes = of_8_6(tmp_path)
    first, second = table(tmp_path, prof, "--layer-info", info, "--nodes", nodes)
    assert (first["layer"], first["total_ns"], first["median_ns"]) == (FOREIGN, 9_000_000, 900_000)
    assert (first["calls"], first["kind"], first["source"]) == (10, "Myelin", "prof.json")
    assert (first["nodes"], first["rule"]) == (["a/Gemm", "/Add", "b/Gemm"], "boundary")
    assert first["modules"] == ["a", "", "b"]
    assert (first["precision_in"], first["precision_out"]) == ("fp16", "fp16")
    assert (second["total_ns"], second["modules"], second["rule"]) == (1_000_000, ["b"], "carrier")
    shown = run(prof, "--layer-info", info, "--nodes", nodes).stdout
    assert "resolved to modules: 100 % of the time\n" in shown
    assert "a ForeignNode (90.0 % of the time), compiled whole: an nsys capture" in shown


def test_alone_it_says_what_would_help_and_blames_no_nodes_json(tmp_path: Path) -> None:
    prof, _, nodes = of_8_6(tmp_path)
    shown = run(prof, "--nodes", nodes).stdout
    assert f"unresolved: {FOREIGN} (90.0 %)" in shown
    assert "resolved to modules: 0 % of the time\n" in shown
    assert "--layer-info layerinfo.json" in shown and "an nsys capture" in shown
    assert "--layer-info layerinfo.json" in run(prof).stdout


def test_another_nodes_json_is_still_asked_about_when_layer_info_is_there(tmp_path: Path) -> None:
    prof, info, nodes = of_8_6(tmp_path)
    nodes.write_text(nodes.read_text().replace('"x"', '"other"').replace('"y"', '"outcome"'))
    shown = run(prof, "--layer-info", info, "--nodes", nodes).stdout
    assert "0 % of the time; is nodes.json that of the model" in shown
    assert "--layer-info" not in shown


@pytest.mark.parametrize("separator", ["\x1f", "\x1e"])
def test_layers_inside_myelin_of_10_and_11_take_their_nodes_from_metadata(
    tmp_path: Path, separator: str
) -> None:
    one, two = "__myl_Fc_myl0_1", "__myl_AddFc_myl0_2"
    both = f"[ONNX Layer: /Add]{separator}[ONNX Layer: b/Gemm]"
    info = told(
        tmp_path,
        layer(one, "gemm", ["x"], ["t1"], Metadata="[ONNX Layer: a/Gemm]"),
        layer(two, "kgen", ["t1", "x"], ["y"], Metadata=both),
    )
    # The profile lists them in another order: the name decides.
    prof = profile(tmp_path, (two, 0.2), (one, 0.3))
    found = table(tmp_path, prof, "--layer-info", info, "--nodes", model(tmp_path))
    rows = {r["layer"]: r for r in found}
    assert (rows[one]["total_ns"], rows[one]["modules"]) == (3_000_000, ["a"])
    assert (rows[one]["kind"], rows[two]["kind"]) == ("gemm", "kgen")
    assert (rows[two]["total_ns"], rows[two]["modules"]) == (2_000_000, ["", "b"])
    assert {r["rule"] for r in rows.values()} == {"name"}
    # Without nodes.json the nodes of the metadata stay.
    rows = {r["layer"]: r for r in table(tmp_path, prof, "--layer-info", info)}
    assert rows[two]["nodes"] == ["/Add", "b/Gemm"] and rows[two]["modules"] is None


def test_layers_that_one_file_lacks_are_named_and_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = told(
        tmp_path,
        layer("a/Gemm", "CaskGemmConvolution", ["x"], ["p"]),
        layer("untimed", "NoOp", ["p"], ["p2"]),
        layer("b/Gemm", "CaskGemmConvolution", ["q"], ["y"]),
    )
    prof = profile(tmp_path, ("a/Gemm", 0.3), ("[trainStation1]", 0.1), ("b/Gemm", 0.2))
    rows = table(tmp_path, prof, "--layer-info", info, "--nodes", model(tmp_path))
    assert [(r["layer"], r["total_ns"], r["kind"]) for r in rows] == [
        ("a/Gemm", 3_000_000, "CaskGemmConvolution"),
        ("[trainStation1]", 1_000_000, None),
        ("untimed", None, "NoOp"),
        ("b/Gemm", 2_000_000, "CaskGemmConvolution"),
    ]
    assert [r["modules"] for r in rows if r["layer"].endswith("Gemm")] == [["a"], ["b"]]
    with pytest.raises(SystemExit):
        main(["layers", str(prof), "--layer-info", str(info)])
    said = capsys.readouterr().err
    assert "1 name of layers is not in layerinfo.json: [trainStation1]" in said
    assert "1 name of layers is without a time in prof.json: untimed" in said


def test_layers_of_one_name_are_told_apart_by_their_run(tmp_path: Path) -> None:
    info = told(
        tmp_path,
        layer("gemm", "gemm", ["x"], ["p"]),
        layer("sum", "kgen", ["p", "x"], ["q"]),
        layer("gemm", "gemm", ["q"], ["y"]),
    )
    prof = profile(tmp_path, ("gemm", 0.3), ("sum", 0.1), ("gemm", 0.2))
    rows = table(tmp_path, prof, "--layer-info", info, "--nodes", model(tmp_path))
    assert [(r["total_ns"], r["modules"]) for r in rows] == [
        (3_000_000, ["a"]),
        (1_000_000, [""]),
        (2_000_000, ["b"]),
    ]


def test_a_name_that_one_file_has_more_often_is_not_guessed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    info = told(
        tmp_path,
        layer("gemm", "gemm", ["x"], ["p"]),
        layer("gemm", "gemm", ["q"], ["y"]),
        layer("sum", "kgen", ["p", "x"], ["q"]),
    )
    prof = profile(tmp_path, ("gemm", 0.3), ("sum", 0.1))
    rows = table(tmp_path, prof, "--layer-info", info)
    assert [(r["layer"], r["kind"], r["total_ns"]) for r in rows] == [
        ("gemm", None, 3_000_000),
        ("sum", "kgen", 1_000_000),
    ]
    with pytest.raises(SystemExit):
        main(["layers", str(prof), "--layer-info", str(info)])
    assert "which is which is not known: gemm" in capsys.readouterr().err


def test_tensors_of_layers_of_one_name_stay_apart_in_a_layer_list(tmp_path: Path) -> None:
    info = told(
        tmp_path,
        layer("gemm", "gemm", ["x"], ["p"]),
        layer("gemm", "gemm", ["q"], ["y"]),
    )
    rows = table(tmp_path, info, "--nodes", model(tmp_path))
    assert [r["modules"] for r in rows] == [["a"], ["b"]]


def test_times_of_an_iprofiler_are_joined_with_their_intervals(tmp_path: Path) -> None:
    _, info, nodes = of_8_6(tmp_path)
    prof = tmp_path / "times.json"
    prof.write_text(json.dumps({FOREIGN: [0.9] * 8, COPY: [0.1] * 8}))
    first, _ = table(tmp_path, prof, "--layer-info", info, "--nodes", nodes)
    assert (first["total_ns"], first["p99_ns"], first["rule"]) == (7_200_000, 900_000, "boundary")


def test_each_run_in_a_profile_is_joined(tmp_path: Path) -> None:
    prof, info, nodes = of_8_6(tmp_path)
    prof.write_text(prof.read_text() * 2)
    rows = table(tmp_path, prof, "--layer-info", info, "--nodes", nodes)
    assert [(r["engine"], r["rule"]) for r in rows] == [
        ("0", "boundary"), ("0", "carrier"), ("1", "boundary"), ("1", "carrier"),
    ]  # fmt: skip


def test_files_given_the_wrong_way_round_say_which_goes_where(tmp_path: Path) -> None:
    prof, info, _ = of_8_6(tmp_path)
    with pytest.raises(InputError, match="name it as CAPTURE"):
        run(info, "--layer-info", prof)
    with pytest.raises(InputError, match=r"is layer information itself.*as CAPTURE"):
        run(info, "--layer-info", info)


def test_layer_info_of_another_engine_or_of_several_is_refused(tmp_path: Path) -> None:
    prof, info, _ = of_8_6(tmp_path)
    document = json.loads(info.read_text())
    info.write_text(json.dumps(document) + json.dumps({"Layers": [layer("z", "NoOp", [], [])]}))
    with pytest.raises(InputError, match="describes 2 engines"):
        run(prof, "--layer-info", info)
    told(tmp_path, layer("z", "NoOp", [], []))
    with pytest.raises(InputError, match=r"no layer in common with layerinfo\.json"):
        run(prof, "--layer-info", info)


def test_layer_info_as_network_json_says_where_it_goes(tmp_path: Path) -> None:
    prof, info, nodes = of_8_6(tmp_path)
    with pytest.raises(InputError, match="--layer-info"):
        run(prof, "--network", info, "--nodes", nodes)


def test_an_nsys_capture_takes_layer_info_too(tmp_path: Path) -> None:
    data = paths.DATA / "nsys"
    capture, nodes = data / "h100_tensorrt86_fp16.sqlite", data / "h100_tensorrt86.nodes.json"
    # The range of the reformat is the layer's own; those inside the ForeignNode have other names.
    name = "Reformatting CopyNode for Output Tensor 0 to {ForeignNode[eq...lm_head/MatMul]}"
    info = told(tmp_path, layer(name, "Reformat", ["inner"], ["logits"], TacticValue="0x3ea"))
    rows = {r["layer"]: r for r in table(tmp_path, capture, "--nodes", nodes, "--layer-info", info)}
    assert (rows[name]["total_ns"], rows[name]["tactic"]) == (84291, "0x3ea")
    assert (rows[name]["precision_in"], rows[name]["modules"]) == ("fp16", ["lm_head"])
    assert len(rows) == 21 and sum(r["tactic"] is None for r in rows.values()) == 20
    assert "compiled whole" not in run(capture, "--nodes", nodes).stdout


def test_tensors_of_layer_info_say_what_a_capture_does_not(tmp_path: Path) -> None:
    """A ForeignNode in which nothing has a name: its modules are those between its tensors."""
    export = Export()
    export.domain(1, "TensorRT")
    export.range("ExecutionContext::enqueue", 1000, 2000, domain=1)
    export.range(FOREIGN, 1010, 1900, domain=1)
    export.launch(1100, 5)
    for at, name, duration in ((1910, COPY, 3), (1950, "else", 1)):
        export.range(name, at, at + 30, domain=1)
        export.launch(at + 10, duration)
    capture = export.write(tmp_path / "c.sqlite")
    _, info, nodes = of_8_6(tmp_path)
    foreign, copy, other = table(tmp_path, capture, "--nodes", nodes, "--layer-info", info)
    assert (foreign["layer"], foreign["total_ns"]) == (FOREIGN, 5)
    assert (foreign["modules"], foreign["rule"]) == (["a", "", "b"], "boundary")
    assert (copy["modules"], copy["rule"]) == (["b"], "carrier")
    assert (foreign["tactic"], other["tactic"]) == ("0x0", None)
    alone, *_ = table(tmp_path, capture, "--nodes", nodes)
    assert (alone["modules"], alone["tactic"]) == (None, None)
    said = run(capture, "--nodes", nodes, "--layer-info", info).output
    assert "layerinfo.json describes 2 of the 3 layers of the capture" in said
