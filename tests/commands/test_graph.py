"""`layerline graph`: files, sides, links, and what is said where something is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from run_by_hand import outcome, write_run

from layerline.core.files import write_json
from layerline.core.tables import SCHEMAS, write_parquet

NODES = {
    "schema_version": 1,
    "inputs": ["x"],
    "outputs": ["y"],
    "nodes": [
        {"name": "a/Gemm", "op": "Gemm", "module": "a", "inputs": ["x"], "outputs": ["t"]},
        {"name": "b/Gemm", "op": "Gemm", "module": "b", "inputs": ["t"], "outputs": ["y"]},
    ],
}


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "tiny"
    write_run(path)
    write_json(path / "export/nodes.json", NODES)
    assert outcome("report", "--run", path) == 0
    return path


def text(path: Path) -> str:
    return path.read_text()


def test_a_run_is_coloured_by_its_engine_and_linked_to_its_page(reported: Path) -> None:
    assert outcome("graph", "--run", reported) == 0
    drawn = text(reported / "report/graph.svg")
    assert "share of the operation time of engine/fp16.onnxruntime/inference" in drawn
    # a: 305 us of its own, 410 us with the layer that it shares with b, of 920 us.
    assert "33.2 % – 44.6 %" in drawn
    assert 'href="index.html#module:a"' in drawn


def test_another_side_and_place_are_as_asked(reported: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "g.dot"
    out.parent.mkdir()
    side = "eager/fp32/inference"
    assert outcome("graph", "--run", reported, "-o", out, "--side", side) == 0
    address = re.search(r'URL="([^"#]*)#module:a"', text(out))
    assert address and (out.parent / address[1]).resolve() == reported / "report/index.html"


def test_tables_of_training_colour_it(reported: Path) -> None:
    rows = [
        {"source": "s", "step": 0, "index": i, "module": m, "elements": n, "changed": c}
        for i, (m, n, c) in enumerate((("a", 10, 5), ("b", 30, 0)))
    ]
    parameters = pa.Table.from_pylist(rows, schema=SCHEMAS["parameters"])
    write_parquet(reported / "tables/parameters.parquet", parameters)
    out = reported / "report/hot.svg"
    assert outcome("graph", "--run", reported, "--colour", "hotness", "-o", out) == 0
    assert ">50.0 %<" in text(out) and ">0 %<" in text(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--colour", "memory"], "has no table of memory"),
        (["--colour", "error"], "no error by module was measured"),
        (["--side", "engine/fp8"], "there is no side engine/fp8"),
        (["--open", "c.1"], "there is no module c.1"),
        (["-o", "x.png"], "is written as SVG or DOT"),
        (["--nodes", "n.json"], "name a run, or a nodes.json with --nodes"),
    ],
)
def test_what_cannot_be_done_is_said(
    reported: Path, arguments: list[str], message: str, capsys: Any
) -> None:
    assert outcome("graph", "--run", reported, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("error:") == 1


def test_nodes_alone_have_no_colours(tmp_path: Path, capsys: Any) -> None:
    write_json(tmp_path / "nodes.json", NODES)
    out = tmp_path / "g.svg"
    assert outcome("graph", "--nodes", tmp_path / "nodes.json", "-o", out) == 0
    assert "scale" not in text(out) and "href" not in text(out)
    assert outcome("graph", "--nodes", tmp_path / "nodes.json", "--colour", "cost") == 2
    assert "is of no use without a run" in capsys.readouterr().err


def test_a_file_of_the_run_is_not_overwritten(reported: Path, capsys: Any) -> None:
    path = reported / "captures" / "graph.svg"
    path.write_text("raw")
    assert outcome("graph", "--run", reported, "-o", path) == 2
    assert path.read_text() == "raw"
    path.unlink()


def test_a_graph_of_nodes_that_are_not_there_says_what_writes_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome("graph", "--nodes", tmp_path / "own.nodes.json") == 2
    assert "no such file; layerline export RUN writes a run's" in capsys.readouterr().err
    (tmp_path / "captures").mkdir()
    assert outcome("graph", tmp_path) == 2
    assert "layerline train … --profile graph records a graph" in capsys.readouterr().err


def test_a_run_that_was_trained_alone_is_drawn_from_what_training_recorded(
    reported: Path, tmp_path: Path
) -> None:
    own, both = tmp_path / "trained", reported / "report" / "both.dot"
    write_json(own / "captures/train.fp32.graph.json", NODES)
    assert outcome("graph", "--run", own, "-o", own / "g.dot") == 0
    assert "recorded by autograd" in text(own / "g.dot")
    assert outcome("graph", "--run", reported, "-o", both) == 0
    assert "of the exported model" in text(both)


def test_a_run_without_a_graph_says_how_to_record_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "captures").mkdir()
    assert outcome("graph", "--run", tmp_path, "--from", "autograd") == 2
    assert "layerline train … --profile graph" in capsys.readouterr().err
