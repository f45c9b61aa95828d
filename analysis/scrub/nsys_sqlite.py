"""nsys' SQLite export, copied row by row into a new file.

Nothing is removed from a file that held it: the new database has only ever seen the scrubbed
texts, so no free page, journal or index keeps a word. Triggers, views, indexes and virtual
tables, which analysis does not read, are not copied.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from ...core.errors import InputError
from ..readers.nsys import nccl, schema
from ..readers.nsys.sqlite import quoted, refuse_unfinished
from . import nsys_rules as rules
from .scrubber import Scrubber

_MOST_TEXT = 64 << 20  # bytes of one value
_TYPE = re.compile(r"[A-Za-z][A-Za-z0-9_ ]{0,40}\Z")
_STRINGS = "StringIds"


def rewrite(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """Learn from the capture (`out` None), or write its copy.

    InputError where it is no nsys export, damaged, or in the middle of a write; OSError where the
    copy cannot be written.
    """
    refuse_unfinished(path)
    if out is not None:
        out.touch()  # SQLite would not say which of the two files it cannot open
    try:
        with contextlib.closing(_connect(path, out)) as db:
            copy = _Copy(db, path, scrubber)
            db.execute("begin")
            copy.run(write=out is not None)
            db.commit()
    except (sqlite3.Error, UnicodeDecodeError) as e:  # sqlite3 decodes its own messages
        number = _OF_WRITING.get(getattr(e, "sqlite_errorcode", 0))
        if number is not None:
            raise OSError(number, str(e)) from None
        raise InputError(f"cannot be read ({e})", file=path, fix="export it again") from None


# The source is opened to be read: these are of the copy, or of SQLite's own temporary files.
_OF_WRITING = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_IOERR_WRITE: errno.EIO,
    sqlite3.SQLITE_IOERR_FSYNC: errno.EIO,
    sqlite3.SQLITE_IOERR_TRUNCATE: errno.EIO,
    sqlite3.SQLITE_IOERR_CLOSE: errno.EIO,
}


def _connect(path: Path, out: Path | None) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as source:
        source.text_factory = bytes
        encoding = source.execute("pragma encoding").fetchone()[0].decode()
    if encoding != "UTF-8":
        raise InputError(f"is SQLite in {encoding}, which nsys never writes", file=path)
    db = sqlite3.connect(
        "file::memory:" if out is None else f"file:{quote(os.fsencode(out.absolute()))}", uri=True
    )
    db.text_factory = lambda data: data.decode("utf-8", errors="surrogateescape")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_TEXT)
    for pragma in ("trusted_schema = off", "journal_mode = off", "synchronous = off"):
        db.execute(f"pragma {pragma}").fetchall()
    db.execute("attach ? as src", (uri,))
    return db


class _Copy:
    def __init__(self, db: sqlite3.Connection, path: Path, scrubber: Scrubber) -> None:
        self.db, self.scrubber = db, scrubber
        self.tables = dict(self._tables())
        self.names = {t: tuple(columns) for t, columns in self.tables.items()}
        if not schema.is_nsys(self.names):
            raise InputError("is no export of nsys (no CUPTI or NVTX table)", file=path)
        self.functions = 0
        self.drawn = self._drawn()
        self.payloads = self._payloads()
        # Texts that only private columns lead to: ids of StringIds with their kind; and by kind,
        # ids that other columns use too, with the new id that the private column gets instead.
        self.private: dict[int, str] = {}
        self.moved: dict[str, dict[int, int]] = {}

    def _tables(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Tables with their stored columns: names and how the copy declares them."""
        rows = self.db.execute(
            "select name, sql from src.sqlite_master where type = 'table' limit 10000"
        ).fetchall()
        for name, sql in rows:
            if not isinstance(name, str) or not isinstance(sql, str) or name.startswith("sqlite_"):
                continue
            if sql.lstrip().upper().startswith("CREATE VIRTUAL"):
                continue
            info = self.db.execute(f"pragma src.table_xinfo({quoted(name)})").fetchall()
            keys = sum(1 for c in info if c[5])
            columns = {}
            for _, column, declared, _, _, key, hidden in info:
                kind = declared if _TYPE.match(declared) else ""
                row_id = key and keys == 1 and kind.upper() == "INTEGER"
                if not hidden:
                    columns[column] = f"{quoted(column)} {kind}{' primary key' if row_id else ''}"
            yield name, columns

    def run(self, *, write: bool) -> None:
        if _STRINGS in self.tables:
            self._find_private()
        for table, columns in self.tables.items():
            if not columns:
                continue
            if write:
                declared = ", ".join(columns.values())
                self.db.execute(f"create table main.{quoted(table)} ({declared})")
            if rules.is_properties(table) and {"name", "value"} <= set(columns):
                self._copy_properties(table, write)
            else:
                self._copy(table, write)
        if write:
            self._add_strings()

    def _ids(self, table: str, column: str) -> set[int]:
        """The distinct integers in a column."""
        query = (
            f"select distinct {quoted(column)} from src.{quoted(table)} "
            f"where typeof({quoted(column)}) = 'integer'"
        )
        return {key for (key,) in self.db.execute(query)}

    def _drawn(self) -> set[int]:
        """Ids of the names that the tables of analysis show: of kernels, calls and ranges."""
        ids: set[int] = set()
        for base, columns in rules.NAMES.items():
            table = schema.pick(self.names, base)
            for column in columns:
                if table and column in self.tables[table]:
                    ids |= self._ids(table, column)
        return ids

    def _payloads(self) -> dict[int, nccl.Form]:
        """The forms of NCCL's payloads, of which the numbers that analysis reads stay."""
        if not set(nccl.ENTRY) <= set(self.tables.get(nccl.ENTRIES, ())):
            return {}
        query = f"select {', '.join(nccl.ENTRY)} from src.{nccl.ENTRIES} limit 10000"
        return nccl.forms_of(self.db.execute(query))

    # --- texts that only private columns lead to -------------------------------------------------

    def _find_private(self) -> None:
        private: dict[int, str] = {}
        shared: set[tuple[str, int]] = set()
        others = []
        for table, columns in self.tables.items():
            for column in columns if table != _STRINGS else ():
                kind = rules.kind_of_reference(table, column)
                if kind is None:
                    others.append((table, column))
                    continue
                for key in self._ids(table, column):
                    if private.setdefault(key, kind) != kind:
                        shared.add((kind, key))
        for table, column in others if private else ():
            if rules.may_refer(column):
                used = private.keys() & self._ids(table, column)
                shared |= {(private.pop(key), key) for key in used}
        (last,) = self.db.execute(f"select ifnull(max(id), 0) from src.{_STRINGS}").fetchone()
        for new, (kind, key) in enumerate(sorted(shared), int(last) + 1):
            self.moved.setdefault(kind, {})[key] = new
        self.private = private

    def _add_strings(self) -> None:
        query = f"select value from src.{_STRINGS} where id = ?"
        into = f"insert into main.{_STRINGS} (id, value) values (?, ?)"
        for kind, ids in self.moved.items():
            for old, new in ids.items():
                row = self.db.execute(query, (old,)).fetchone()
                text = row[0] if row and isinstance(row[0], str) else ""
                text = self.scrubber.cell(text, f"{_STRINGS}.value", kind)
                self.db.execute(into, (new, text))

    # --- rows ------------------------------------------------------------------------------------

    def _copy(self, table: str, write: bool) -> None:
        with_text = self._with_text(table)
        values = {c: self._expression(table, c, c in with_text) for c in self.tables[table]}
        if write:
            self.db.execute(
                f"insert into main.{quoted(table)} ({', '.join(map(quoted, values))}) "
                f"select {', '.join(values.values())} from src.{quoted(table)}"
            )
            return
        for column, value in values.items():  # only the functions' calls matter
            if value != quoted(column):
                self.db.execute(f"select count({value}) from src.{quoted(table)}").fetchall()

    def _expression(self, table: str, column: str, has_text: bool) -> str:
        name = quoted(column)
        if table.startswith("ENUM_"):
            return name
        integer = name
        ids = self.moved.get(rules.kind_of_reference(table, column) or "")
        if ids and not self.scrubber.learning:
            integer = f"{self._function(lambda key: ids.get(key, key), 1)}({name})"
        if not has_text:
            return integer
        place, kind = f"{table}.{column}", rules.kind_of_column(table, column)
        is_string = table == _STRINGS and column == "value" and "id" in self.tables[table]

        def text(data: bytes, key: int | None) -> bytes:
            value = data.decode("utf-8", errors="surrogateescape")
            if is_string and key is not None:
                at = rules.NAMED if key in self.drawn else place
                value = self.scrubber.cell(value, at, self.private.get(key))
            else:
                value = self.scrubber.cell(value, place, kind, column)
            return value.encode("utf-8", errors="surrogateescape")

        def blob(data: bytes) -> bytes | None:
            try:
                if data.decode("utf-8").isprintable():
                    return text(data, None)
            except UnicodeDecodeError:
                pass
            if column == "binaryData" and (kept := nccl.bare(data, self.payloads)) is not None:
                return kept
            self.scrubber.remove(place, "binary data")
            return None

        key = "id" if is_string else "null"
        return (
            f"case typeof({name}) when 'text' then "
            f"cast({self._function(text, 2)}(cast({name} as blob), {key}) as text) "
            f"when 'blob' then {self._function(blob, 1)}({name}) else {integer} end"
        )

    def _with_text(self, table: str) -> set[str]:
        """The columns that hold any text, found in one pass over the table."""
        columns = self.tables[table]
        tests = ", ".join(f"max(typeof({quoted(c)}) in ('text', 'blob'))" for c in columns)
        row = self.db.execute(f"select {tests} from src.{quoted(table)}").fetchone()
        return {c for c, has in zip(columns, row, strict=True) if has}

    def _function(self, function: Callable[..., bytes | int | None], arguments: int) -> str:
        self.functions += 1
        name = f"scrub_{self.functions}"
        self.db.create_function(name, arguments, function)
        return name

    def _copy_properties(self, table: str, write: bool) -> None:
        columns = self.tables[table]
        names = ", ".join(map(quoted, columns))
        marks = ", ".join("?" for _ in columns)
        into = f"insert into main.{quoted(table)} ({names}) values ({marks})"
        query = f"select {names} from src.{quoted(table)} limit 1000000"
        for values in self.db.execute(query).fetchall():
            row = dict(zip(columns, values, strict=True))
            keep, value = property_row(self.scrubber, table, row["name"], row["value"])
            if not keep or not write:
                continue
            for column, cell in row.items():
                if isinstance(cell, str):
                    row[column] = self.scrubber.cell(cell, f"{table}.{column}", None, column)
            row["value"] = value
            self.db.execute(
                into,
                [
                    v.encode("utf-8", "replace").decode() if isinstance(v, str) else v
                    for v in row.values()
                ],
            )


def property_row(
    scrubber: Scrubber, table: str, name: object, value: object
) -> tuple[bool, object]:
    """Whether a row of properties stays, and its value: learnt from, or scrubbed."""
    name = name if isinstance(name, str) else ""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if rules.keeps(table, name, text):
        if isinstance(value, str):
            value = scrubber.cell(value, f"{table}.value", None, name)
        return True, None if isinstance(value, bytes) else value
    learns, counted = rules.kind_of_property(table, name)
    if scrubber.learning:
        if learns == "dir":
            scrubber.learned.learn("dir", text)
        scrubber.cell(text, table, learns if learns != "dir" else None)
    scrubber.remove(table, counted)
    return False, None
