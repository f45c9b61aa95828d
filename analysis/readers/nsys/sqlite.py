"""`nsys export --type sqlite` (and the .sqlite that `nsys stats` leaves beside a report).

The file may come from anywhere, so: it is opened immutable (no ``-wal``, ``-shm`` or lock file
appears beside it), the schema is not trusted, extensions cannot be loaded, only real tables are
read (no views, virtual tables or generated columns), and names come from a fixed list. Whole
columns are read by ADBC's SQLite driver, which is faster than Python's.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from ....core.errors import InputError
from ..base import Artefact, Head
from . import ops, schema
from .source import NULL, Columns, Query, Source, gather

KIND = "nsys-sqlite"
DESCRIPTION = "Nsight Systems capture exported to SQLite"

_MAGIC = b"SQLite format 3\x00"

BATCH_ROWS = 65_536
MAX_NAME = 65_536  # characters of one name that are kept
_PRAGMAS = (
    "pragma trusted_schema=off",
    "pragma query_only=on",
    "pragma cell_size_check=on",
    "pragma cache_size=-16384",
)


def sniff(head: Head) -> bool:
    """Any SQLite file: no other kind is one, and `read` says what it is not."""
    return head.compression is None and head.data.startswith(_MAGIC)


def source(path: Path) -> SqliteSource:
    """Open an export; InputError where it is none. To be closed (a context manager)."""
    opened = SqliteSource(path)
    like = dict.fromkeys((*opened.tables, *opened.unread), ())
    if not schema.is_nsys(opened.tables) and not any(
        schema.pick(like, name) for name in schema.OPERATIONS
    ):
        opened.close()
        raise InputError(
            "is an SQLite file, but no export of nsys (no CUPTI or NVTX table)",
            file=path,
            fix="make one with: nsys export --type sqlite REPORT.nsys-rep",
        )
    return opened


def read(path: Path) -> Artefact:
    """The operations of a capture, each with its launch's ranges (table `ops`)."""
    with source(path) as opened:
        return ops.artefact(KIND, opened)


def refuse_unfinished(path: Path) -> None:
    """InputError for a file in the middle of a write: the journal beside it has the rest."""
    for suffix in ("-wal", "-journal"):
        beside = path.with_name(path.name + suffix)
        if beside.exists() and beside.stat().st_size:
            raise InputError(
                f"has an unfinished {suffix[1:]} file beside it",
                file=path,
                fix="close the program that writes it, or export the capture again",
            )


