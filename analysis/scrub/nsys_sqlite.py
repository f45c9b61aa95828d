"""nsys' SQLite export, copied row by row into a new file.

Nothing is removed from a file that held it: the new database has only ever seen the scrubbed
texts, so no free page, journal or index keeps a word. Triggers, views, indexes and virtual
tables, which analysis does not read, are not copied.
"""

from __future__ import annotations

import contextlib
import errno
import re
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote

from ...core.errors import InputError
from ..readers.nsys import schema
from ..readers.nsys.sqlite import refuse_unfinished
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
            _Copy(db, path, scrubber).run(write=out is not None)
            db.commit()
    except sqlite3.Error as e:
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
    uri = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as source:
        source.text_factory = bytes
        encoding = source.execute("pragma encoding").fetchone()[0].decode()
    if encoding != "UTF-8":
        raise InputError(f"is SQLite in {encoding}, which nsys never writes", file=path)
    db = sqlite3.connect(
        "file::memory:" if out is None else f"file:{quote(str(out.absolute()))}", uri=True
    )
    db.text_factory = lambda data: data.decode("utf-8", errors="surrogateescape")
    db.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_TEXT)
    for pragma in ("trusted_schema = off", "journal_mode = off", "synchronous = off"):
        db.execute(f"pragma {pragma}").fetchall()
    db.execute("attach ? as src", (uri,))
    return db


