"""`layerline layers` on a real capture: TensorRT 8.6, GPT-2 with two layers, fp16, on an H100.

The capture holds seven inferences of 21 kernels. Sums were taken with `nsys stats --report
nvtxkernsum` (2022.4); modules by reading the model.
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import paths
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from layerline.analysis.attribution.resolution import FITS
from layerline.analysis.commands.layers import layers, read_layers
from layerline.analysis.comparison import runs as runs_
from layerline.analysis.report.listing.layers import show
from layerline.core.cli.command import main
from layerline.core.errors import InputError
from layerline.core.nodes import load

DATA = paths.DATA / "nsys"
CAPTURE = DATA / "h100_tensorrt86_fp16.sqlite"
NODES = DATA / "h100_tensorrt86.nodes.json"

# Innermost range: kernel time in ns (of seven inferences) and module.
TOTALS = {
    "lm_head/MatMul_matrix_multiply": (255365, ["lm_head"]),
    "slice__mye11054": (116003, ["lm_head"]),
    "Reformatting CopyNode for Output Tensor 0 to {ForeignNode[eq...lm_head/MatMul]}": (
        84291,
        ["lm_head"],
    ),
    "transformer_h_0_mlp_c_proj/Gemm_matrix_multiply": (74945, ["transformer.h.0.mlp.c_proj"]),
    "transformer_h_1_mlp_c_proj/Gemm_matrix_multiply": (74401, ["transformer.h.1.mlp.c_proj"]),
    "transformer_h_1_mlp_c_fc/Gemm_matrix_multiply": (51328, ["transformer.h.1.mlp.c_fc"]),
    "transformer_h_0_mlp_c_fc/Gemm_matrix_multiply": (50786, ["transformer.h.0.mlp.c_fc"]),
    "fc__mye10995": (46018, ["transformer.h.0.attn.c_attn"]),
    "fc__mye10988": (45920, ["transformer.h.1.attn.c_attn"]),
    "transformer_h_0_attn_c_proj/Gemm_matrix_multiply": (34304, ["transformer.h.0.attn.c_proj"]),
    "transformer_h_1_attn_c_proj/Gemm_matrix_multiply": (33539, ["transformer.h.1.attn.c_proj"]),
    "transformer/And_2+transformer/Where": (11392, ["transformer"]),
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(layers, [str(a) for a in arguments], catch_exceptions=False)


def test_all_kernel_time_of_an_h100_engine_has_its_module(tmp_path: Path) -> None:
    out = tmp_path / "layers.json"
    result = run(CAPTURE, "--nodes", NODES, "--precision", "fp16", "-o", out)
    assert result.exit_code == 0
    rows = {r["layer"]: r for r in json.loads(out.read_text())}
    assert len(rows) == 21
    for name, (total, modules) in TOTALS.items():
        assert (rows[name]["total_ns"], rows[name]["modules"]) == (total, modules), name
    gelus = [r for name, r in rows.items() if name.startswith("gelu_mul+")]
    assert sum(r["total_ns"] for r in gelus) == 37248
    assert sorted(r["modules"] for r in gelus) == [
        ["transformer.h.0.mlp.act"],
        ["transformer.h.1.mlp.act"],
    ]
    # Each kernel once: nvtxkernsum counts 1142457 ns in all enqueues together.
    assert sum(r["total_ns"] for r in rows.values()) == 1142457
    assert sum(r["kernels"] for r in rows.values()) == 147
    assert all(r["calls"] == 7 for r in rows.values())
    assert all(r["precision"] == "fp16" for r in rows.values())
    assert "resolved to modules: 100 % of the time" in result.stdout
    assert "unresolved" not in result.stdout
    counted = re.findall(r"(\w+) (\d+) \(", result.stdout.split("by rule: ")[1].splitlines()[0])
    assert sum(int(n) for _, n in counted) == 21


def test_without_nodes_it_shows_times_and_says_what_is_missing() -> None:
    result = run(CAPTURE)
    assert result.exit_code == 0
    # 147 kernels by start, 21 an inference: the fourth of the seven sums is 163076 ns.
    assert (
        "21 layers, 0.163 ms per iteration (median of 7, 95 % interval 0.163 … 0.164; 1.142"
        in result.stdout
    )
    assert "medians and intervals are per iteration (n 7)" in result.stdout
    assert "--nodes nodes.json" in result.stdout


def test_what_does_not_resolve_is_named(tmp_path: Path) -> None:
    document = json.loads(NODES.read_text())
    document["nodes"] = [n for n in document["nodes"] if "mlp.c_fc" not in n["name"]]
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps(document))
    result = run(CAPTURE, "--nodes", nodes)
    assert "unresolved: transformer_h_0_mlp_c_fc/Gemm_matrix_multiply (4.4 %)" in result.stdout
    assert " % of the time; is nodes.json that of the model" in result.stdout


@pytest.mark.parametrize("nodes", [None, NODES])
def test_a_narrow_terminal_takes_no_digits_from_figures(nodes: Path | None) -> None:
    graph = None if nodes is None else load(nodes)
    found, _, times = read_layers(CAPTURE, graph, None)
    for width in (40, 80, 120):
        text = _on_terminal(width, found, times, resolved=graph is not None)
        assert re.search(r" 36\.449 .* 22\.4 %$", text, re.MULTILINE)
        table = text.split("\n\n")[0].splitlines()
        assert max(map(len, table)) <= max(width, 61)
        assert ("35.712 … 37.537" in text) == (width == 120)
        # lm_head/MatMul_matrix_multiply: (37537 - 36449) / 36449.
        assert ("±3.0 %" in text) == (width == 80)
        assert ("left out for the width" in text) == (width < (60 if graph is None else 120))


def _on_terminal(width: int, *arguments: Any, **options: Any) -> str:
    console = Console(
        width=width, file=io.StringIO(), highlight=False, force_terminal=True, color_system=None
    )
    show(console, *arguments, **options)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_a_narrow_terminal_shows_the_module_first_and_both_ends_of_names() -> None:
    found, _, times = read_layers(CAPTURE, load(NODES), None)
    lines = _on_terminal(80, found, times, resolved=True).splitlines()
    assert lines[0].split()[:2] == ["module", "layer"]
    assert lines[1].startswith("lm_head ")
    # Both QKV projections, whose modules differ in their middle.
    cut = [line.split()[0] for line in lines if "fc__mye109" in line]
    assert cut == ["transformer.h.0.…n.c_attn", "transformer.h.1.…n.c_attn"]


def test_layers_are_summed_by_module_and_by_kind() -> None:
    shown = run(CAPTURE, "--nodes", NODES, "--by", "module").stdout.split("\n\n")[0]
    rows = [line.split("\t") for line in shown.splitlines()]
    assert rows[0][-1] == "module"
    sums = {row[-1]: (int(row[0]), float(row[1])) for row in rows[1:]}
    assert sums["lm_head"] == (3, 0.455659)  # 255365 + 116003 + 84291 ns
    assert rows[1][-1] == "lm_head"
    assert round(sum(ms for _, ms in sums.values()), 6) == 1.142457
    shown = run(CAPTURE, "--nodes", NODES, "--by", "kind").stdout.split("\n\n")[0]
    rows = [line.split("\t") for line in shown.splitlines()]
    assert [(r[-1], int(r[0]), float(r[1])) for r in rows[1:]] == [
        ("compute", 19, 0.942163), ("movement", 2, 0.200294)
    ]  # fmt: skip
    with pytest.raises(InputError, match=r"does not tell the module .*--nodes"):
        run(CAPTURE, "--by", "module")


def test_the_rules_of_a_table_are_explained_when_asked() -> None:
    assert "\nrule " not in run(CAPTURE, "--nodes", NODES).stdout
    told = run(CAPTURE, "--nodes", NODES, "--explain").stdout
    explained = re.findall(r"^rule (\w+): \w", told, re.MULTILINE)
    by_rule = re.findall(r"(\w+) \d+ \(", told.split("by rule: ")[1].splitlines()[0])
    assert explained == by_rule and len(by_rule) == 5


def test_names_are_whole_where_no_terminal_is(tmp_path: Path) -> None:
    found = pq.read_table(_written(tmp_path)).to_pylist()
    told = run(CAPTURE, "--nodes", NODES).stdout
    assert "…" not in told.split("21 layers")[0].replace(" … ", "")
    assert max(len(row["layer"]) for row in found) > 150
    for row in found:
        assert row["layer"] in told
    # Names are last: the longest makes no other line as long.
    lines = told.split("\n\n21 layers")[0].splitlines()
    assert lines[0].split("\t")[-3:] == ["rule", "module", "layer"]
    # As `cut -s -f` takes them: figures without grouping, a name whole.
    assert {line.split("\t")[-1] for line in lines[1:]} == {row["layer"] for row in found}
    assert sum(float(line.split("\t")[2]) for line in lines[1:]) == pytest.approx(
        sum(row["median_ns"] for row in found) / 1000
    )
    assert 2 * min(map(len, filter(None, lines))) < max(map(len, lines))


def _written(folder: Path) -> Path:
    out = folder / "layers.parquet"
    assert run(CAPTURE, "--nodes", NODES, "-o", out).exit_code == 0
    return out


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_the_table_is_written_in_three_formats(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"layers.{suffix}"
    assert run(CAPTURE, "--nodes", NODES, "-o", out).exit_code == 0
    if suffix == "parquet":
        assert pq.read_table(out).num_rows == 21
    elif suffix == "json":
        assert len(json.loads(out.read_text())) == 21
    else:
        lines = out.read_text().splitlines()
        assert len(lines) == 22
        assert '"[""lm_head""]"' in lines[1]
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


def test_an_unknown_format_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.csv, \.parquet, \.json"):
        run(tmp_path / "missing.sqlite", "-o", tmp_path / "x.xlsx")


def test_a_missing_capture_is_one_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["layers", str(tmp_path / "none.sqlite")])
    assert caught.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_layer_list_without_times_is_resolved_too(tmp_path: Path) -> None:
    names = ["transformer.h.0.mlp.c_fc/Gemm", "nothing of this model"]
    file = tmp_path / "layers.json"
    file.write_text(json.dumps({"Layers": names, "Bindings": ["input_ids", "logits"]}))
    result = run(file, "--nodes", NODES)
    assert "transformer.h.0.mlp.c_fc" in result.stdout
    assert "the time of 2 unknown" in result.stdout
    assert "resolved to modules: 1 of 2 layers" in result.stdout
    assert "unresolved: nothing of this model" in result.stdout


def test_a_file_without_layers_says_so(tmp_path: Path) -> None:
    file = tmp_path / "stats.csv"
    file.write_text("Time (%),Total Time (ns),Instances,Name\n100.0,5,1,k\n")
    with pytest.raises(InputError, match="names no engine layers"):
        run(file)


def ort_run(folder: Path, runs: int = 5, warmup: int | None = 2) -> Path:
    """A run's profile: a warm-up of 900 us in each layer, then 10, 11, 12 us and 20, 21, 22 us; the
    second layer has a name of ONNX Runtime's own. Gives the profile."""
    events = []
    for i in range(runs):
        start = 10_000 * (i + 1)
        times = (900, 900) if i < (warmup or 0) else (8 + i, 18 + i)
        events.append(ort_event("model_run", start, 5_000, "Session"))
        events.append(
            ort_event("h.0.fc/MatMul_kernel_time", start + 10, times[0], op_name="MatMul")
        )
        events.append(ort_event("GPT2Gelu_kernel_time", start + 2_000, times[1], op_name="Gelu"))
    for name in ("captures", "engines", "export"):
        (folder / name).mkdir(parents=True)
    path = folder / "captures" / "fp32.onnxruntime.profile.json"
    path.write_text("[" + ",\n".join(json.dumps(e) for e in events) + "]")
    if warmup is not None:
        meta = {"profile": path.name, "facts": {"warmup_runs": warmup}}
        path.with_suffix(".meta.json").write_text(json.dumps(meta))
    listed = [
        {"name": "h.0.fc/MatMul", "occurrence": 0, "nodes": ["h.0.fc/MatMul"],
         "modules": ["h.0.fc"], "rule": "name"},
        {"name": "GPT2Gelu", "occurrence": 0, "nodes": ["h.0.act/Tanh"],
         "modules": ["h.0.act"], "rule": "boundary"},
    ]  # fmt: skip
    (folder / "engines" / "fp32.onnxruntime.layers.json").write_text(
        json.dumps({"schema_version": 1, "precision": "fp32", "layers": listed})
    )
    node = {
        "name": "h.0.fc/MatMul",
        "op": "MatMul",
        "module": "h.0.fc",
        "inputs": [],
        "outputs": [],
    }
    (folder / "export" / "fp32.nodes.json").write_text(
        json.dumps({"schema_version": 1, "nodes": [node]})
    )
    return path


