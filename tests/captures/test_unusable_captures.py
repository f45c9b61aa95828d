"""One file of a run that cannot be used: the report is made of all others and names it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from run_by_hand import EAGER, ENGINE, outcome, shown, tiny_counters

from layerline.analysis import pipeline
from layerline.analysis.captures import counters, inventory
from layerline.analysis.rundir.problems import Problems, keep
from layerline.core.errors import InputError
from layerline.core.files import read_json, sha256, write_json
from layerline.core.run import Run


def spoil(file: Path, how: str) -> None:
    if how == "gone":
        file.unlink()
        return
    whole = file.read_bytes()
    texts = {"half": whole[: len(whole) // 2], "empty": b"", "another form": b'[1, "two"]'}
    file.write_bytes(texts[how])


HOW = pytest.mark.parametrize("how", ["half", "empty", "another form"])


@pytest.mark.parametrize(
    ("name", "what", "left", "how"),
    [
        # Of one that is cut what is whole is read.
        ("captures/fp16.onnxruntime.profile.json", "ONNX Runtime fp16", EAGER, "empty"),
        ("captures/fp16.onnxruntime.profile.json", "ONNX Runtime fp16", EAGER, "another form"),
        # Which runs were warm-up is in it: without, other numbers would come out.
        ("captures/fp16.onnxruntime.profile.meta.json", "ONNX Runtime fp16", EAGER, "half"),
        ("captures/fp16.onnxruntime.profile.meta.json", "ONNX Runtime fp16", EAGER, "another form"),
        ("engines/fp16.onnxruntime.layers.json", "ONNX Runtime fp16", EAGER, "half"),
        ("engines/fp16.onnxruntime.layers.json", "ONNX Runtime fp16", EAGER, "another form"),
        ("captures/eager.fp32.trace.json", "eager fp32", ENGINE, "half"),
        ("captures/eager.fp32.trace.json", "eager fp32", ENGINE, "another form"),
    ],
)
def test_a_capture_that_cannot_be_read_leaves_the_other_sides(
    made: Run, name: str, what: str, left: str, how: str
) -> None:
    spoil(made.path / name, how)
    sides, listed = shown(made)
    assert sides == [left]
    assert [(s["what"], s["file"]) for s in listed] == [(what, name)]
    assert name in listed[0]["why"] and listed[0]["fix"]


@HOW
@pytest.mark.parametrize(
    "name",
    [
        "captures/fp16.onnxruntime.latency.json",
        "captures/fp16.onnxruntime.accuracy.json",
        "captures/fp16.onnxruntime.rebuild.json",
        "captures/eager.fp32.latency.json",
        "captures/eager.fp32.meta.json",
        "captures/sweep.json",
        "engines/fp16.onnxruntime.build.json",
        "export/model.json",
        "export/nodes.json",
    ],
)
def test_what_lies_beside_a_capture_is_unknown_where_it_cannot_be_read(
    made: Run, name: str, how: str
) -> None:
    file = made.path / name
    if not file.exists():
        write_json(file, {"relative_difference": 0.01, "nodes": []})
    spoil(file, how)
    sides, listed = shown(made)
    assert sides == [ENGINE, EAGER]
    assert [s["file"] for s in listed] == [name]


def test_a_latency_that_cannot_be_read_is_null_and_the_operations_stay(made: Run) -> None:
    spoil(made.file("captures", "fp16.onnxruntime.latency.json"), "half")
    engine = pipeline.analyse(made).comparison.sides[0]
    assert engine.latency.median is None and engine.operation_ns == 920_000


@pytest.mark.parametrize("how", ["half", "empty", "another form", "gone"])
def test_an_nsys_capture_that_cannot_be_read_leaves_the_other_engine(h100: Run, how: str) -> None:
    spoil(h100.file("captures", "fp16.tensorrt.sqlite"), how)
    sides, listed = shown(h100)
    assert sides == ["engine/fp32.tensorrt/inference"]
    assert [s["file"] for s in listed] == ["captures/fp16.tensorrt.sqlite"]


@pytest.mark.parametrize(
    "name", ["captures/fp16.tensorrt.trace.meta.json", "engines/fp16.tensorrt.network.json"]
)
def test_kernels_are_shown_without_what_tells_more_of_them(h100: Run, name: str) -> None:
    spoil(h100.path / name, "half")
    sides, listed = shown(h100)
    assert len(sides) == 2 and [s["file"] for s in listed] == [name]


def test_nodes_that_cannot_be_read_leave_the_engines_of_other_nodes(h100: Run) -> None:
    spoil(h100.file("export", "nodes.json"), "half")  # fp16 has none of its own
    build = h100.file("engines", "fp16.tensorrt.build.json")
    write_json(build, {**read_json(build), "source": "export/fp16.onnx"})
    sides, listed = shown(h100)
    assert sides == ["engine/fp32.tensorrt/inference"]
    assert {s["file"] for s in listed} == {"export/nodes.json"}


def test_a_report_without_a_file_ends_with_one_each_time_and_says_so(
    made: Run, capsys: Any
) -> None:
    spoil(made.file("captures", "eager.fp32.trace.json"), "half")
    for _ in range(2):  # made, and up to date
        assert outcome("report", "--run", made.path) == 1
        told = capsys.readouterr()
        errors = [line for line in told.err.splitlines() if line.startswith("error:")]
        assert len(errors) == 1 and "captures/eager.fp32.trace.json: is cut short" in errors[0]
        assert "✗ 1 file cannot be used" in told.out.splitlines()[2]
    summary = read_json(made.file("report", "summary.json"))
    assert list(summary["engines"]) == ["fp16.onnxruntime"] and not summary["eager"]
    assert [s["file"] for s in summary["unusable"]] == ["captures/eager.fp32.trace.json"]


def test_a_run_of_which_nothing_can_be_used_ends_with_the_error_and_keeps_its_report(
    made: Run, capsys: Any
) -> None:
    assert outcome("report", "--run", made.path) == 0
    old = made.file("report", "index.html").read_bytes()
    for name in ("fp16.onnxruntime.profile.json", "eager.fp32.trace.json"):
        spoil(made.file("captures", name), "empty")
    capsys.readouterr()
    assert outcome("report", "--run", made.path) == 2
    assert "fp16.onnxruntime.profile.json" in capsys.readouterr().err
    assert made.file("report", "index.html").read_bytes() == old
    problems = Problems()
    assert not inventory.read(made, None, problems)
    with pytest.raises(InputError, match=r"fp16\.onnxruntime\.profile\.json"):
        problems.raise_first()


def test_the_timeline_is_drawn_without_a_capture_and_says_so(h100: Run, capsys: Any) -> None:
    spoil(h100.file("captures", "fp16.tensorrt.sqlite"), "half")
    drawn = h100.file("report", "timeline.perfetto-trace")
    assert outcome("timeline", h100.path) == 1
    told = capsys.readouterr()
    assert told.out == f"{drawn}\n" and b"fp32" in drawn.read_bytes()
    errors = [line for line in told.err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and told.err.count("fp16.tensorrt.sqlite") == 1
    assert f"{drawn}: made without TensorRT fp16: captures/fp16.tensorrt.sqlite" in errors[0]
    assert outcome("report", "--run", h100.path) == 1
    reported = capsys.readouterr().err.splitlines()[-1]
    assert reported.partition("made ")[2] == errors[0].partition("made ")[2]


def test_a_file_of_a_side_that_was_not_asked_for_is_not_missed(h100: Run, capsys: Any) -> None:
    spoil(h100.file("captures", "fp16.tensorrt.sqlite"), "half")
    assert outcome("timeline", h100.path, "--precision", "fp32") == 0
    assert "fp16" not in capsys.readouterr().err
    assert outcome("timeline", h100.path, "--precision", "fp16") == 2
    told = capsys.readouterr().err
    assert "without TensorRT fp16: captures/fp16.tensorrt.sqlite" in told
    assert "no capture in fp16" in told


def test_a_timeline_without_nodes_of_every_side_ends_with_one(h100: Run, capsys: Any) -> None:
    spoil(h100.file("export", "nodes.json"), "half")
    build = h100.file("engines", "fp16.tensorrt.build.json")
    write_json(build, {**read_json(build), "source": "export/fp16.onnx"})
    assert outcome("timeline", h100.path, "--precision", "fp32") == 1
    assert "made without TensorRT fp16: export/nodes.json" in capsys.readouterr().err


def test_a_timeline_of_nothing_that_can_be_used_is_not_written(made: Run, capsys: Any) -> None:
    for name in ("fp16.onnxruntime.profile.json", "eager.fp32.trace.json"):
        spoil(made.file("captures", name), "empty")
    assert outcome("timeline", made.path) == 2
    assert "fp16.onnxruntime.profile.json" in capsys.readouterr().err
    assert not made.file("report", "timeline.perfetto-trace").exists()


@pytest.fixture
def counted(h100: Run) -> Run:
    """With two captures of counters, of which one is of no form."""
    for precision, text in (("fp16", b""), ("fp32", tiny_counters())):
        h100.file("captures", f"{precision}.tensorrt.ncu.csv").write_bytes(text)
    return h100


def test_counters_that_cannot_be_read_leave_those_of_other_captures(
    counted: Run, capsys: Any
) -> None:
    with pytest.raises(InputError, match=r"fp16\.tensorrt\.ncu\.csv"):
        counters.counters_of_run(counted)
    result = pipeline.analyse(counted)
    (listed,) = [s for s in result.comparison.skipped if s.file]
    assert listed.what == "counters of fp16.tensorrt"
    assert listed.file == "captures/fp16.tensorrt.ncu.csv"
    sources = set(result.tables["counters"]["source"].to_pylist())
    assert sources == {"fp32.tensorrt.ncu.csv"}
    assert outcome("timeline", counted.path) == 1
    assert capsys.readouterr().err.count("without counters of fp16.tensorrt: captures/fp16.") == 1


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("in a row", "is cut short after 1 of 2 launches"),
        ("between rows", "holds 1 launches, and 2 were captured"),
        ("within", "has a row that cannot be read"),
        ("units", "has a raw page without its row of units"),
    ],
)
def test_a_page_of_ncu_that_lost_rows_is_unusable_and_not_of_another_plan(
    counted: Run, how: str, why: str, capsys: Any
) -> None:
    page = counted.file("captures", "fp16.tensorrt.ncu.csv")
    header, units, first, second = tiny_counters().splitlines(keepends=True)[:4]
    page.write_bytes(
        {
            "in a row": header + units + first + second[:-200],
            "between rows": header + units + first,
            "within": header + units + first[: len(first) // 2] + b"\n" + second,
            "units": header + first + second,
        }[how]
    )
    write_json(page.with_name("fp16.tensorrt.ncu.meta.json"), {"replayed": 2})
    plan = {"schema_version": 1, "launches": [], "keys": 0, "replayed": 0, "reports": {}}
    write_json(page.with_name("fp16.tensorrt.ncu.plan.json"), {**plan, "chosen": []})
    result = pipeline.analyse(counted)
    (listed,) = [s for s in result.comparison.skipped if s.file]
    assert listed.what == "counters of fp16.tensorrt" and "copy it again" in listed.fix.lower()
    assert listed.why.startswith(f"captures/fp16.tensorrt.ncu.csv: {why}")
    assert result.tables["counters"]["source"].unique().to_pylist() == ["fp32.tensorrt.ncu.csv"]
    assert outcome("report", "--run", counted.path) == 1
    assert why in capsys.readouterr().err


def test_numbers_of_mixed_locales_are_said_to_be_unknown(counted: Run) -> None:
    page = counted.file("captures", "fp16.tensorrt.ncu.csv")
    page.write_text(
        '"ID","Process ID","Process Name","Host Name","Kernel Name","m.sum"\n"","","","","","%"\n'
        + "".join(
            f'"{i}","1","p","h","k","{value}"\n'
            for i, value in enumerate(["0.25", "0,25", "1.234", "1,234"])
        )
    )
    skipped = pipeline.analyse(counted).comparison.skipped
    (listed,) = [s for s in skipped if s.what == "some counters of fp16.tensorrt"]
    assert listed.why.startswith("2 numbers in fp16.tensorrt.ncu.csv") and listed.file is None


def test_all_that_is_lost_for_want_of_one_file_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path)

    def error() -> InputError:
        return InputError("is cut short", file=run.file("export", "nodes.json"))

    kept = Problems()
    for what in ("an engine", "another engine", "an engine"):
        with kept.without(what):
            raise error()
    kept.keep(error())
    (one,) = kept.listed(run)
    assert (one["what"], one["file"]) == ("an engine, another engine", "export/nodes.json")
    assert one["why"] == "export/nodes.json: is cut short"
    with pytest.raises(InputError, match="is cut short"):
        kept.raise_first()
    with pytest.raises(InputError):
        keep(error(), None, "an engine")  # where nobody collects


def record(made: Run, name: str) -> None:
    """A step's manifest that says that it left this file."""
    file = made.path / name
    entry = {"sha256": sha256(file), "size": file.stat().st_size, "mtime_ns": 1}
    manifest = {"step": "profile/x", "outputs": {name: entry}}
    write_json(made.file("manifests", "profile", "x.json"), manifest)