def quoted(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


class _Copy:
    def __init__(self, db: sqlite3.Connection, path: Path, scrubber: Scrubber) -> None:
        self.db, self.path, self.scrubber = db, path, scrubber
        self.columns = dict(self._tables())
        names = {t: tuple(c[0] for c in columns) for t, columns in self.columns.items()}
        if not schema.is_nsys(names):
            raise InputError("is no export of nsys (no CUPTI or NVTX table)", file=path)
        self.functions = 0
        self.texts: dict[str, set[str]] = {}
        self.names = self._names()

    def _tables(self) -> Iterator[tuple[str, list[tuple[str, str, bool]]]]:
        """Tables with their stored columns: name, declared type, whether it is the row id."""
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
            yield (
                name,
                [
                    (
                        str(c[1]),
                        str(c[2]) if _TYPE.match(str(c[2])) else "",
                        bool(c[5]) and keys == 1 and str(c[2]).upper() == "INTEGER",
                    )
                    for c in info
                    if c[6] == 0
                ],
            )

    def run(self, *, write: bool) -> None:
        private, moved = self._private_strings()
        for table, columns in self.columns.items():
            if not columns:
                continue
            if write:
                self.db.execute(f"create table main.{quoted(table)} ({_declared(columns)})")
            self._copy(table, columns, private, moved, write)
        if write and moved:
            self._add_strings(moved)

    def _names(self) -> set[int]:
        """Ids of the names that the tables of analysis show: of kernels, calls and ranges."""
        ids: set[int] = set()
        for base, columns in rules.NAMES.items():
            table = schema.pick(dict.fromkeys(self.columns, ()), base)
            for column in columns:
                if table and column in (c[0] for c in self.columns[table]):
                    query = f"select distinct {column} from src.{quoted(table)}"
                    ids.update(k for (k,) in self.db.execute(query) if isinstance(k, int))
        return ids

    # --- texts that only private columns lead to -------------------------------------------------

    def _private_strings(self) -> tuple[dict[int, str], dict[str, dict[int, int]]]:
        """Ids of StringIds that are private, with their kind; and by kind, ids that other columns
        use too, with the new id that the private column gets instead."""
        if _STRINGS not in self.columns:
            return {}, {}
        private: dict[int, str] = {}
        shared: set[tuple[str, int]] = set()
        self.db.execute("create temp table private (id integer primary key)")
        for table, column, kind in self._references():
            for (key,) in self.db.execute(
                f"select distinct {quoted(column)} from src.{quoted(table)} "
                f"where typeof({quoted(column)}) = 'integer'"
            ):
                if private.setdefault(key, kind) != kind:
                    shared.add((kind, key))
        self.db.executemany("insert into temp.private values (?)", [(k,) for k in private])
        used: set[int] = set()
        for table, columns in self.columns.items():
            for column, _, _ in columns:
                if table == _STRINGS or not rules.may_refer(column):
                    continue
                if rules.kind_of_reference(table, column) is None:
                    query = (
                        f"select distinct {quoted(column)} from src.{quoted(table)} "
                        f"where {quoted(column)} in (select id from temp.private)"
                    )
                    used.update(key for (key,) in self.db.execute(query))
        self.db.execute("drop table temp.private")
        shared |= {(private.pop(key), key) for key in used if key in private}
        (last,) = self.db.execute(f"select ifnull(max(id), 0) from src.{_STRINGS}").fetchone()
        moved: dict[str, dict[int, int]] = {}
        for at, (kind, key) in enumerate(sorted(shared), 1):
            moved.setdefault(kind, {})[key] = int(last) + at
        return private, moved

    def _references(self) -> Iterator[tuple[str, str, str]]:
        for table, columns in self.columns.items():
            for column, _, _ in columns:
                kind = rules.kind_of_reference(table, column)
                if kind is not None and table != _STRINGS:
                    yield table, column, kind

    def _add_strings(self, moved: dict[str, dict[int, int]]) -> None:
        for kind, ids in moved.items():
            for old, new in ids.items():
                row = self.db.execute(
                    f"select value from src.{_STRINGS} where id = ?", (old,)
                ).fetchone()
                text = row[0] if row and isinstance(row[0], str) else ""
                text = self.scrubber.cell(text, f"{_STRINGS}.value", kind)
                self.db.execute(
                    f"insert into main.{_STRINGS} (id, value) values (?, ?)", (new, text)
                )

    # --- rows ------------------------------------------------------------------------------------

    def _copy(
        self,
        table: str,
        columns: list[tuple[str, str, bool]],
        private: dict[int, str],
        moved: dict[str, dict[int, int]],
        write: bool,
    ) -> None:
        names = [c[0] for c in columns]
        if rules.is_properties(table) and {"name", "value"} <= set(names):
            self._copy_properties(table, names, write)
            return
        shown = []
        for name in names:
            if table == _STRINGS and name == "value" and "id" in names:
                call = self._function(self._string(private), 2)
                shown.append(
                    f"case typeof(value) when 'text' then cast({call}(cast(value as blob), id) "
                    "as text) when 'blob' then null else value end"
                )
            else:
                shown.append(self._expression(table, name, moved))
        select = f"select {', '.join(shown)} from src.{quoted(table)}"
        if write:
            into = ", ".join(map(quoted, names))
            self.db.execute(f"insert into main.{quoted(table)} ({into}) {select}")
            return
        texts = [s for s, n in zip(shown, names, strict=True) if s != quoted(n)]
        for text in texts:  # only the functions' calls matter
            self.db.execute(f"select count({text}) from src.{quoted(table)}").fetchall()

    def _expression(self, table: str, column: str, moved: dict[str, dict[int, int]]) -> str:
        name = quoted(column)
        if table.startswith("ENUM_"):
            return name
        reference = rules.kind_of_reference(table, column)
        integer = name
        if reference in moved and not self.scrubber.learning:
            ids = moved[reference]
            integer = f"{self._function(lambda key: ids.get(key, key), 1)}({name})"
        if not self._has_text(table, column):
            return integer
        place, kind = f"{table}.{column}", rules.kind_of_column(table, column)

        def text(data: bytes) -> bytes:
            value = data.decode("utf-8", errors="surrogateescape")
            return _encoded(self.scrubber.cell(value, place, kind, column))

        def blob(data: bytes) -> bytes | None:
            try:
                return text(data) if data.decode("utf-8").isprintable() else self._binary(place)
            except UnicodeDecodeError:
                return self._binary(place)

        return (
            f"case typeof({name}) when 'text' then "
            f"cast({self._function(text, 1)}(cast({name} as blob)) as text) "
            f"when 'blob' then {self._function(blob, 1)}({name}) else {integer} end"
        )

    def _binary(self, place: str) -> bytes | None:
        self.scrubber.remove(place, "binary data")
        return None

    def _has_text(self, table: str, column: str) -> bool:
        """Whether a column holds any text; one pass over the table answers for all of them."""
        if table not in self.texts:
            names = [c[0] for c in self.columns[table]]
            self.texts[table] = set()
            for at in range(0, len(names), 500):
                part = names[at : at + 500]
                tests = ", ".join(f"max(typeof({quoted(c)}) in ('text', 'blob'))" for c in part)
                row = self.db.execute(f"select {tests} from src.{quoted(table)}").fetchone()
                self.texts[table] |= {c for c, has in zip(part, row, strict=True) if has}
        return column in self.texts[table]

    def _string(self, private: dict[int, str]) -> Callable[[bytes, int], bytes]:
        def text(data: bytes, key: int) -> bytes:
            value = data.decode("utf-8", errors="surrogateescape")
            place = rules.NAMED if key in self.names else f"{_STRINGS}.value"
            return _encoded(self.scrubber.cell(value, place, private.get(key)))

        return text

    def _function(self, function: Callable[..., bytes | int | None], arguments: int) -> str:
        self.functions += 1
        name = f"scrub_{self.functions}"
        self.db.create_function(name, arguments, function)
        return name

    def _copy_properties(self, table: str, names: list[str], write: bool) -> None:
        cursor = self.db.execute(
            f"select * from (select {', '.join(map(quoted, names))} "
            f"from src.{quoted(table)}) limit 1000000"
        )
        marks = ", ".join("?" for _ in names)
        into = ", ".join(map(quoted, names))
        at_name, at_value = names.index("name"), names.index("value")
        for row in cursor.fetchall():
            keep, value = property_row(self.scrubber, table, row[at_name], row[at_value])
            if not keep or not write:
                continue
            values = [
                self.scrubber.cell(v, f"{table}.{c}", None, c) if isinstance(v, str) else v
                for v, c in zip(row, names, strict=True)
            ]
            values[at_value] = value
            self.db.execute(
                f"insert into main.{quoted(table)} ({into}) values ({marks})",
                [
                    v.encode("utf-8", "replace").decode() if isinstance(v, str) else v
                    for v in values
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


def _declared(columns: list[tuple[str, str, bool]]) -> str:
    return ", ".join(
        f"{quoted(name)} {kind}{' primary key' if key else ''}" for name, kind, key in columns
    )


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogateescape")