def ort_event(name: str, ts: int, dur: int, cat: str = "Node", **args: str) -> dict[str, object]:
    return {"cat": cat, "pid": 9, "tid": 7, "ph": "X", "name": name, "ts": ts, "dur": dur,
            "args": {"provider": "CPUExecutionProvider", **args}}  # fmt: skip


def test_a_runs_own_profile_has_the_calls_and_modules_of_its_report(tmp_path: Path) -> None:
    capture = ort_run(tmp_path)
    for nodes in ((), ("--nodes", tmp_path / "export" / "fp32.nodes.json")):
        result = run(capture, *nodes, "-o", tmp_path / "layers.json")
        rows = {r["layer"]: r for r in json.loads((tmp_path / "layers.json").read_text())}
        assert {n: (r["calls"], r["median_ns"], r["modules"]) for n, r in rows.items()} == {
            "h.0.fc/MatMul": (3, 11_000, ["h.0.fc"]),
            "GPT2Gelu": (3, 21_000, ["h.0.act"]),
        }
        # 30, 32 and 34 us.
        assert "2 layers, 0.032 ms per iteration (median of 3" in result.stdout
        assert "0.096 ms in all" in result.stdout
        assert "resolved to modules: 100 % of the time" in result.stdout


def test_another_nodes_json_decides_over_the_runs_own(tmp_path: Path) -> None:
    capture = ort_run(tmp_path / "run")
    nodes = tmp_path / "nodes.json"
    nodes.write_text((tmp_path / "run" / "export" / "fp32.nodes.json").read_text())
    assert "unresolved: GPT2Gelu" in run(capture, "--nodes", nodes).stdout


