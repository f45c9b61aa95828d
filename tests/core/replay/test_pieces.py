"""A capture in pieces is the capture in one, or says which piece is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from counter_pieces import TOTAL, cut, pages, real

from layerline.analysis.counters import pieces as pieces__
from layerline.core.errors import CheckFailed
from layerline.core.files import sha256, write_json
from layerline.core.replay import pieces as pieces_
from layerline.core.replay.pieces import DONE, FAILED, Piece, Taken


def plain(counters: pa.Table) -> list[tuple[object, ...]]:
    rows = counters.to_pylist()
    return sorted((r["launch"], r["metric"], r["value"], r["text"], r["layer"]) for r in rows)


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_pieces_recombine_to_the_table_they_were_cut_from(tmp_path: Path, pieces: int) -> None:
    manifest, tables = cut(tmp_path, pieces)
    assert len(tables) == pieces
    pieces_.check(manifest, tmp_path)
    found = pieces__.recombine(manifest, tables, "whole")
    one, whole = cut(tmp_path, 1)
    assert found == pieces__.recombine(one, whole, "whole")
    assert plain(found) == plain(real())


def test_parts_of_the_metrics_are_merged_by_launch(tmp_path: Path) -> None:
    manifest, tables = cut(tmp_path, 3)
    again, _ = cut(tmp_path, 3)
    for t in list(again.taken):  # the same pieces once more, as another part: nothing is doubled
        path = tmp_path / f"b-{t.file}"
        path.write_text("other")
        tables[path.name] = tables[t.file]
        second = Piece(t.piece.skip, t.piece.count, 1)
        manifest.put(Taken(second, DONE, "key", path.name, sha256(path), t.launches, t.kernels))
    pieces_.check(manifest, tmp_path)
    assert plain(pieces__.recombine(manifest, tables, "x")) == plain(real())


def test_metrics_are_divided_into_parts() -> None:
    assert pieces_.parts(["a", "b", "c"], 2) == [("a", "b"), ("c",)]
    assert pieces_.parts([], 2) == [()]


def test_a_killed_piece_is_named(tmp_path: Path) -> None:
    manifest, _ = cut(tmp_path, 3)
    piece = manifest.taken[1].piece
    manifest.put(Taken(piece, FAILED, "key", "56-0.ncu-rep", "", 0, error="ended with signal 9"))
    with pytest.raises(CheckFailed, match=r"56-0\.ncu-rep: this piece failed: ended with signal 9"):
        pieces_.check(manifest, tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    manifest, _ = cut(tmp_path, 3)
    (tmp_path / manifest.taken[2].file).unlink()
    with pytest.raises(CheckFailed, match=rf"{manifest.taken[2].file}: this piece is missing"):
        pieces_.check(manifest, tmp_path)


def test_a_piece_of_another_run_is_named(tmp_path: Path) -> None:
    manifest, _ = cut(tmp_path, 3)
    manifest.taken[0].capture = "other"
    with pytest.raises(CheckFailed, match=rf"{manifest.taken[0].file}: this piece is of another"):
        pieces_.check(manifest, tmp_path)
    manifest, _ = cut(tmp_path, 3)
    (tmp_path / manifest.taken[0].file).write_text("another run's")
    with pytest.raises(CheckFailed, match="this is not the piece that was captured"):
        pieces_.check(manifest, tmp_path)


def test_a_gap_between_pieces_is_named(tmp_path: Path) -> None:
    manifest, _ = cut(tmp_path, 3)
    del manifest.taken[1]
    with pytest.raises(CheckFailed, match="launches 28 to 55 of part 0 are missing"):
        pieces_.check(manifest, tmp_path)


def test_sequences_that_disagree_are_refused_with_the_first_difference(tmp_path: Path) -> None:
    manifest, _ = cut(tmp_path, 3)
    sequence = manifest.taken[1].kernels
    assert sequence is not None
    sequence[2] = ("other", None, None)
    with pytest.raises(
        CheckFailed, match=r"launch 30 is other in part 0 and .* in the nsys capture"
    ):
        pieces_.check(manifest, tmp_path)


def test_a_manifest_survives_its_file(tmp_path: Path) -> None:
    manifest, _ = cut(tmp_path, 3)
    write_json(tmp_path / "manifest.json", pieces_.as_json(manifest))
    assert pieces_.load(tmp_path / "manifest.json") == manifest


@pytest.mark.parametrize("pieces", [1, 3, 7])
def test_pages_alone_recombine_where_the_reports_were_left_behind(
    tmp_path: Path, pieces: int
) -> None:
    pages(tmp_path, pieces)
    whole = pieces__.read(tmp_path)
    assert whole.tables["launches"]["launch"].to_pylist() == list(range(TOTAL))
    ours = {(r["launch"], r["metric"]): r["value"] for r in real().to_pylist()}
    theirs = {(r["launch"], r["metric"]): r["value"] for r in whole.main.to_pylist()}
    assert {k: v for k, v in theirs.items() if v is not None} == {
        k: v for k, v in ours.items() if v is not None
    }
    assert set(whole.main["source"].to_pylist()) == {tmp_path.name}


def test_a_page_with_other_kernels_than_nsys_saw_is_refused(tmp_path: Path) -> None:
    manifest = pages(tmp_path, 7)
    first, second = (tmp_path / t.page for t in manifest.taken[:2])
    assert manifest.taken[0].launches == manifest.taken[1].launches
    one, two = first.read_text(), second.read_text()
    first.write_text(two)
    second.write_text(one)
    with pytest.raises(CheckFailed, match="is the page of another piece"):
        pieces__.read(tmp_path)
    for t in manifest.taken:
        t.page_sha256 = ""  # as older captures have it
    write_json(tmp_path / "manifest.json", pieces_.as_json(manifest))
    with pytest.raises(CheckFailed, match="the sequences of kernels disagree: launch"):
        pieces__.read(tmp_path)


def test_a_page_that_was_changed_is_refused_beside_its_report_and_told_without(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = pages(tmp_path, 3)
    page = tmp_path / manifest.taken[1].page
    page.write_text(page.read_text() + "\n")
    pieces__.read(tmp_path)
    assert f"{page.name} is not as it was captured" in capsys.readouterr().err
    report = tmp_path / manifest.taken[1].file
    report.write_text("28")
    assert sha256(report) == manifest.taken[1].sha256
    with pytest.raises(CheckFailed, match=rf"{page.name}: this is not the piece"):
        pieces__.read(tmp_path)
