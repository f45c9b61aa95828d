"""Files of another precision, task, engine or model than their name or their run says."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import paths
import pytest
from run_by_hand import EAGER, ENGINE, outcome, shown, tiny_counters

from layerline.analysis import pipeline
from layerline.analysis.captures import counters
from layerline.core.files import read_json, sha256, write_json
from layerline.core.run import Run

FP32, FP16 = "engine/fp32.tensorrt/inference", "engine/fp16.tensorrt/inference"


def say(run: Run, name: str, **words: Any) -> None:
    """The same file, which says this of itself."""
    file = run.path / name
    write_json(file, {**(read_json(file) if file.exists() else {}), **words})


def record(run: Run, step: str, *names: str, **more: Any) -> None:
    """A step's manifest: it left these files as they are now."""
    outputs = {
        name: {"sha256": sha256(file), "size": file.stat().st_size, "mtime_ns": 1}
        for name in names
        if (file := run.path / name)
    }
    write_json(run.manifest_path(step), {"step": step, "outputs": outputs, **more})


def all_used(run: Run, *sides: str) -> bool:
    """Whether these sides are all, and no file is listed as unusable."""
    view = pipeline.analyse(run).comparison
    left = [s for s in view.skipped if s.file]
    return [s.key for s in view.sides] == list(sides) and not left


def only(run: Run) -> tuple[list[str], dict[str, str]]:
    """The sides, and the one file that is listed as unusable."""
    sides, listed = shown(run)
    (one,) = listed
    return sides, one


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("captures/eager.fp32.latency.json", {"precision": "fp16"}),
        ("captures/eager.fp32.latency.json", {"training": True}),
        ("captures/eager.fp32.latency.json", {"source": "eager.fp16.latency.json"}),
        ("captures/fp16.onnxruntime.latency.json", {"precision": "fp32"}),
        ("captures/fp16.onnxruntime.latency.json", {"backend": "tensorrt"}),
        ("captures/fp16.onnxruntime.latency.json", {"engine": "fp16.tensorrt.engine"}),
        ("captures/fp16.onnxruntime.latency.json", {"sequence": 1024}),  # the run's is 8
        ("captures/fp16.onnxruntime.accuracy.json", {"precision": "bf16"}),
        ("captures/fp16.onnxruntime.rebuild.json", {"backend": "onnxruntime-cuda"}),
        ("engines/fp16.onnxruntime.build.json", {"precision": "fp32"}),
    ],
)
def test_what_lies_beside_a_capture_and_is_of_another_is_not_used(
    made: Run, name: str, words: dict[str, Any]
) -> None:
    say(made, name, **words)
    sides, listed = only(made)
    assert sides == [ENGINE, EAGER]
    (field,) = words
    assert listed["file"] == name and f'says of itself "{field}"' in listed["why"]
    assert "copy" in listed["fix"]
    view = pipeline.analyse(made).comparison
    if name.endswith("latency.json"):
        side = next(s for s in view.sides if s.task in name or s.backend in name)
        assert side.latency.median is None
    if "accuracy" in name:
        assert view.sides[0].parity is None


@pytest.mark.parametrize(
    ("name", "words", "left"),
    [
        ("captures/eager.fp32.meta.json", {"precision": "fp16"}, ENGINE),
        ("captures/eager.fp32.meta.json", {"training": True}, ENGINE),
        ("captures/eager.fp32.meta.json", {"trace": "eager.fp16.trace.json.gz"}, ENGINE),
        ("captures/eager.fp32.meta.json", {"batch": 4}, ENGINE),  # the run's is 1
        ("captures/fp16.onnxruntime.profile.meta.json", {"precision": "fp32"}, EAGER),
        ("captures/fp16.onnxruntime.profile.meta.json", {"backend": "tensorrt"}, EAGER),
        ("engines/fp16.onnxruntime.layers.json", {"precision": "fp32"}, EAGER),
    ],
)
def test_a_capture_whose_description_is_of_another_is_left_out(
    made: Run, name: str, words: dict[str, Any], left: str
) -> None:
    say(made, name, **words)
    sides, listed = only(made)
    assert sides == [left]
    assert listed["file"] == name and "says of itself" in listed["why"]


def test_a_meta_file_of_another_model_is_told_by_its_parameters(made: Run) -> None:
    say(made, "export/model.json", parameters=124_439_808)
    say(made, "captures/eager.fp32.meta.json", parameters=124_439_808)
    assert all_used(made, ENGINE, EAGER)
    say(made, "captures/eager.fp32.meta.json", parameters=751_644_160)
    sides, listed = only(made)
    assert sides == [ENGINE] and "of another run" in listed["why"]


