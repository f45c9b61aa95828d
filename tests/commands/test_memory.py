"""``layerline memory``: a snapshot, and a run that recorded its training steps."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from memory_snapshot import MIB, Allocator
from memory_step import recorded

from layerline.analysis.commands.memory import memory
from layerline.core.errors import CheckFailed, LayerlineError
from layerline.core.run import open_run


def run(*arguments: Any) -> Any:
    done = CliRunner().invoke(memory, [str(a) for a in arguments], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return done.output


def made(folder: Path, *names: str) -> Path:
    """A run with these captures, beside each what the plug-in writes."""
    value, meta, _ = recorded()
    root = open_run(folder, create=True)
    root.file("captures").mkdir(exist_ok=True)
    for name in names:
        write(root.file("captures", name), value, meta)
    return folder


def write(path: Path, value: Any, meta: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(f"{path.name}.memory.pickle").write_bytes(pickle.dumps(value, 4))
    path.with_name(f"{path.name}.memory.json").write_bytes(msgspec.json.encode(meta))


def test_a_snapshot_alone(tmp_path):
    device = Allocator()
    device.frames = [{"name": "main", "filename": "/home/run.py", "line": 9}]
    device.free(device.alloc(30 * MIB))
    file = tmp_path / "snapshot.pickle"
    file.write_bytes(pickle.dumps(device.snapshot()))
    said = run(file)
    assert "The peak is 31.5 MB, " in said and "main (/home/run.py:9)" in said
    document = json.loads((tmp_path / "snapshot.json").read_text())
    assert document["allocated_bytes"] == 30 * MIB
    assert document["categories"] == {"unknown": 30 * MIB}
    assert "<script" in (tmp_path / "snapshot.html").read_text()


def test_a_snapshot_with_what_the_plug_in_left_beside_it(tmp_path):
    """It is used, and nothing is written over it."""
    value, meta, _ = recorded()
    write(tmp_path / "train.fp32", value, meta)
    beside = tmp_path / "train.fp32.memory.json"
    before = beside.read_bytes()
    said = run(tmp_path / "train.fp32.memory.pickle")
    assert "half of it activations" in said
    assert "equal to torch.cuda.max_memory_allocated to the byte" in said
    assert beside.read_bytes() == before
    document = json.loads((tmp_path / "train.fp32.memory.peak.json").read_text())
    assert document["categories"]["parameters"] == 4 * MIB
    run(tmp_path / "train.fp32.memory.pickle", "-o", tmp_path / "train.fp32.memory.html")
    assert beside.read_bytes() == before


@pytest.mark.parametrize(
    ("written", "why"),
    [
        (None, "there is no train.fp32.memory.json beside it"),
        ("{", "cannot be used: "),
        ('{"schema_version": 1, "marks": {"time_ns": [1]}}', "cannot be used: "),
        ('{"schema_version": 1, "categories": {"unknown": 3}}', "cannot be used: "),
        ("{device: 1}", "is of another recording: it is of cuda:1"),
    ],
    ids=range(5),
)
def test_what_lies_beside_and_cannot_be_used_is_said(tmp_path, written, why):
    value, meta, _ = recorded()
    write(tmp_path / "train.fp32", value, meta)
    beside = tmp_path / "train.fp32.memory.json"
    if written is None:
        beside.unlink()
    elif written == "{device: 1}":
        beside.write_text(beside.read_text().replace('"device":"cuda:0"', '"device":"cuda:1"'))
    else:
        beside.write_text(written)
    said = run(tmp_path / "train.fp32.memory.pickle")
    [line] = [text for text in said.splitlines() if "Phases, modules" in text]
    assert why in line
    assert "unknown" in said and "34.3 MB" in said


def test_a_run_whose_json_is_broken_is_explained_without(tmp_path):
    folder = made(tmp_path / "run", "train.fp32")
    (folder / "captures/train.fp32.memory.json").write_text("{")
    with pytest.raises(CheckFailed, match=r"train\.fp32\.memory\.json"):
        run("--run", folder)
    assert (folder / "report/memory.html").is_file()
    (folder / "captures/train.fp32.memory.json").unlink()
    assert "there is no train.fp32.memory.json beside it" in run("--run", folder)


def test_a_run_of_two_precisions(tmp_path):
    folder = made(tmp_path / "run", "train.bf16", "train.fp32")
    said = run("--run", folder)
    assert said.count("equal to torch.cuda.max_memory_allocated to the byte") == 2
    assert (folder / "report/memory.html").is_file()
    assert (folder / "report/memory.train.fp32.html").is_file()
    table = pq.read_table(folder / "tables/memory.parquet").to_pylist()
    sources = {"train.bf16.memory.pickle", "train.fp32.memory.pickle"}
    assert {r["source"] for r in table} == sources
    assert {r["module"] for r in table} > {"h.0", "h.1"}
    assert run("--run", folder, "--precision", "bf16").count("to the byte") == 1
    assert pq.read_table(folder / "tables/memory.parquet").sort_by("source").to_pylist() == table


def test_ranks_are_told_apart(tmp_path):
    folder = made(tmp_path / "run", "train.fp32.rank0000", "train.fp32.rank0001")
    run("--run", folder)
    table = pq.read_table(folder / "tables/memory.parquet").to_pylist()
    assert {r["rank"] for r in table} == {0, 1}


def test_what_was_tried_stands_beside_its_estimate(tmp_path):
    folder = made(tmp_path / "run", "train.fp32")
    value, meta, _ = recorded()
    for event in value["device_traces"][0]:
        if event["size"] == 8 * MIB:  # as if these were small: the optimizer's peak is left, 22 MiB
            event["size"] = 1
    write(folder / "tried/checkpoint/captures/train.fp32", value, meta)
    for place, median in (("captures", 1000), ("tried/checkpoint/captures", 1110)):
        (folder / place / "train.fp32.latency.json").write_text(
            json.dumps({"latency_ns": [median - 1, median, median + 1] * 5})
        )
    said = run("--run", folder)
    assert "tried: 23.1 MB, 32.8 % less, step 11.0 % longer (10.8 % to 11.2 %)" in said
    document = json.loads((folder / "report/memory.json").read_text())
    tried = {r["name"]: r["tried"] for r in document["remedies"]}
    assert tried["checkpoint"]["step"]["median"] == 1110 and tried["checkpoint-half"] is None


def test_a_try_that_cannot_be_read_is_named(tmp_path):
    folder = made(tmp_path / "run", "train.fp32")
    value, meta, _ = recorded()
    write(folder / "tried/checkpoint/captures/train.fp32", value, meta)
    (folder / "tried/checkpoint/captures/train.fp32.memory.pickle").write_bytes(b"\x80\x04cos\n")
    with pytest.raises(CheckFailed, match="what checkpoint gave when it was tried"):
        run("--run", folder)
    assert (folder / "report/memory.html").is_file()


@pytest.mark.parametrize("other", [False, True])
def test_a_try_without_the_json_of_its_recording_is_not_compared(tmp_path, other):
    """Alone a snapshot lacks what is older than the recording: its peak would seem low."""
    folder = made(tmp_path / "run", "train.fp32")
    value, meta, _ = recorded()
    write(folder / "tried/checkpoint/captures/train.fp32", value, meta)
    beside = folder / "tried/checkpoint/captures/train.fp32.memory.json"
    why = "no such file"
    if other:
        why = "it is of cuda:1"
        beside.write_text(beside.read_text().replace('"device":"cuda:0"', '"device":"cuda:1"'))
    else:
        beside.unlink()
    with pytest.raises(CheckFailed, match=f"what checkpoint gave .*{why}.*--try checkpoint again"):
        run("--run", folder)
    document = json.loads((folder / "report/memory.json").read_text())
    assert all(r["tried"] is None for r in document["remedies"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "RUN|FILE.pickle"),
        (["{file}", "--run", "{run}"], "name the run once"),
        (["{file}", "--try", "batch"], "are of a run"),
        (["--run", "{run}", "--try", "magic"], "magic cannot be tried"),
        (["--run", "{run}", "--precision", "bf16"], "in bf16; there is fp32"),
        (["--run", "{run}", "--device", "3"], "has no device 3; it has 0"),
        (["{other}"], "is torch-trace, no snapshot"),
        (["--run", "{empty}"], "layerline train WORKLOAD --profile memory"),
        (["--run", "{run}", "--try", "batch"], "no such file"),
    ],
    ids=range(9),
)
def test_misuse_is_one_line(tmp_path, arguments, message):
    import click

    folder = made(tmp_path / "run", "train.fp32")
    open_run(tmp_path / "empty", create=True)
    other = tmp_path / "trace.json"
    other.write_text(
        '{"traceEvents": [{"ph": "X", "ts": 1, "dur": 2, "name": "a", "cat": "cpu_op"}]}'
    )
    places = {"run": folder, "file": folder / "captures/train.fp32.memory.pickle",
              "other": other, "empty": tmp_path / "empty"}  # fmt: skip
    with pytest.raises((LayerlineError, click.UsageError)) as e:
        run(*(a.format(**places) for a in arguments))
    text = e.value.line() if isinstance(e.value, LayerlineError) else e.value.format_message()
    assert message in text and "\n" not in text


def test_marks_that_do_not_fit_are_refused(tmp_path):
    folder = made(tmp_path / "run", "train.fp32")
    meta = folder / "captures/train.fp32.memory.json"
    document = json.loads(meta.read_text())
    document["marks"]["phase"].pop()
    meta.write_text(json.dumps(document))
    with pytest.raises(CheckFailed, match="of different lengths"):
        run("--run", folder)
