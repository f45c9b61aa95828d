"""Pieces of an ncu capture that were cut, mixed up or edited: the right piece is named, a number
that is not known stays unknown, and other captures of the run keep their counters."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paths
import pytest
from counter_pieces import TOTAL, pages

from layerline.analysis.captures import counters as counters_
from layerline.analysis.roofline.bound_inputs import by_name
from layerline.analysis.rundir.problems import Problems
from layerline.core.errors import CheckFailed, InputError
from layerline.core.files import write_json
from layerline.core.replay import pieces
from layerline.core.replay.pieces import Manifest
from layerline.core.run import Run, open_run

STEM = "fp32.tensorrt.ncu-every"
DATA = paths.DATA / "ncu"


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = open_run(tmp_path / "run", create=True)
    folder = made.file("captures", f"{STEM}.ncu.batches")
    folder.mkdir(parents=True)
    pages(folder, 3)
    return made


def folder_of(run: Run) -> Path:
    return run.file("captures", f"{STEM}.ncu.batches")


def page(run: Run, number: int = 1) -> Path:
    found: Manifest = pieces.load(folder_of(run) / "manifest.json")
    return folder_of(run) / found.taken[number].page


def edit(run: Run, change: Callable[[Any], None]) -> None:
    path = folder_of(run) / "manifest.json"
    document = json.loads(path.read_text())
    change(document)
    write_json(path, document)


def refused(run: Run, error: type[Exception], match: str) -> None:
    before = sorted(run.file("captures").rglob("*"))
    with pytest.raises(error, match=match):
        counters_.counters_of_run(run)
    assert sorted(run.file("captures").rglob("*")) == before


def lines(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))


# --- pages --------------------------------------------------------------------------------------


def test_a_page_cut_within_a_row_is_said_to_be_cut_short(run: Run) -> None:
    path = page(run)
    path.write_bytes(path.read_bytes()[:-20])
    refused(run, InputError, rf"{path.name}: is cut short; copy it again")


def test_a_page_cut_between_rows_is_counted_against_the_manifest(run: Run) -> None:
    lines(page(run), lambda x: x[:-5])
    refused(run, InputError, rf"{page(run).name}: holds 23 launches, and 28 were captured")


def test_a_folder_or_a_dead_link_in_the_place_of_a_page_is_a_missing_piece(run: Run) -> None:
    page(run).unlink()
    page(run).mkdir()
    refused(run, CheckFailed, "this piece is missing; copy the folder again")
    page(run).rmdir()
    page(run).symlink_to("/nowhere/at/all")
    refused(run, CheckFailed, "this piece is missing; copy the folder again")


def test_a_page_with_other_kernels_than_its_report_is_refused_without_an_nsys_capture(
    run: Run,
) -> None:
    def known(document: Any) -> None:
        document["taken"][1]["kernels"] = [["other", [2, 1, 1], [1, 1, 1]]] * 28
        document["expected"] = None

    edit(run, known)
    refused(run, CheckFailed, rf"{page(run).name}: has other kernels than the report")


def test_a_number_without_its_unit_is_not_given_the_unit_of_other_pieces(run: Run) -> None:
    def without(rows: list[str]) -> list[str]:
        assert '"ns"' in rows[1]
        return [rows[0], rows[1].replace('"ns"', '""'), *rows[2:]]

    lines(page(run), without)
    refused(run, InputError, rf"{page(run).name}: has 28 numbers whose decimal sign or unit")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig", "latin-1"])
def test_a_page_in_another_encoding_is_the_same_page(run: Run, encoding: str) -> None:
    before = counters_.counters_of_run(run)
    assert before is not None
    page(run).write_bytes(page(run).read_text().encode(encoding))
    assert counters_.counters_of_run(run) == before


# --- the manifest -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "key", "value", "said"),
    [
        ("taken", "file", "", r"taken\[1\]\.file is ''"),
        ("taken", "file", None, r"taken\[1\]\.file is None"),
        ("taken", "file", 3, r"taken\[1\]\.file is 3"),
        ("taken", "file", "../x.ncu-rep", "not the name of a file in this folder"),
        ("taken", "launches", -28, r"taken\[1\]\.launches is -28"),
        ("taken", "launches", True, r"taken\[1\]\.launches is True"),
        ("taken", "page_sha256", 4, r"taken\[1\]\.page_sha256 is 4"),
        (
            "taken",
            "kernels",
            [["k", 1]],
            r"taken\[1\]\.kernels\[0\] is \['k', 1\], not a list of length 3",
        ),
        ("taken", "new", 1, r"taken\[1\]\.new is unknown"),
        ("piece", "part", "0", r"taken\[1\]\.piece\.part is '0'"),
        ("piece", "part", None, r"taken\[1\]\.piece\.part is None"),
        ("piece", "skip", 28.0, r"taken\[1\]\.piece\.skip is 28\.0"),
        ("piece", "metrics", "abc", r"taken\[1\]\.piece\.metrics is 'abc'"),
    ],
)
def test_a_value_of_another_form_is_named(
    run: Run, where: str, key: str, value: Any, said: str
) -> None:
    def change(document: Any) -> None:
        taken = document["taken"][1]
        (taken if where == "taken" else taken["piece"])[key] = value

    edit(run, change)
    refused(run, InputError, rf"manifest\.json: is no manifest of pieces \(.*{said}")


def test_a_manifest_of_a_later_schema_is_not_told_to_be_removed(run: Run) -> None:
    edit(run, lambda document: document.update(schema_version=2, taken="another form"))
    refused(run, InputError, "has schema version 2, and 1 is known; read it with the Layerline")


def test_pieces_that_overlap_are_said_to(run: Run) -> None:
    edit(run, lambda document: document["taken"][1]["piece"].update(skip=20))
    refused(run, CheckFailed, "launches 20 to 27 of part 0 are in two pieces")


def test_a_piece_that_was_captured_and_is_not_in_the_manifest_is_missed(run: Run) -> None:
    names = [{"name": f"launches-{n}.part-0", "launches": 28} for n in (0, 28, 56)]
    about = {"schema_version": 1, "pieces": names, "launches": TOTAL}
    write_json(run.file("captures", f"{STEM}.ncu.meta.json"), about)

    def shorter(document: Any) -> None:
        document["taken"].pop()
        document["expected"] = None  # nothing but the meta file tells

    edit(run, shorter)
    refused(run, CheckFailed, r"manifest\.json: does not know piece launches-56\.part-0")


# --- the run ------------------------------------------------------------------------------------


def test_broken_pieces_do_not_take_other_captures_with_them(run: Run) -> None:
    (run.file("captures") / "eager.fp32.ncu.csv").write_text(
        (DATA / "two_kernels.raw.csv").read_text()
    )
    page(run).unlink()
    kept = Problems()
    found = counters_.counters_of_run(run, kept)
    assert found is not None
    assert set(found["source"].to_pylist()) == {"eager.fp32.ncu.csv"}
    (listed,) = kept.listed(run)
    assert listed["what"] == f"counters of {STEM}"
    assert "this piece is missing" in listed["why"]


def test_of_pieces_and_a_capture_in_one_the_later_counts(run: Run) -> None:
    assert counters_.captures(run) == [folder_of(run)]
    whole = run.file("captures", f"{STEM}.ncu.csv")
    whole.write_text((DATA / "two_kernels.raw.csv").read_text())
    assert counters_.captures(run) == [whole]
    later = whole.stat().st_mtime_ns + 1
    os.utime(folder_of(run) / "manifest.json", ns=(later, later))
    assert counters_.captures(run) == [folder_of(run)]
    page(run).unlink()
    kept = Problems()  # what is left of the older one does not stand for it
    assert counters_.counters_of_run(run, kept) is None
    assert "this piece is missing" in kept.listed(run)[0]["why"]


def test_a_report_of_the_run_reads_pieces_and_leaves_captures_as_they_are(run: Run) -> None:
    before = sorted(run.file("captures").rglob("*"))
    found = counters_.counters_of_run(run)
    assert found is not None
    assert set(found["source"].to_pylist()) == {f"{STEM}.ncu.batches"}
    assert len(set(found["launch"].to_pylist())) == TOTAL
    assert set(found["engine"].to_pylist()) == {"fp32.tensorrt.engine"}
    assert sorted(run.file("captures").rglob("*")) == before
    assert list(by_name(found)) == ["fp32.tensorrt"]


def test_pieces_without_their_manifest_are_not_passed_over(run: Run) -> None:
    manifest = folder_of(run) / "manifest.json"
    manifest.rename(manifest.with_suffix(".bak"))
    refused(run, CheckFailed, r"ncu\.batches: holds pieces and no manifest\.json; copy the folder")
    for piece in folder_of(run).glob("*.csv"):
        piece.unlink()
    assert counters_.captures(run) == []  # begun, and nothing in it yet


def test_a_file_in_the_place_of_a_folder_of_pieces_is_named(run: Run) -> None:
    run.file("captures", "fp16.tensorrt.ncu.batches").write_text("mine")
    kept = Problems()
    found = counters_.counters_of_run(run, kept)
    assert found is not None and set(found["source"].to_pylist()) == {f"{STEM}.ncu.batches"}
    (listed,) = kept.listed(run)
    assert listed["what"] == "counters of fp16.tensorrt"
    assert listed["why"].endswith("fp16.tensorrt.ncu.batches: is no folder of pieces")


def test_pieces_of_another_engine_are_listed_before_they_were_ever_put_together(run: Run) -> None:
    about = {"schema_version": 1, "inputs": {"fp32.tensorrt.engine": "of another"}}
    write_json(run.file("captures", f"{STEM}.ncu.meta.json"), about)
    built = {"outputs": {"engines/fp32.tensorrt.engine": {"sha256": "of this"}}}
    step = run.path / "manifests" / "engines" / "fp32.tensorrt.json"
    step.parent.mkdir(parents=True, exist_ok=True)
    write_json(step, built)
    kept = Problems()
    counters_.left_out(run, kept)
    (listed,) = kept.skipped
    assert listed["what"] == f"counters of {STEM}"
    assert "of another engine" in listed["why"]
    page(run).unlink()  # they are not even looked at
    assert counters_.captures(run) == []