class SqliteSource(Source):
    """The tables of one SQLite file. Use as a context manager; safe to read from two threads."""

    def __init__(self, path: Path) -> None:
        """Open `path`; InputError where it is missing, not SQLite, damaged, or being written."""
        self.path = path
        refuse_unfinished(path)
        self._uri = f"file:{quote(os.fsencode(path.absolute()))}?mode=ro&immutable=1"
        self._connection = self._connect()
        try:
            with self._failing("cannot be read"):
                self.tables = self._list_tables()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _connect(self) -> sqlite3.Connection:
        try:
            connection = sqlite3.connect(self._uri, uri=True, check_same_thread=False)
        except (sqlite3.Error, UnicodeDecodeError) as e:  # sqlite3 decodes its own messages
            raise InputError(f"cannot be opened ({e})", file=self.path) from None
        # A name that is not UTF-8 is shown with replacement characters, not refused.
        connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
        try:
            for pragma in _PRAGMAS:
                connection.execute(pragma)
        except (sqlite3.Error, UnicodeDecodeError) as e:
            connection.close()
            raise InputError(f"is not a usable SQLite file ({e})", file=self.path) from None
        return connection

    @contextlib.contextmanager
    def _failing(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as e:
            raise InputError(
                f"{what} ({e})", file=self.path, fix="export the capture again"
            ) from None

    def _list_tables(self) -> dict[str, tuple[str, ...]]:
        tables: dict[str, tuple[str, ...]] = {}
        rows = self._connection.execute(
            "select name, sql, type from sqlite_master where type in ('table', 'view') limit 10000"
        ).fetchall()
        unread = set()
        for name, sql, kind in rows:
            if not isinstance(name, str) or not isinstance(sql, str):
                continue
            if kind == "view" or sql.lstrip().upper().startswith("CREATE VIRTUAL"):
                unread.add(name)
                continue
            # table_xinfo's last field: 0 for a stored column; generated and hidden ones differ.
            info = self._connection.execute(f"pragma table_xinfo({quoted(name)})").fetchall()
            tables[name] = tuple(str(c[1]) for c in info if c[6] == 0)
        self.unread = frozenset(unread)
        return tables

    def read(self, query: Query) -> Columns:
        """The columns that `query` asks for, in file order."""
        integers = len(query.numbers) + len(query.coded)
        try:
            return gather(self._batches(_sql(query, guarded=False), integers), query)
        except _OtherTypesError:
            # A column holds something else than integers somewhere: check every value.
            return gather(self._batches(_sql(query, guarded=True), None), query)

    def has_text(self, table: str, column: str) -> bool:
        """Whether any row has text in `column`."""
        condition = f"typeof({quoted(column)}) in ('text', 'blob')"
        with self._failing(f"{table} cannot be read"):
            row = self._connection.execute(
                f"select 1 from {quoted(table)} where {condition} limit 1"
            ).fetchone()
        return row is not None

    def strings(self, ids: set[int]) -> dict[int, str]:
        """Names by id, of those in `ids` that the file has."""
        if "StringIds" not in self.tables or not ids:
            return {}
        names: dict[int, str] = {}
        wanted = sorted(ids)
        query = f"select id, cast(substr(value, 1, {MAX_NAME}) as text) from StringIds where id in"
        with self._failing("StringIds cannot be read"):
            for at in range(0, len(wanted), 500):
                part = ",".join(str(int(i)) for i in wanted[at : at + 500])
                for key, value in self._connection.execute(f"{query} ({part})"):
                    if isinstance(key, int) and isinstance(value, str):
                        names.setdefault(key, value)
        return names

    def string_ids(self, patterns: Sequence[str]) -> list[int]:
        """Ids of the names that contain one of `patterns`, whatever their case."""
        if "StringIds" not in self.tables:
            return []
        condition = " or ".join("value like ?" for _ in patterns)
        with self._failing("StringIds cannot be read"):
            rows = self._connection.execute(
                f"select id from StringIds where {condition}", [f"%{p}%" for p in patterns]
            ).fetchall()
        return [int(r[0]) for r in rows if isinstance(r[0], int)]

    def pairs(self, table: str, key: str, value: str) -> list[tuple[Any, Any]]:
        """Two columns of a small table (at most 10,000 rows), as they are."""
        if not {key, value} <= set(self.tables.get(table, ())):
            return []
        with self._failing(f"{table} cannot be read"):
            query = f"select {quoted(key)}, {quoted(value)} from {quoted(table)} limit 10000"
            return [(k, v) for k, v in self._connection.execute(query)]

    def rows(self, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """Columns of a small table (at most 10,000 rows), as they are; none where it lacks one."""
        if not set(columns) <= set(self.tables.get(table, ())):
            return []
        named = ", ".join(map(quoted, columns))
        with self._failing(f"{table} cannot be read"):
            query = f"select {named} from {quoted(table)} limit 10000"
            return list(self._connection.execute(query))

    def blobs(
        self, name: str, most: int
    ) -> Iterator[tuple[int | None, int | None, int | None, bytes]]:
        """Start, end, thread and binary data of the rows of a table that have such data."""
        table = self.find(name, ("start", "end", "globalTid", "binaryData"))
        if table is None:
            return
        query = (
            f"select start, end, globalTid, binaryData from {quoted(table)} where "
            f"typeof(binaryData) = 'blob' and length(binaryData) <= {MAX_NAME} limit {most}"
        )
        with self._failing(f"{table} cannot be read"):
            for *numbers, data in self._connection.execute(query):
                start, end, thread = (n if isinstance(n, int) else None for n in numbers)
                yield start, end, thread, data

    def _batches(self, query: str, integers: int | None) -> Iterator[pa.RecordBatch]:
        """The rows of `query`; _OtherTypesError where one of the first columns is no integer."""
        import adbc_driver_manager
        import adbc_driver_sqlite.dbapi

        try:
            with (
                adbc_driver_sqlite.dbapi.connect(self._uri) as connection,
                connection.cursor() as cursor,
            ):
                for pragma in _PRAGMAS:
                    cursor.execute(pragma)
                    cursor.fetchall()
                cursor.adbc_statement.set_options(
                    **{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)}
                )
                cursor.execute(query)
                for batch in cursor.fetch_record_batch():
                    if integers is not None and any(
                        not pa.types.is_int64(batch.schema.field(i).type) for i in range(integers)
                    ):
                        raise _OtherTypesError
                    yield batch
        except (adbc_driver_manager.Error, pa.ArrowException, OSError) as e:
            if integers is not None:
                raise _OtherTypesError from None
            what = " ".join(str(e).split())
            raise InputError(f"cannot be read ({what[:200]})", file=self.path) from None


class _OtherTypesError(Exception):
    """A column that should hold integers holds something else too."""


def quoted(name: str) -> str:
    """The name of a table or column in a statement."""
    return '"' + name.replace('"', '""') + '"'


def _sql(query: Query, *, guarded: bool) -> str:
    columns = [_guarded(c) if guarded else quoted(c) for c in (*query.numbers, *query.coded)]
    if query.text is not None:
        # Never null, or the driver would take a first batch of nulls for integers.
        columns.append(f"cast(ifnull(substr({quoted(query.text)}, 1, {MAX_NAME}), '') as text)")
    sql = f"select {', '.join(columns)} from {quoted(query.table)}"
    if query.where is None:
        return sql
    column = quoted(query.where.column)
    values = ",".join(str(int(v)) for v in query.where.values)
    if query.where.exclude:
        return f"{sql} where ({column} not in ({values}) or {column} is null)"
    return f"{sql} where {column} in ({values})"


def _guarded(column: str) -> str:
    name = quoted(column)
    return (
        f"case typeof({name}) when 'integer' then {name} when 'real' then "
        f"case when abs({name}) < 9e15 then cast({name} as integer) else {NULL} end "
        f"else {NULL} end"
    )
