"""`layerline layers` on a real capture: TensorRT 8.6, GPT-2 with two layers, fp16, on an H100.

The capture holds seven inferences of 21 kernels. Sums were taken with `nsys stats --report
nvtxkernsum` (2022.4); modules by reading the model.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from layerline.analysis.layers_command import layers
from layerline.core import cli
from layerline.core.errors import InputError

DATA = Path(__file__).parent / "data" / "nsys"
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
    assert "resolved to modules: 100.0% of the time" in result.stdout
    assert "unresolved" not in result.stdout
    counted = re.findall(r"(\w+) (\d+) \(", result.stdout.split("by rule: ")[1].splitlines()[0])
    assert sum(int(n) for _, n in counted) == 21


def test_without_nodes_it_shows_times_and_says_what_is_missing() -> None:
    result = run(CAPTURE)
    assert result.exit_code == 0
    assert "21 layers, 1.142 ms in all" in result.stdout
    assert "--nodes nodes.json" in result.stdout


def test_what_does_not_resolve_is_named(tmp_path: Path) -> None:
    document = json.loads(NODES.read_text())
    document["nodes"] = [n for n in document["nodes"] if "mlp.c_fc" not in n["name"]]
    nodes = tmp_path / "nodes.json"
    nodes.write_text(json.dumps(document))
    result = run(CAPTURE, "--nodes", nodes)
    assert "unresolved: transformer_h_0_mlp_c_fc/Gemm_matrix_multiply (4.4%)" in result.stdout


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
        cli.main(["layers", str(tmp_path / "none.sqlite")])
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
