"""`layerline read`: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys

import pandas as pd
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from layerline.analysis.commands.read import read
from layerline.core.cli.command import main

PROFILE = {"a/Gemm": [0.1, 0.2, 0.3], "b/Relu": [0.01, 0.02, 0.03]}


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "a.profile.json"
    path.write_text(json.dumps(PROFILE))
    return path


def run(capfd, *arguments):
    """The whole command line: exit code, stdout, stderr."""
    with pytest.raises(SystemExit) as e:
        main(["-q", "read", *map(str, arguments)])
    out, err = capfd.readouterr()
    return e.value.code, out, err


def test_shows_kind_facts_notes_and_the_table(capfd, profile):
    code, out, err = run(capfd, profile)
    assert (code, err) == (0, "")
    assert f"{profile}: trt-profile" in out
    assert "iterations: 3" in out and "more tables (--table NAME): ops (6)" in out
    assert "a/Gemm" in out and "0.600000" in out and "200.000" in out
    code, out, _ = run(capfd, profile, "--rows", "1")
    assert "a/Gemm" in out and "200000" in out and "b/Relu" not in out
    assert "unknown in every row: precision" in out


def test_rows_are_limited(capfd, profile):
    code, out, _ = run(capfd, profile, "--table", "ops", "--rows", "2")
    assert code == 0 and "4 more rows" in out


@pytest.mark.parametrize("columns", ["20", "80", "200"])
def test_a_narrow_terminal_takes_no_digits_from_numbers(capfd, tmp_path, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    long = "transformer.h.0.attn.c_attn/" + "MatMul+" * 30
    event = {"cat": "Node", "pid": 1, "tid": 2, "ph": "X", "name": f"{long}_kernel_time",
             "ts": 1391851185, "dur": 7654321, "args": {"op_name": "MatMul"}}  # fmt: skip
    path = tmp_path / "p.json"
    path.write_text(json.dumps([event]))
    code, out, _ = run(capfd, path, "--rows", "10")
    assert code == 0
    assert "1391851185000" in out and "7654321000" in out and "…" in out and long not in out


def test_csv_parquet_and_json_hold_the_same(capfd, profile, tmp_path):
    outputs = [tmp_path / f"out.{suffix}" for suffix in ("csv", "parquet", "json")]
    for output in outputs:
        assert run(capfd, profile, "-o", output)[0] == 0
    csv = pd.read_csv(outputs[0])
    parquet = pq.read_table(outputs[1]).to_pylist()
    records = json.loads(outputs[2].read_text())
    assert parquet == records and list(csv.columns) == list(records[0])
    assert [r["total_ns"] for r in records] == csv["total_ns"].tolist() == [600_000, 60_000]
    # Unknown is null and an empty field, not 0 nor NaN.
    assert records[0]["kernels"] is None and csv["kernels"].isna().all()


def test_several_files_are_joined_with_their_source(capfd, profile, tmp_path):
    other = tmp_path / "b.profile.json"
    other.write_text(json.dumps({"c": [1.0]}))
    output = tmp_path / "out.json"
    assert run(capfd, profile, other, "-o", output)[0] == 0
    records = json.loads(output.read_text())
    assert [(r["source"], r["layer"]) for r in records] == [
        ("a.profile.json", "a/Gemm"),
        ("a.profile.json", "b/Relu"),
        ("b.profile.json", "c"),
    ]


def test_files_of_different_tables_are_not_joined(capfd, profile, tmp_path):
    other = tmp_path / "times.json"
    other.write_text('[{"latencyMs": 1}]')
    code, _, err = run(capfd, profile, other, "-o", tmp_path / "out.csv")
    assert code == 2 and "holds another table" in err and not (tmp_path / "out.csv").exists()


def test_goes_on_past_bad_files_and_ends_with_the_worst_code(capfd, profile, tmp_path, monkeypatch):
    bad = tmp_path / "bad"
    bad.write_text("nothing known")
    report = tmp_path / "a.ncu-rep"
    report.write_bytes(b"NVR\x00")
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    output = tmp_path / "out.json"
    code, out, err = run(capfd, bad, report, tmp_path / "missing", profile, "-o", output)
    assert code == 3 and out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["error"] * 3
    assert len(json.loads(output.read_text())) == 2
    assert run(capfd, bad, profile)[0] == 2


def test_an_unknown_table_or_suffix_is_one_line(capfd, profile, tmp_path):
    code, _, err = run(capfd, profile, "--table", "nothing")
    assert code == 2 and err.count("\n") == 1 and "it has layers, ops" in err
    code, _, err = run(capfd, profile, "-o", tmp_path / "out.xlsx")
    assert code == 2 and err.count("\n") == 1 and ".csv, .parquet, .json" in err


def test_the_input_is_never_overwritten(capfd, profile):
    before = profile.read_bytes()
    code, _, err = run(capfd, profile, "-o", profile)
    assert code == 2 and "read and written" in err
    assert profile.read_bytes() == before


def test_names_do_nothing_to_a_terminal(capfd, tmp_path):
    evil = "\x1b]0;t\x07\x1b[31m[red]x[/red]\r\n\u202e<b>&"
    path = tmp_path / "evil\x1b[2J\n.json"
    path.write_text(json.dumps({evil: [1.0], "[/]": [2.0]}))
    code, out, _ = run(capfd, path)
    assert code == 0
    assert "\x1b" not in out and "\x07" not in out and "\r" not in out and "\u202e" not in out
    assert r"\x1b]0;t\x07\x1b[31m[red]x[/red]\r\n\u202e<b>&" in out
    assert "[/]" in out
    path.write_text("no kind")
    code, _, err = run(capfd, path)
    assert code == 2 and err.count("\n") == 1 and "\x1b" not in err


def test_names_are_written_as_they_are(capfd, tmp_path):
    evil = 'a,"b"\n\x1b[31m<script>'
    path, output = tmp_path / "a.json", tmp_path / "out.csv"
    path.write_text(json.dumps({evil: [1.0]}))
    assert run(capfd, path, "-o", output)[0] == 0
    assert pd.read_csv(output)["layer"].tolist() == [evil]


def test_an_empty_table_is_written_as_an_empty_array(capfd, tmp_path):
    path, output = tmp_path / "a.json", tmp_path / "out.json"
    path.write_text('{"segments": [], "device_traces": []}')
    assert run(capfd, path, "-o", output)[0] == 0
    assert json.loads(output.read_text()) == []


def test_help_needs_no_reader():
    code = (
        "import sys; from layerline.core.cli import command\n"
        "command.cli.get_command(None, 'read')\n"
        "loaded = {m for m in sys.modules if m.startswith('layerline.analysis.readers.')}\n"
        "from layerline.analysis.readers.registry import READERS\n"
        "print([r for r in READERS if f'layerline.analysis.readers.{r}' in loaded])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert "FILE" in CliRunner().invoke(read, ["--help"]).output


def test_a_snapshot_of_memory_is_told_the_command_that_explains_it(capfd, tmp_path):
    path = tmp_path / "train.fp32.memory.pickle"
    path.write_text('{"segments": [], "device_traces": []}')
    _, out, _ = run(capfd, path)
    assert f"note: layerline memory {path} says what holds the memory at its peak" in out