def test_warm_up_that_nothing_tells_of_is_counted_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capture = ort_run(tmp_path, warmup=None)
    with pytest.raises(SystemExit):
        main(["layers", str(capture)])
    shown, said = capsys.readouterr()
    assert "(n 5)" in shown
    assert "every run is counted, warm-up too" in said
    (capture.with_suffix(".meta.json")).write_text('{"facts": {"warmup_runs": 2}}')
    with pytest.raises(SystemExit):
        main(["layers", str(capture)])
    shown, said = capsys.readouterr()
    assert "(n 3)" in shown and "2 warm-up runs are left out" in said


def test_median_of_a_conditional_layer_says_how_many_reports_it_is_of(tmp_path: Path) -> None:
    """B ran in 5 of 10 iterations (10 ms in all, 2 ms on average): its median is of those 5."""
    records = [
        {"count": 10},
        {"name": "A", "timeMs": 10, "averageMs": 1.0, "medianMs": 1.0, "percentage": 50},
        {"name": "B", "timeMs": 10, "averageMs": 2.0, "medianMs": 2.0, "percentage": 50},
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(records))
    result = run(path)
    assert "medians and intervals are per iteration (n 10; B n 5);" in result.stdout
    assert "2.000 ms per iteration (mean of 10; 20.000 ms in all)" in result.stdout
    assert "B (5 of 10)" in result.stderr
    found, _, _ = read_layers(path, None, None)
    assert sum(found["total_ns"].to_pylist()) == 20_000_000