def test_a_description_of_an_nsys_capture_in_another_precision_leaves_it_out(h100: Run) -> None:
    say(h100, "captures/fp16.tensorrt.trace.meta.json", precision="fp32")
    sides, listed = only(h100)
    assert sides == [FP32] and listed["file"] == "captures/fp16.tensorrt.trace.meta.json"


def test_an_export_of_another_report_of_nsys_is_left_out(h100: Run) -> None:
    file = h100.file("captures", "fp16.tensorrt.sqlite")

    def exported(name: str) -> None:
        with closing(sqlite3.connect(file)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS META_DATA_EXPORT (name TEXT, value TEXT)")
            database.execute("DELETE FROM META_DATA_EXPORT WHERE name = 'EXPORT_PARAM_INPUT_FILE'")
            database.execute(
                "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PARAM_INPUT_FILE', ?)", (name,)
            )

    for own in ("fp16.tensorrt.nsys-rep", "mine.nsys-rep"):  # a name of the user's says nothing
        exported(own)
        assert all_used(h100, FP32, FP16)
    exported("fp32.tensorrt.nsys-rep")
    sides, listed = only(h100)
    assert sides == [FP32] and "exported from fp32.tensorrt.nsys-rep" in listed["why"]


def test_a_capture_whose_regions_are_none_of_the_engines_is_left_out(h100: Run) -> None:
    """Stands for: another model's capture under a run's name, of which no record tells."""
    capture = h100.file("captures", "fp16.tensorrt.sqlite")
    with sqlite3.connect(capture) as db:
        for table, column in (("StringIds", "value"), ("NVTX_EVENTS", "text")):
            db.execute(
                f"update {table} set {column} = replace({column}, 'ForeignNode[transformer', "
                "'ForeignNode[bert')"
            )
    sides, listed = only(h100)
    assert sides == [FP32] and "it is of another engine" in listed["why"]
    assert "ForeignNode[bert" in listed["why"] and "ForeignNode[transformer" in listed["why"]


def test_a_trace_with_the_contents_of_another_is_left_out(made: Run) -> None:
    trace = made.file("captures", "eager.fp32.trace.json")
    record(made, "profile/eager.fp32", "captures/eager.fp32.trace.json")
    shutil.copy(trace, made.file("captures", "eager.fp16.trace.json"))  # no step left that one
    sides, listed = only(made)
    assert sides == [ENGINE, EAGER]
    assert listed["what"] == "eager fp16"
    assert "has the contents of captures/eager.fp32.trace.json" in listed["why"]


@pytest.mark.parametrize("suffix", [".engine", ".onnx", ".pt2"])
def test_a_capture_of_an_engine_that_was_built_again_is_left_out(h100: Run, suffix: str) -> None:
    file = f"engines/fp16.tensorrt{suffix}"
    engine = {file: {"sha256": "a" * 64}}
    sqlite = "captures/fp16.tensorrt.sqlite"
    record(h100, "profile/fp16.tensorrt.trace", sqlite, inputs=engine)
    write_json(h100.manifest_path("engines/fp16.tensorrt"), {"outputs": engine})
    assert all_used(h100, FP32, FP16)
    again = {file: {"sha256": "b" * 64}}
    write_json(h100.manifest_path("engines/fp16.tensorrt"), {"outputs": again})
    sides, listed = only(h100)
    assert sides == [FP32] and "of another engine" in listed["why"]


def test_an_engine_that_is_wrong_is_said_though_what_was_measured_is_of_an_earlier_one(
    made: Run, capsys: Any
) -> None:
    """A model is changed, its engine built again and wrong: nothing is measured of that one."""
    took, built = ({"engines/fp16.onnxruntime.onnx": {"sha256": x * 64}} for x in "ab")
    meta = "captures/fp16.onnxruntime.profile.meta.json"
    record(made, "profile/fp16.onnxruntime.profile", meta, inputs=took)
    write_json(made.manifest_path("engines/fp16.onnxruntime"), {"outputs": built})
    accuracy = "captures/fp16.onnxruntime.accuracy.json"
    assert only(made)[0] == [EAGER]  # its outputs are right, and no capture is its own
    say(made, accuracy, cosine=0.2)
    assert only(made)[0] == [EAGER, ENGINE]
    for trace in made.file("captures").glob("eager.*"):
        trace.unlink()
    assert outcome("report", "--run", made.path) == 1
    said = capsys.readouterr()
    assert "does not compute" in said.out and "cosine 0.2" in said.err.lower()


def test_the_accuracy_of_an_engine_that_was_built_again_is_not_the_new_ones(made: Run) -> None:
    """An engine is wrong, is built again by a plan, and its outputs are not compared yet."""
    took, built = ({"engines/fp16.onnxruntime.onnx": {"sha256": x * 64}} for x in "ab")
    outputs, accuracy = (f"captures/fp16.onnxruntime.{x}" for x in ("outputs.npz", "accuracy.json"))
    (made.path / outputs).write_bytes(b"outputs")
    say(made, accuracy, cosine=0.2)
    record(made, "profile/fp16.onnxruntime.outputs", outputs, inputs=took)
    compared = {outputs: {"sha256": sha256(made.path / outputs)}}
    record(made, "profile/fp16.onnxruntime.accuracy", accuracy, inputs=compared)
    write_json(made.manifest_path("engines/fp16.onnxruntime"), {"outputs": took})
    assert [s.wrong for s in pipeline.analyse(made).comparison.sides] == [True, False]
    write_json(made.manifest_path("engines/fp16.onnxruntime"), {"outputs": built})
    sides, listed = only(made)
    assert sides == [ENGINE, EAGER] and listed["file"] == accuracy
    assert "of another engine than this run's" in listed["why"]
    assert [s.outputs for s in pipeline.analyse(made).comparison.sides] == [None, None]


def test_a_latency_that_is_not_what_its_step_recorded_is_not_used(made: Run) -> None:
    name = "captures/fp16.onnxruntime.latency.json"
    summary = {"n": 6, "median": 950_000}
    say(made, name, summary=summary)
    record(made, "profile/fp16.onnxruntime.latency", name, facts={"summary": summary})
    assert all_used(made, ENGINE, EAGER)
    say(made, name, latency_ns=[7_000_000] * 6, summary={"n": 6, "median": 7_000_000})
    sides, listed = only(made)
    assert sides == [ENGINE, EAGER] and listed["file"] == name
    assert "a median of 7000000 ns over 6" in listed["why"]
    assert "a median of 950000 ns over 6" in listed["why"]


def test_a_capture_of_an_engine_that_needs_other_memory_is_left_out(h100: Run) -> None:
    name = "captures/fp16.tensorrt.trace.meta.json"
    facts = read_json(h100.path / name)["facts"]
    card = {"name": "NVIDIA H100 80GB HBM3"}
    own = {"device": card, "context_bytes": 245_760}  # as in all captures of it
    write_json(h100.manifest_path("profile/fp16.tensorrt.outputs"), {"facts": {"facts": own}})
    # On another card it may need other memory.
    say(h100, name, facts={**facts, "device": {"name": "another"}, "context_bytes": 2048})
    assert all_used(h100, FP32, FP16)
    say(h100, name, facts={**facts, "device": card, "context_bytes": 2048})
    sides, listed = only(h100)
    assert sides == [FP32] and "context_bytes 2048" in listed["why"]


def exported(run: Run) -> None:
    options = {"model": "tiny", "batch": 1, "seq": 8}
    record(run, "export/model", "export/model.json", options=options)


def test_a_model_json_of_another_run_is_named_and_not_the_captures(made: Run) -> None:
    say(made, "captures/eager.fp32.meta.json", batch=1, sequence=8)
    exported(made)
    say(made, "export/model.json", seq=1024)
    sides, listed = only(made)
    assert sides == [ENGINE, EAGER] and listed["file"] == "export/model.json"
    assert 'says of itself "seq": 1024, and this run was exported with 8' in listed["why"]


def test_nodes_of_another_model_leave_out_the_engine_that_needs_them(h100: Run) -> None:
    name = "export/fp32.nodes.json"
    say(h100, "engines/fp16.tensorrt.build.json", source="export/fp16.onnx")  # of nodes.json
    say(h100, name, model="tiny")
    record(h100, "export/fp32", name)
    record(h100, "export/model", "export/model.json", options={"model": "tiny"})
    say(h100, "export/model.json", model="tiny")
    assert all_used(h100, FP32, FP16)
    say(h100, name, model="gpt2-large")
    sides, listed = only(h100)
    assert sides == [FP16] and listed["file"] == name


def test_a_sweep_of_another_model_is_left_out(made: Run) -> None:
    say(made, "captures/sweep.json", model="gpt2-large", points=[], skipped=[])
    listed = only(made)[1]
    assert listed["file"] == "captures/sweep.json" and "gpt2-large" in listed["why"]


@pytest.mark.parametrize(
    "words",
    [{"precision": "fp16"}, {"backend": "onnxruntime-cuda"}, {"inputs": {"inputs.npz": "b" * 64}}],
)
def test_counters_of_another_capture_are_left_out(h100: Run, words: dict[str, Any]) -> None:
    page = h100.file("captures", "fp32.tensorrt.ncu.csv")
    page.write_bytes(tiny_counters())
    given = {"export/inputs.npz": {"sha256": "a" * 64}}
    write_json(h100.manifest_path("export/model"), {"outputs": given})
    meta = "captures/fp32.tensorrt.ncu.meta.json"
    say(h100, meta, precision="fp32", inputs={"inputs.npz": "a" * 64})
    table = counters.counters_of_run(h100)
    assert table is not None and set(table["source"].to_pylist()) == {page.name}
    say(h100, meta, **words)
    sides, listed = only(h100)
    assert sides == [FP32, FP16]
    assert (listed["what"], listed["file"]) == ("counters of fp32.tensorrt", meta)
    assert "counters" not in pipeline.analyse(h100).tables


def test_counters_of_an_engine_that_was_built_again_end_with_one(h100: Run, capsys: Any) -> None:
    shutil.copy(
        paths.DATA / "ncu" / "two_kernels.raw.csv",
        h100.file("captures", "fp32.tensorrt.ncu.csv"),
    )
    say(h100, "captures/fp32.tensorrt.ncu.meta.json", inputs={"fp32.tensorrt.engine": "b" * 64})
    engine = {"engines/fp32.tensorrt.engine": {"sha256": "a" * 64}}
    write_json(h100.manifest_path("engines/fp32.tensorrt"), {"outputs": engine})
    assert outcome("report", "--run", h100.path) == 1
    assert "made without counters of fp32.tensorrt" in capsys.readouterr().err


def test_all_files_of_another_precision_do_not_make_a_headline(made: Run, capsys: Any) -> None:
    captures = made.file("captures")
    for kind in ("latency.json", "meta.json"):
        say(made, f"captures/eager.fp32.{kind}", precision="fp32")
    for kind in ("latency.json", "meta.json", "trace.json"):
        shutil.copy(captures / f"eager.fp32.{kind}", captures / f"eager.fp16.{kind}")
    for _ in range(2):  # made, and up to date
        assert outcome("report", "--run", made.path) == 1
        told = capsys.readouterr()
        assert "eager fp16" not in told.out.splitlines()[0]
        assert 'eager.fp16.meta.json: says of itself "precision": "fp32"' in told.err
    assert outcome("timeline", made.path) == 1
    assert "made without eager fp16: captures/eager.fp16.meta.json" in capsys.readouterr().err


def test_files_that_nothing_tells_are_named_on_stderr_each_time(made: Run, capsys: Any) -> None:
    name = "captures/eager.fp32.latency.json"
    record(made, "profile/eager.fp32", name)
    assert outcome("report", "--run", made.path) == 0
    assert "whether of this run is unknown" not in capsys.readouterr().err
    write_json(made.path / name, {"latency_ns": [36_000_000] * 6})
    for command in (["report", "--run"], ["report", "--run"], ["timeline"]):
        assert outcome(*command, made.path) == 0
        lines = [s for s in capsys.readouterr().err.splitlines() if "is unknown" in s]
        assert len(lines) == 1 and name in lines[0]
    assert read_json(made.file("report", "summary.json"))["not_as_left"] == [name]


def test_a_folder_without_manifests_is_reported_in_silence(made: Run, capsys: Any) -> None:
    for file in made.file("manifests").glob("*/*.json"):
        file.unlink()
    assert outcome("report", "--run", made.path) == 0
    told = capsys.readouterr()
    assert "unknown:" not in told.err and "error" not in told.err


def test_a_worker_says_what_a_latency_is_of() -> None:
    torch = pytest.importorskip("torch")
    np = pytest.importorskip("numpy")
    from layerline.export.source import Request, resolve
    from layerline.profile.eager import setup

    model = torch.nn.Linear(8, 4)
    spec = replace(resolve(Request(model="tiny")), batch=2, seq=8)
    tokens = {"x": np.zeros((2, 8), np.float32)}
    subject = setup.Subject(model, spec, tokens, torch.device("cpu"), "fp32", True)
    subject.facts = setup.facts_of(subject, 0)
    said = {"precision": "fp32", "training": True, "parameters": 36, "batch": 2, "sequence": 8}
    assert {k: subject.facts[k] for k in setup.IDENTITY} == said
