"""The check of what was written, by code that shares nothing with the code that wrote it.

It searches the bytes (decompressed, and without zero bytes, which finds UTF-16), the text of
every cell and string once more, for each value that was taken out and for what looks like one.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from ..readers.bounded import open_bytes

_WINDOW = 8 << 20
_OVERLAP = 8192
_MANY = 200

_LOOKS_LIKE = {
    "home": re.compile(
        rb"(?:(?<![\w.-])|(?<=-[A-Za-z])|(?<=-isystem))/(?:home|Users)/(?!user\d+(?!\w))[\w.-]+"
    ),
    "windows home": re.compile(rb"[A-Za-z]:\\{1,4}Users\\{1,4}(?!user\d+)[\w.-]+"),
    "uuid": re.compile(
        rb"(?<![0-9A-Za-z])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![0-9A-Za-z])"
    ),
    "token": re.compile(
        rb"(?<![A-Za-z0-9])(?:AKIA[0-9A-Z]{16}|hf_[A-Za-z0-9]{16,}|ghp_[A-Za-z0-9]{20,})|"
        rb"-----BEGIN [A-Z ]*PRIVATE KEY"
    ),
    "mac": re.compile(rb"(?<![0-9A-Za-z:.-])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![0-9A-Za-z:])"),
}
_ESCAPE = re.compile(rb"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)


def scan(
    path: Path, literals: Iterable[tuple[str, str]] = (), skipped: Collection[Path] = ()
) -> Counter[str]:
    """What is still in a file or a directory: counts by kind; empty where it is clean.

    `skipped`: files and directories in it that are not searched.
    """
    search = _Search(literals)
    for file in [path] if path.is_file() else _files(path, skipped):
        # What looks like something is looked for in a table's cells: its bytes are mostly numbers.
        cells = _cells_of(file)
        table = cells is not None
        for data in _windows(file):
            search.look(data, patterns=not table)
            if b"\x00" in data:
                search.look(data.replace(b"\x00", b""), patterns=False)
            if b"\\" in data and not table:
                search.look(_unescaped(data))
        for text in cells(file) if cells else ():
            search.look(text)
        search.look(file.name.encode("utf-8", "surrogateescape"))
    return search.found


def _files(folder: Path, skipped: Collection[Path]) -> list[Path]:
    """The files of a folder, without those that are skipped or lie in what is."""
    left = frozenset(skipped)
    return sorted(f for f in folder.rglob("*") if f.is_file() and left.isdisjoint((f, *f.parents)))


class _Search:
    def __init__(self, literals: Iterable[tuple[str, str]]) -> None:
        self.found: Counter[str] = Counter()
        self.kinds = {v.encode("utf-8", "surrogateescape"): k for k, v in literals}
        values = sorted(self.kinds, key=len, reverse=True)
        self.literal = (
            re.compile(
                rb"(?<![A-Za-z0-9])(?:" + b"|".join(map(re.escape, values)) + rb")(?![A-Za-z0-9])"
            )
            if values
            else None
        )

    def look(self, data: bytes, *, patterns: bool = True) -> None:
        """Search some bytes."""
        if self.literal is not None and self._may_hold(data):
            self.found.update(self.kinds[m[0]] for m in self.literal.finditer(data))
        for kind, pattern in _LOOKS_LIKE.items() if patterns else ():
            self.found.update(kind for _ in pattern.finditer(data))

    def _may_hold(self, data: bytes) -> bool:
        """Whether any value is in the bytes at all: for a few values much faster than asking
        whether it stands by itself."""
        return len(self.kinds) > _MANY or len(data) < 4096 or any(v in data for v in self.kinds)


def _unescaped(data: bytes) -> bytes:
    """The escapes of JSON undone, roughly: enough to find what they hide."""

    def one(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        if len(escape) == 5:
            return chr(int(escape[1:], 16)).encode("utf-8", "replace")
        return b"\n" if escape in b"nrt" else escape

    return _ESCAPE.sub(one, data)


def _windows(file: Path) -> Iterator[bytes]:
    with open_bytes(file) as stream:
        kept = b""
        while data := stream.read(_WINDOW):
            yield kept + data
            kept = data[-_OVERLAP:]


def _cells_of(file: Path) -> Callable[[Path], Iterator[bytes]] | None:
    """What gives the texts of a database or table, in whose bytes a text may lie in several pieces;
    None for other files."""
    with file.open("rb") as f:
        magic = f.read(16)
    readers = {b"SQLite format 3": _sqlite_cells, b"PAR1": _parquet_cells, b"ARROW1": _arrow_cells}
    return next((read for start, read in readers.items() if magic.startswith(start)), None)


def _parquet_cells(file: Path) -> Iterator[bytes]:
    for batch in pq.ParquetFile(file).iter_batches():
        yield from _texts(batch.to_pylist())


def _arrow_cells(file: Path) -> Iterator[bytes]:
    yield from _texts(ipc.open_file(str(file)).read_all().to_pylist())


def _texts(value: Any) -> Iterator[bytes]:
    if isinstance(value, str):
        yield value.encode("utf-8", "surrogatepass")
    elif isinstance(value, bytes):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def _sqlite_cells(file: Path) -> Iterator[bytes]:
    uri = f"file:{quote(os.fsencode(file.absolute()))}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as db:
        db.text_factory = bytes
        db.execute("pragma trusted_schema = off")
        for name, sql in db.execute("select name, sql from sqlite_master").fetchall():
            yield sql or b""
            table = '"' + name.decode("utf-8", "replace").replace('"', '""') + '"'
            if not (sql or b"").upper().startswith(b"CREATE TABLE"):
                continue
            info = db.execute(f"pragma table_info({table})").fetchall()
            names = ['"' + i[1].decode("utf-8", "replace").replace('"', '""') + '"' for i in info]
            for column in _with_text(db, table, names):
                query = (
                    f"select distinct cast({column} as blob) from {table} "
                    f"where typeof({column}) in ('text', 'blob')"
                )
                yield from (row[0] for row in db.execute(query))


def _with_text(db: sqlite3.Connection, table: str, columns: list[str]) -> list[str]:
    """The columns that hold any text, found in one pass over the table."""
    tests = ", ".join(f"max(typeof({c}) in ('text', 'blob'))" for c in columns)
    row = db.execute(f"select {tests} from {table}").fetchone()
    return [c for c, has in zip(columns, row, strict=True) if has]
