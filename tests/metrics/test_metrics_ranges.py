"""A range that ncu replayed as one is of no kernel, no layer and no module, and every command says
so; `data/ncu/h100_range.raw.csv` is ncu 2025.3.1's page of one inference on an H100."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import paths
import pytest
from click.testing import CliRunner, Result

from layerline.analysis.captures import counters
from layerline.analysis.commands.metrics import metrics
from layerline.analysis.readers import registry
from layerline.analysis.readers.ncu import report
from layerline.analysis.readers.ncu.tables import AS_ONE
from layerline.analysis.rundir.problems import Problems
from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.core.replay import pieces
from layerline.core.run import Run, open_run

PAGE = paths.DATA / "ncu" / "h100_range.raw.csv"
KERNELS = PAGE.with_name("two_kernels.raw.csv")
DURATION = "gpu__time_duration.sum"


def call(*arguments: object) -> Result:
    return CliRunner().invoke(metrics, [str(a) for a in arguments])


def test_the_reader_says_that_a_row_is_a_range() -> None:
    found = registry.read(PAGE)
    (launch,) = found.tables["launches"].to_pylist()
    assert launch["workload"] == "range"
    assert (launch["kernel"], launch["grid"], launch["layer"]) == ("range", None, None)
    assert AS_ONE in found.notes
    kernels = registry.read(KERNELS)
    assert kernels.tables["launches"]["workload"].null_count == 3
    assert AS_ONE not in kernels.notes


@pytest.mark.parametrize(("kind", "name"), [(1, "range"), (0, "kernel"), (3, "graph"), (9, None)])
def test_a_report_says_what_was_replayed_as_one(kind: int, name: str | None) -> None:
    known = {"KERNEL": 0, "RANGE": 1, "CMDLIST": 2, "GRAPH": 3}
    action: Any = SimpleNamespace(
        workload_type=lambda: kind, **{f"WorkloadType_{k}": v for k, v in known.items()}
    )
    assert report._workload(action) == name
    assert report._workload(SimpleNamespace()) is None  # an ncu_report that does not know


def test_a_range_is_counted_as_a_range_and_of_no_kernel() -> None:
    found = call("attribute", PAGE, "-m", DURATION)
    assert found.exit_code == 0
    assert f"# {AS_ONE}" in found.stdout
    head, row = found.stdout.splitlines()[-2:]
    assert head.split("\t")[3] == "ranges"
    assert row.split("\t")[3:5] == ["1", "-"]
    assert AS_ONE in call("roofline", PAGE).stdout
    explained = call("explain", PAGE).stdout
    assert explained.startswith(AS_ONE)
    assert "1 of 1 ranges" in explained and "1 of 1 kernels" not in explained


@pytest.mark.parametrize("command", [("attribute", "-m", DURATION), ("roofline",)])
@pytest.mark.parametrize("asked", [("--by", "module"), ("--nodes", "nodes.json")])
def test_layers_and_modules_of_a_range_are_refused(
    command: tuple[str, ...], asked: tuple[str, str]
) -> None:
    found = call(command[0], PAGE, *command[1:], *asked)
    assert isinstance(found.exception, InputError)
    assert "of no layer and no module; leave out --by and --nodes" in found.exception.line()


# --- in a run -----------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = open_run(tmp_path / "run", create=True)
    made.file("captures").mkdir()
    return made


def test_a_report_lists_a_range_and_gives_its_counters_to_no_layer(run: Run) -> None:
    shutil.copy(PAGE, run.file("captures", "fp16.tensorrt.ncu-range.ncu.csv"))
    write_json(run.file("captures", "fp16.tensorrt.ncu-range.ncu.meta.json"), {})
    problems = Problems()
    assert counters.counters_of_run(run, problems) is None
    (listed,) = problems.skipped
    assert listed["what"] == "counters of fp16.tensorrt.ncu-range"
    assert "replayed as one, of no kernel and no layer" in listed["why"]
    assert "layerline metrics" in listed["fix"]


def test_a_range_under_the_name_of_a_capture_of_kernels_is_left_out(run: Run) -> None:
    shutil.copy(PAGE, run.file("captures", "fp16.tensorrt.ncu.csv"))
    with pytest.raises(InputError, match=r"fp16\.tensorrt\.ncu\.csv: holds ranges"):
        counters.counters_of_run(run)
    kept = Problems()
    assert counters.counters_of_run(run, kept) is None
    assert [s["what"] for s in kept.skipped] == ["counters of fp16.tensorrt"]
    assert kept.errors == []


def test_pieces_of_ranges_still_say_that_a_row_is_a_range(tmp_path: Path) -> None:
    folder = tmp_path / "fp16.tensorrt.ncu-range.ncu.batches"
    folder.mkdir()
    shutil.copy(PAGE, folder / "a.csv")
    taken = pieces.Taken(pieces.Piece(0, None, 0), pieces.DONE, "key", "a.ncu-rep", "", 1)
    write_json(
        folder / "manifest.json",
        pieces.as_json(pieces.Manifest("key", pieces.Cut(1, None), None, [taken])),
    )
    found = call("attribute", folder, "-m", DURATION)
    assert f"# {AS_ONE}" in found.stdout
    assert "capture: fp16.tensorrt.ncu-range.ncu.batches" in found.stdout
