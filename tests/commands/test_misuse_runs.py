"""Runs copied in part, rebuilt since, asked for what they lack, or ended in the middle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import ncu_fake
import pytest
from click.testing import CliRunner, Result
from paths import DATA

from layerline.analysis.captures import counters
from layerline.analysis.rundir.problems import Problems
from layerline.core import nodes
from layerline.core.cli.command import cli
from layerline.core.errors import CheckFailed, InputError
from layerline.core.files import write_json
from layerline.core.replay import pieces as pieces_
from layerline.core.run import Run, Step, open_run
from layerline.profile.ncu import in_pieces, tool


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def refused(*arguments: object) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, InputError) or result.exit_code == 2, result.exception
    return str(result.exception) if isinstance(result.exception, InputError) else result.output


def test_an_iteration_that_no_capture_has_leaves_the_timeline_as_it_was(h100: Run) -> None:
    assert run("timeline", h100.path).exit_code == 0
    file = h100.file("report", "timeline.perfetto-trace")
    before = file.read_bytes()
    told = refused("timeline", h100.path, "--iteration", 99)
    assert "iteration 99" in told and "there are" in told
    assert "Invalid value for '--iteration'" in refused("timeline", h100.path, "--iteration", 2**70)
    assert file.read_bytes() == before


def test_one_precision_of_two_that_was_not_captured_is_told(h100: Run) -> None:
    assert "no capture in bf16" in refused("timeline", h100.path, "--precision", "fp16,bf16")
    assert "'fp8' is not one of" in refused("timeline", h100.path, "--precision", "fp8")
    assert run("timeline", h100.path, "--precision", "").exit_code == 0  # every side


def test_the_timeline_does_not_replace_a_capture(h100: Run) -> None:
    capture = h100.file("captures", "fp16.tensorrt.sqlite")
    before = capture.read_bytes()
    assert "is a file of the run" in refused("timeline", h100.path, "-o", capture)
    assert capture.read_bytes() == before


def count(made: Run, engine: str) -> None:
    """An ncu capture beside the fp32 engine that says which engine it is of."""
    shutil.copy(
        DATA / "ncu" / "two_kernels.raw.csv", made.file("captures", "fp32.tensorrt.ncu.csv")
    )
    write_json(
        made.file("captures", "fp32.tensorrt.ncu.meta.json"),
        {"inputs": {"fp32.tensorrt.engine": engine}},
    )
    write_json(
        made.file("manifests", "engines", "fp32.tensorrt.json"),
        {"outputs": {"engines/fp32.tensorrt.engine": {"sha256": "a" * 64}}},
    )


def test_counters_of_another_engine_are_left_out_and_said_so(h100: Run) -> None:
    count(h100, "a" * 64)
    assert [p.name for p in counters.captures(h100)] == ["fp32.tensorrt.ncu.csv"]
    kept = Problems()
    counters.left_out(h100, kept)
    assert kept.skipped == []
    count(h100, "b" * 64)
    assert counters.captures(h100) == []
    counters.left_out(h100, kept)
    assert [x["what"] for x in kept.skipped] == ["counters of fp32.tensorrt"]
    run("report", "--run", h100.path)
    assert (
        "counters of fp32.tensorrt: they are of another engine"
        in h100.file("report", "report.md").read_text()
    )


def test_counters_that_do_not_fit_their_plan_name_their_file(h100: Run) -> None:
    count(h100, "a" * 64)
    row: dict[str, Any] = dict.fromkeys(("kernel", "function"), "other")
    row |= {"index": 0, "grid": [1, 1, 1], "block": [1, 1, 1], "layer": None, "key": 0}
    row |= {"representative": None, "registers": 1, "static_shared": 0, "dynamic_shared": 0}
    plan = {"schema_version": 1, "launches": [row], "reports": {}, "chosen": None}
    write_json(h100.file("captures", "fp32.tensorrt.ncu.plan.json"), plan)
    with pytest.raises(InputError, match=r"captures/fp32\.tensorrt\.ncu\.csv: ncu captured"):
        counters.counters_of_run(h100)
    run("report", "--run", h100.path)  # of all else
    told = h100.file("report", "report.md").read_text()
    assert "counters of fp32.tensorrt: ncu captured" in told


def test_what_was_measured_and_is_not_all_there_is_listed(h100: Run) -> None:
    h100.file("engines", "fp32.tensorrt.layers.json").unlink()
    write_json(h100.file("captures", "train.fp16.latency.json"), {})
    run("report", "--run", h100.path)
    told = h100.file("report", "report.md").read_text()
    assert "TensorRT fp32: it was measured, but engines/fp32.tensorrt.layers.json is not" in told
    assert "train fp16: it was measured, but captures/train.fp16.trace.json.gz is not" in told


def test_a_report_older_than_its_captures_is_not_used(h100: Run, tmp_path: Path) -> None:
    """Neither to compare nor to lie beside a newer timeline; a report that was copied alone is."""
    assert run("report", "--run", h100.path).exit_code in (0, 1)
    assert run("compare", h100.path, h100.path).exit_code == 0
    alone = tmp_path / "alone"
    shutil.copytree(h100.file("report"), alone / "report")
    capture = h100.file("captures", "eager.fp16.latency.json")
    measured = capture.exists()
    capture.write_text(capture.read_text().replace(" ", "  ") if measured else "{}")
    for arguments in (
        ("compare", h100.path, alone),
        ("compare", alone, h100.file("report", "summary.json")),
        ("timeline", h100.path),
        ("graph", h100.path, "-o", tmp_path / "g.dot", "--colour", "cost"),
        ("compare", h100.file("tables", "layers.parquet"), alone),
    ):
        told = refused(*arguments)
        assert "is older than the run's captures/eager.fp16.latency.json" in told
        assert f"layerline report --run {h100.path}" in told
    assert run("timeline", h100.path, "-o", tmp_path / "t.perfetto-trace").exit_code in (0, 1)
    assert run("compare", alone, alone).exit_code == 0
    run("report", "--run", h100.path)
    assert run("compare", h100.path, alone).exit_code == 0


def test_a_report_that_was_not_finished_is_not_used(h100: Run) -> None:
    run("report", "--run", h100.path)
    h100.manifest_path("analysis/report").unlink()
    told = refused("compare", h100.path, h100.path)
    assert "was not finished" in told and "makes it again" in told


def test_a_run_copied_in_part_says_so_first_and_ends_with_1(h100: Run) -> None:
    run("report", "--run", h100.path)
    engines, metas = (
        sorted(h100.path.glob(pattern)) for pattern in ("engines/*.json", "captures/*.meta.json")
    )
    names = [path.relative_to(h100.path).as_posix() for path in (*engines, *metas)]
    left = {name: {"sha256": "0" * 64, "size": 1} for name in names}
    write_json(h100.manifest_path("profile/all"), {"step": "profile/all", "outputs": left})
    shutil.move(engines[0], h100.path / "elsewhere.json")
    told = run("report", "--run", h100.path)
    assert isinstance(told.exception, CheckFailed)
    first = f"1 file that its steps left is not there ({names[0]}): the run was copied in part"
    assert told.stdout.startswith(first[:90]) and first in str(told.exception)
    assert first in str(run("timeline", h100.path).exception)
    for path in (*engines[1:], *metas):
        path.unlink()
    assert f"{len(names)} files that its steps left are not there" in refused(
        "report", "--run", h100.path
    )
    h100.manifest_path("profile/all").unlink()
    told_nothing = refused("report", "--run", h100.path)
    assert "nothing says what" in told_nothing and "copied in part" in told_nothing
    # What is there is not said to be gone.
    assert "(no captures/*.meta.json, engines/*.layers.json)" in told_nothing


@pytest.mark.parametrize("folder", ["captures", "engines"])
def test_a_file_where_a_folder_of_the_run_is_needed_is_named(h100: Run, folder: str) -> None:
    shutil.rmtree(h100.file(folder))
    h100.file(folder).write_text("")
    told = refused("report", "--run", h100.path)
    assert f"/{folder}: this folder cannot be read (Not a directory)" in told


def test_a_link_to_captures_that_are_gone_is_named(h100: Run) -> None:
    shutil.rmtree(h100.file("captures"))
    h100.file("captures").symlink_to(h100.path / "gone")
    told = refused("report", "--run", h100.path)
    assert "/captures: this folder cannot be read (No such file" in told


def test_a_manifest_of_another_form_is_listed(h100: Run) -> None:
    write_json(h100.file("manifests", "profile", "eager.fp32.json"), {"versions": ["2.11"]})
    told = str(run("report", "--run", h100.path).exception)
    assert "manifests/profile/eager.fp32.json: versions is ['2.11'], not an object" in told
    assert "run its step again" in told
    written = h100.file("report", "report.md").read_text()
    assert "manifests/profile/eager.fp32.json: versions is &#91;'2.11'&#93;, not an obj" in written


@pytest.mark.parametrize(
    ("command", "option"),
    [("profile", "--precision"), ("profile", "--what"), ("engines", "--precision"),
     ("export", "--precision"), ("timeline", "--precision"), ("ncu", "--metrics")],
)  # fmt: skip
def test_commas_alone_do_not_mean_the_default(h100: Run, command: str, option: str) -> None:
    where = [h100.path] if command == "timeline" else ["--run", h100.path]
    assert "there is nothing in ', ,'" in refused(command, *where, option, ", ,")


def test_nobody_is_told_to_remove_a_run_that_lost_its_version(h100: Run) -> None:
    write_json(h100.file("run.json"), {})
    h100.file("manifests", "version.json").unlink()
    told = refused("report", "--run", h100.path)
    assert "manifests/version.json: run directory without a schema version; copy that file" in told


def test_an_input_that_is_gone_is_named_with_what_to_do(tmp_path: Path) -> None:
    made = open_run(tmp_path / "run", create=True)
    step = Step(made, "profile/x", {}, [made.file("export", "inputs.npz")], [])
    with pytest.raises(InputError, match=r"export/inputs\.npz: no such file; run the stage before"):
        step.recording().__enter__()


def test_a_manifest_that_is_none_makes_its_step_run_again(h100: Run) -> None:
    write_json(h100.file("manifests", "profile", "fp32.tensorrt.latency.json"), [1])
    assert "profile/fp32.tensorrt.latency" not in h100.manifests()


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"aliases": [1]}, r"aliases is \[1\], not an object"),
        ({"aliases": {"a": 5}}, r"aliases\[\.\.\.\] is not a list"),
        ({"inputs": 5}, "inputs is 5, not a list"),
        ({"initializers": [[]]}, r"initializers\[0\] is \[\], not text"),
    ],
)
def test_nodes_with_optional_fields_of_another_form_are_refused(
    other: dict[str, Any], said: str
) -> None:
    with pytest.raises(InputError, match=rf"nodes\.json: {said}"):
        nodes.parse({"schema_version": 1, "nodes": [], **other}, "nodes.json")


@pytest.mark.parametrize("batches", ["", ",", "99999999999999999999"])
def test_a_sweep_of_nothing_or_of_too_much_is_refused(tmp_path: Path, batches: str) -> None:
    assert "Invalid value for '--batches'" in refused(
        "sweep", "--run", tmp_path, "--batches", batches
    )


def test_a_list_of_metrics_makes_no_run_of_a_misspelt_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ncu_fake.make(tmp_path, monkeypatch)
    told = refused("ncu", "--query", "--run", tmp_path / "rum")
    assert "rum: no such run directory" in told and not (tmp_path / "rum").exists()
    (tmp_path / "run" / "captures" / "ncu-metrics.txt").mkdir()
    told = refused("ncu", "--query", "--run", tmp_path / "run")
    assert "ncu-metrics.txt: is a folder, not a file" in told


# --- pieces -------------------------------------------------------------------------------------


@pytest.fixture
def pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ncu_fake.Fake:
    monkeypatch.setenv("FAKE_TOTAL", "6")
    fake = ncu_fake.make(tmp_path, monkeypatch)
    fake.target = replace(fake.target, sqlite=None)
    return fake


def take(fake: ncu_fake.Fake) -> dict[str, Any]:
    return in_pieces.capture(fake.target, tool.Options(), pieces_.Cut(3, None), timeout=30)


def test_a_piece_of_another_capture_is_taken_again(pieces: ncu_fake.Fake) -> None:
    pytest.importorskip("ncu_report")
    assert take(pieces)["launches"] == 6
    manifest = pieces.target.file(".ncu.batches") / "manifest.json"
    document = json.loads(manifest.read_text())
    document["taken"][1]["capture"] = "another"
    write_json(manifest, document)
    with pytest.raises(CheckFailed, match=r"of another capture; copy .* or run the same"):
        counters.counters_of_run(pieces.target.run)
    calls = len(pieces.calls())
    assert take(pieces)["launches"] == 6  # what the error said to do
    assert len(pieces.calls()) == calls + 1


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"schema_version": 1}'])
def test_a_broken_manifest_of_pieces_says_what_to_do(pieces: ncu_fake.Fake, content: str) -> None:
    folder = pieces.target.file(".ncu.batches")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(content)
    with pytest.raises(InputError, match=r"manifest\.json: is .*; remove it and capture again"):
        take(pieces)


def test_a_file_where_pieces_go_is_named(pieces: ncu_fake.Fake) -> None:
    pieces.target.file(".ncu.batches").write_text("mine")
    with pytest.raises(InputError, match=r"ncu\.batches: is a file where a folder is needed"):
        take(pieces)


# --- ended in the middle ------------------------------------------------------------------------

ENDED = """
import os, sys, subprocess
from pathlib import Path
from layerline.core import files
from layerline.core.cli import command
from layerline.engines import launch
from layerline.engines.backend import Worker
command._end_orderly()
with files.replacing(Path("half.txt")) as temporary:
    temporary.write_text("half")
    launch.call(Worker(("sh", "-c", "echo $$ > worker; exec sleep 60")), {})
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_leaves_no_half_file_and_no_worker(
    tmp_path: Path, number: signal.Signals
) -> None:
    found = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)
    environment = {**os.environ, "PYTHONPATH": found}
    process = subprocess.Popen([sys.executable, "-c", ENDED], cwd=tmp_path, env=environment)
    worker = tmp_path / "worker"
    until = time.monotonic() + 30
    while not (worker.exists() and worker.read_text().strip()) and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) == 128 + number
    assert [p.name for p in tmp_path.iterdir()] == ["worker"]
    assert ended(int(worker.read_text()))


def ended(process: int) -> bool:
    """Whether a process is gone, or only waits for whoever inherited it to notice."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
