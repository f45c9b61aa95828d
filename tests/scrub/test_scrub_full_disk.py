"""A copy that finds no room is said to be what cannot be written, not the capture to be broken."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
import resource
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nsys_build
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from layerline.analysis.scrub import nsys_sqlite, pipeline
from layerline.core.errors import InputError

ROOM = 16 << 10  # bytes


@contextmanager
def little_room() -> Iterator[None]:
    """No file grows beyond `ROOM`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def capture(kind: str, folder: Path) -> Path:
    """A capture whose copy is larger than `ROOM`, compressed too."""
    path = folder / f"capture{kind}"
    dice = random.Random(1)
    numbers = [dice.getrandbits(40) for _ in range(8000)]
    if kind in (".sqlite", ""):
        export = nsys_build.Export()
        for at in range(400):
            export.launch(at * 100, name=f"k{at}")
        if kind == ".sqlite":
            return export.write(path)
        (path / "captures").mkdir(parents=True)
        (path / "run.json").write_text("{}")
        export.write(path / "captures" / "x.sqlite")
    elif kind.startswith(".json"):
        text = json.dumps(
            {"schemaVersion": 1, "traceEvents": [{"ph": "X", "ts": n, "dur": 1} for n in numbers]}
        )
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith("gz") else text.encode())
    else:
        table = pa.table(dict.fromkeys(("start", "end", "globalTid", "eventType"), numbers))
        if kind == ".parquetdir":
            path.mkdir()
            pq.write_table(table, path / "NVTX_EVENTS.parquet")
        else:
            with ipc.new_file(str(path), table.schema) as file:
                file.write_table(table)
    return path


KINDS = [".sqlite", "", ".json", ".json.gz", ".parquetdir", ".arrow"]


@pytest.mark.parametrize("kind", KINDS, ids=[k or "a run" for k in KINDS])
def test_a_full_disk_is_not_blamed_on_the_capture(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = capture(kind, tmp_path)
    out, scratch = tmp_path / "out" / "copy", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    with little_room(), pytest.raises(InputError, match=rf"^{out}: cannot be written \(") as told:
        pipeline.scrub(path, out)
    assert "name another place" in str(told.value)
    with little_room(), pytest.raises(InputError, match=rf"^{scratch}: cannot be written \("):
        pipeline.check(path)
    assert not list(out.parent.iterdir()) and not list(scratch.iterdir())
    if out.parent.exists():
        shutil.rmtree(out.parent)
    assert pipeline.scrub(path, out)[0] == out  # with room


@pytest.mark.parametrize("number", sorted(nsys_sqlite._OF_WRITING))
def test_sqlites_words_for_a_full_disk_are_of_the_copy(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, write: bool) -> None:
        if write:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = number
            raise error

    path = capture(".sqlite", tmp_path)
    monkeypatch.setattr(nsys_sqlite._Copy, "run", fail)
    with pytest.raises(InputError, match=rf"^{tmp_path}/copy: cannot be written \("):
        pipeline.scrub(path, tmp_path / "copy")


def test_a_damaged_capture_is_still_what_cannot_be_read(tmp_path: Path) -> None:
    path = capture(".sqlite", tmp_path)
    data = bytearray(path.read_bytes())
    data[4096 : 4096 + 2000] = bytes(2000)
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"^{path}: cannot be read"):
        pipeline.scrub(path, tmp_path / "copy")


def test_a_damaged_name_in_what_sqlite_says_is_no_traceback(tmp_path: Path) -> None:
    """sqlite3 puts the name of a table with broken SQL into its message, and decodes that."""
    path = tmp_path / "a.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT)")
        database.commit()
    name = b"CUPTI_ACTIVITY_KIND_KERNEL"
    data = path.read_bytes().replace(b"CREATE TABLE", b"CREATE (((((").replace(name, b"\xff" * 26)
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"^{path}: cannot be read"):
        pipeline.scrub(path, tmp_path / "copy")
