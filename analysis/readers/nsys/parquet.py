"""`nsys export --type parquetdir` and `--type arrowdir`: a directory, one file per table.

The files are named after the tables of the SQLite export and have the same columns (nsys 2024.6
and later). Tables with nothing in them have no file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from ....core.errors import InputError
from ....core.files import NO_ROOM
from ..base import Artefact, Head
from . import ops, schema
from .source import Columns, Query, Source, as_integers, gather, is_text

KIND = "nsys-parquet"
DESCRIPTION = "Nsight Systems capture exported to a directory of Parquet or Arrow files"

BATCH_ROWS = 65_536
# A row of a real table takes some bytes even compressed; many more rows than bytes are a bomb.
FREE_ROWS = 1_000_000
_SUFFIXES = (".parquet", ".arrow")


def sniff(head: Head) -> bool:
    """A directory with a file that is named after one of nsys' tables."""
    if not head.is_dir:
        return False
    stems = {n.rsplit(".", 1)[0]: () for n in head.entries if n.endswith(_SUFFIXES)}
    return any(schema.pick(stems, name) for name in schema.SIGNATURES)


def source(path: Path) -> ParquetSource:
    """Open an export; InputError where it is none. To be closed (a context manager)."""
    opened = ParquetSource(path)
    if not schema.is_nsys(opened.tables):
        raise InputError("is no export of nsys (no CUPTI or NVTX table)", file=path)
    return opened


def read(path: Path) -> Artefact:
    """The operations of a capture, each with its launch's ranges (table `ops`)."""
    with source(path) as opened:
        return ops.artefact(KIND, opened)


@contextlib.contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turns what pyarrow raises for a damaged file into InputError. That there is no room for what
    is written meanwhile is no fault of the file, and passes."""
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as e:
        if isinstance(e, OSError) and e.errno in NO_ROOM:
            raise
        what = " ".join(str(e).split())[:200]
        raise InputError(
            f"cannot be read ({what})", file=file, fix="export the capture again"
        ) from None


class ParquetSource(Source):
    """The tables of one directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files: dict[str, Path] = {}
        self.tables: dict[str, tuple[str, ...]] = {}
        try:
            files = sorted(f for f in path.iterdir() if f.suffix in _SUFFIXES)
        except OSError as e:
            raise InputError(f"cannot be listed ({e.strerror})", file=path) from None
        for file in files[:10_000]:
            name = file.stem
            if not file.is_file() or not _is_read(name):
                continue
            with reading(file):
                self.tables[name] = tuple(_schema(file).names)
            self._files[name] = file

    def read(self, query: Query) -> Columns:
        """The columns that `query` asks for, in file order."""
        with reading(self._files[query.table]):
            return gather(self._batches(query), query)

    def _batches(self, query: Query) -> Iterator[pa.RecordBatch]:
        names, where = query.columns, query.where
        wanted = list(dict.fromkeys([*names, *([where.column] if where else [])]))
        for batch in _file_batches(self._files[query.table], wanted):
            kept = batch
            if where is not None:
                keep = np.isin(as_integers(batch.column(where.column)), where.values)
                if where.exclude:
                    keep = ~keep
                if not keep.all():
                    kept = batch.filter(pa.array(keep))
            yield kept.select(names)

    def has_text(self, table: str, column: str) -> bool:
        """Whether any row has text in `column`."""
        with reading(self._files[table]):
            for batch in _file_batches(self._files[table], [column]):
                values = batch.column(0)
                if is_text(values.type) and values.null_count < len(values):
                    return True
        return False

    def strings(self, ids: set[int]) -> dict[int, str]:
        """Names by id, of those in `ids` that the export has."""
        return {k: v for k, v in self._strings() if k in ids}

    def string_ids(self, patterns: Sequence[str]) -> list[int]:
        """Ids of the names that contain one of `patterns`, whatever their case."""
        return [k for k, v in self._strings() if any(p in v.lower() for p in patterns)]

    def _strings(self) -> Iterator[tuple[int, str]]:
        for key, value in self.pairs(schema.STRINGS, "id", "value", limit=None):
            if isinstance(key, int) and isinstance(value, str):
                yield key, value

    def pairs(
        self, table: str, key: str, value: str, limit: int | None = 10_000
    ) -> list[tuple[Any, Any]]:
        """Two columns of a small table, as they are; none where it is not there."""
        if not {key, value} <= set(self.tables.get(table, ())):
            return []
        rows: list[tuple[Any, Any]] = []
        with reading(self._files[table]):
            for batch in _file_batches(self._files[table], [key, value]):
                rows += zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
                if limit is not None and len(rows) >= limit:
                    return rows[:limit]
        return rows


def _is_read(name: str) -> bool:
    """Whether a file's stem is a table that is read (names come from a fixed list)."""
    others = (*schema.META, schema.GRAPH_NODES, schema.STRINGS, schema.DIAGNOSTICS)
    return any(schema.pick({name: ()}, known) for known in (*schema.SIGNATURES, *others))


def _schema(file: Path) -> pa.Schema:
    if file.suffix == ".parquet":
        return pq.read_schema(file)
    with _arrow(file) as reader:
        return reader.schema


@contextlib.contextmanager
def _arrow(file: Path) -> Iterator[Any]:
    """An Arrow file or stream, whichever it is."""
    with pa.OSFile(str(file)) as opened:
        is_file = opened.read(6) == b"ARROW1"
        opened.seek(0)
        yield ipc.open_file(opened) if is_file else ipc.open_stream(opened)


def _file_batches(file: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    if file.suffix == ".parquet":
        with pq.ParquetFile(file) as opened:
            rows = opened.metadata.num_rows
            if rows > FREE_ROWS + file.stat().st_size:
                raise InputError(f"claims {rows} rows in few bytes; no export does", file=file)
            yield from opened.iter_batches(BATCH_ROWS, columns=columns)
        return
    with _arrow(file) as reader:
        if isinstance(reader, ipc.RecordBatchFileReader):
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            batches = iter(reader)
        for batch in batches:
            for at in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(at, BATCH_ROWS).select(columns)
