"""`layerline scrub --in-place`: whatever goes wrong, the original or its scrubbed copy is there."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import nsys_build
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from layerline.analysis.scrub import pipeline
from layerline.core.cli.command import main
from layerline.core.errors import InputError
from layerline.core.files import write_json
from layerline.core.run import SCHEMA_VERSION, open_run

HOST = "frosty-ridge17"
GONE = "999999999"  # no process has this number


def a_run(path: Path) -> Path:
    (path / "captures").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"schema_version": 1, "host": HOST}))
    export = nsys_build.Export()
    export.launch(10)
    export.write(path / "captures" / "x.sqlite")
    (path / "captures" / "x.npz").write_bytes(b"no copy has this")
    return path


def a_parquetdir(path: Path) -> Path:
    path.mkdir()
    texts = {"id": [1, 2], "value": ["gemm", f"on {HOST}"]}
    pq.write_table(pa.table(texts), path / "StringIds.parquet")
    rows = {"start": [1], "end": [2], "globalTid": [1], "eventType": [59], "textId": [2]}
    pq.write_table(pa.table(rows), path / "NVTX_EVENTS.parquet")
    return path


def contents(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def fails(
    monkeypatch: pytest.MonkeyPatch, when: Callable[[Path, Path], BaseException | None]
) -> None:
    """Renaming raises what `when` gives for its source and target."""
    rename = Path.rename

    def tried(self: Path, target: Path) -> Path:
        if (error := when(self, Path(target))) is not None:
            raise error
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", tried)


@pytest.mark.parametrize("make", [a_run, a_parquetdir])
@pytest.mark.parametrize("which", ["first", "last"])
def test_a_rename_that_fails_leaves_the_original_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    make: Callable[[Path], Path], which: str,
) -> None:  # fmt: skip
    path = make(tmp_path / "it")
    before = contents(path)

    def when(source: Path, target: Path) -> OSError | None:
        moved_in = target == path and ".partial." in source.name
        hit = moved_in if which == "last" else source == path
        return OSError(16, "Device or resource busy", str(source)) if hit else None

    fails(monkeypatch, when)
    with pytest.raises(SystemExit) as end:
        main(["scrub", "--in-place", str(path)])
    said = capfd.readouterr().err
    assert end.value.code == 2
    assert f"error: {path}: cannot be replaced (Device or resource busy) and is as it was" in said
    assert contents(path) == before and list(tmp_path.iterdir()) == [path]


def test_an_interrupt_between_the_renames_puts_the_original_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_run(tmp_path / "it")
    before = contents(path)
    fails(monkeypatch, lambda s, t: KeyboardInterrupt() if ".partial." in s.name else None)
    with pytest.raises(KeyboardInterrupt):
        pipeline.scrub(path, None, in_place=True)
    assert contents(path) == before and list(tmp_path.iterdir()) == [path]


def test_an_original_that_cannot_be_put_back_is_kept_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_run(tmp_path / "it")
    before = contents(path)
    fails(monkeypatch, lambda s, t: OSError(5, "Input/output error") if t == path else None)
    with pytest.raises(InputError, match="nor put back") as told:
        pipeline.scrub(path, None, in_place=True)
    (kept,) = tmp_path.iterdir()
    assert str(kept) in str(told.value) and contents(kept) == before


def test_an_original_that_cannot_be_removed_is_named_and_the_scrubbed_one_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = a_run(tmp_path / "it")
    remove = shutil.rmtree

    def tried(folder: Path) -> None:
        if folder.name.endswith(".unscrubbed"):
            raise PermissionError(13, "Permission denied", str(folder))
        remove(folder)

    monkeypatch.setattr(shutil, "rmtree", tried)
    with pytest.raises(InputError, match="could not be removed") as told:
        pipeline.scrub(path, None, in_place=True)
    (kept,) = (p for p in tmp_path.iterdir() if p != path)
    assert str(kept) in str(told.value)
    assert HOST in (kept / "run.json").read_text() and HOST not in (path / "run.json").read_text()


def test_the_original_of_a_process_that_was_killed_is_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening a run removes the half files of processes that are gone."""
    run = a_run(tmp_path / "run")
    write_json(run / "manifests" / "version.json", {"schema_version": SCHEMA_VERSION})
    inner = a_parquetdir(run / "captures" / "y")
    before = contents(inner)
    names: list[Path] = []
    fails(monkeypatch, lambda s, t: names.append(t) if s == inner else None)
    pipeline.scrub(inner, None, in_place=True)
    monkeypatch.undo()
    shutil.rmtree(inner)
    (old,) = names
    killed = a_parquetdir(inner).rename(old.with_name(old.name.replace(str(os.getpid()), GONE)))
    half = run / "captures" / f".{GONE}.partial.y"
    half.touch()
    open_run(run)
    assert not half.exists()
    assert contents(killed) == before


@pytest.mark.parametrize("make", [a_run, lambda p: a_run(p) / "run.json"])
def test_of_a_link_it_is_what_it_leads_to_that_is_replaced(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    path = make(tmp_path / "it")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert pipeline.scrub(link, None, in_place=True)[0] == path
    assert link.is_symlink() and link.readlink() == path
    told = path if path.is_file() else path / "run.json"
    assert json.loads(told.read_text()) == {"schema_version": 1, "host": "host1"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["it", "link"]


def test_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(a_run(tmp_path / "it"))
    copy, _ = pipeline.scrub(Path(), None)
    assert copy == tmp_path / "it.scrubbed"
    assert json.loads((copy / "run.json").read_text())["host"] == "host1"
    assert pipeline.scrub(Path(), None, in_place=True)[0] == tmp_path / "it"
    assert contents(tmp_path / "it") == contents(copy)