def test_a_file_of_another_run_is_told_by_its_contents(made: Run) -> None:
    name = "captures/fp16.onnxruntime.accuracy.json"
    record(made, name)
    assert name not in said(made)  # also where it was copied, and so has another time
    other = {**json.loads((made.path / name).read_text()), "cosine": 0.98}
    write_json(made.path / name, other)
    assert f"{name}: not as a step of this run left it" in said(made)


def test_a_file_that_a_step_left_and_that_is_gone_is_told(made: Run) -> None:
    name = "captures/fp16.onnxruntime.latency.json"
    record(made, name)
    spoil(made.path / name, "gone")
    assert f"not there ({name}): the run was copied in part" in said(made)


def test_a_trace_that_was_unpacked_is_not_gone(made: Run) -> None:
    name = "captures/eager.fp32.trace.json"
    packed = made.path / f"{name}.gz"
    packed.write_bytes(b"as it was left")
    record(made, f"{name}.gz")
    packed.unlink()
    assert (made.path / name).exists() and "trace.json.gz" not in said(made)


def test_engines_and_models_need_not_be_copied_with_a_run(made: Run) -> None:
    shutil.copy(made.file("export", "model.json"), made.file("engines", "fp16.tensorrt.engine"))
    record(made, "engines/fp16.tensorrt.engine")
    made.file("engines", "fp16.tensorrt.engine").unlink()
    assert "fp16.tensorrt.engine" not in said(made)


def said(made: Run) -> str:
    return " ".join(s.why for s in pipeline.analyse(made).comparison.skipped)