def test_times_of_iterations_are_told_from_times_of_layers(tmp_path: Path) -> None:
    path = tmp_path / "times.json"
    path.write_text(json.dumps([{"startH2dMs": 1, "endH2dMs": 2, "latencyMs": 3}]))
    with pytest.raises(InputError) as caught:
        read_layers(path, None, None)
    assert "trtexec --exportTimes" in caught.value.line()
    assert "--exportProfile" in caught.value.line()
    assert "trt-profile" not in caught.value.line()


def test_compare_of_a_capture_names_its_kind_and_the_way_to_a_table(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        runs_.load(CAPTURE)
    assert "nsys-sqlite" in caught.value.line()
    assert f"layerline layers {CAPTURE} -o {CAPTURE.stem}.parquet" in caught.value.line()
    # and that is what compare takes
    made = tmp_path / "made.parquet"
    assert run(CAPTURE, "-o", made).exit_code == 0
    assert len(runs_.load(made).measures) == 21


def test_names_that_tensorrt_10_made_up_ask_for_the_layer_information(tmp_path: Path) -> None:
    names = ["fc/MatMul_myl0_0", "__myl_SiluMul_myl0_1", "_gemm_mha_v2_myl0_2"]
    profile, nodes = tmp_path / "profile.json", tmp_path / "nodes.json"
    rows = [{"name": n, "timeMs": 1.0, "averageMs": 0.1, "medianMs": 0.1} for n in names]
    profile.write_text(json.dumps([{"count": 10}, *rows]))
    listed = [
        {"name": "fc/MatMul", "op": "MatMul", "module": "fc", "inputs": ["x"], "outputs": ["y"]},
        {"name": "act/Mul", "op": "Mul", "module": "act", "inputs": ["y", "y"], "outputs": ["z"]},
    ]
    graph = {"schema_version": 1, "inputs": ["x"], "outputs": ["z"], "initializers": []}
    nodes.write_text(json.dumps({**graph, "nodes": listed}))
    said = run(profile, "--nodes", nodes).stdout
    assert "2 layers (66.7 % of the time) have names that TensorRT made up: --layer-info" in said
    assert FITS not in said
