"""Columns of integers out of an nsys export, whichever format it was exported to.

nsys stores times, ids and enumerations as 64-bit integers and names as ids into `StringIds`.
A source gives columns as NumPy arrays in file order; what is null or no integer is `NULL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.errors import InputError
from . import schema

Integers = npt.NDArray[np.int64]
# int8, int16 or int32, whichever is wide enough.
Codes = npt.NDArray[np.signedinteger[Any]]

NULL = int(np.iinfo(np.int64).min)
_FACTOR = 6364136223846793005  # Knuth's MMIX generator


@dataclass(frozen=True)
class Filter:
    """Rows whose `column` is one of `values`; with `exclude`, all others, nulls too."""

    column: str
    values: tuple[int, ...]
    exclude: bool = False


@dataclass(frozen=True)
class Query:
    """Columns of `table`: `numbers` as integers, `coded` and the `text` column as codes."""

    table: str
    numbers: Sequence[str]
    coded: Sequence[str] = ()
    text: str | None = None
    where: Filter | None = None

    @property
    def columns(self) -> list[str]:
        """All columns: the numbers, then the coded ones, then the text."""
        return [*self.numbers, *self.coded, *([self.text] if self.text else [])]


@dataclass
class Columns:
    """Columns of equal length.

    `data`: per column int64, or narrow codes where `values` has the column: the distinct values
    (integers, or text) by code; -1 is a null text. A name may be text where others have an id.
    """

    rows: int
    data: dict[str, npt.NDArray[Any]]
    values: dict[str, list[Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.data[name]


class Source(Protocol):
    """The tables of one export. To be closed: a context manager."""

    path: Path
    tables: dict[str, tuple[str, ...]]
    unread: frozenset[str] = frozenset()  # names of what is there, but no table (views)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close what is open; a source that holds nothing open has nothing to do."""
        return

    def find(self, name: str, needed: Sequence[str]) -> str | None:
        """The newest form of a table; None where it is absent or lacks a needed column."""
        table = schema.pick(self.tables, name)
        return table if table is not None and set(needed) <= set(self.tables[table]) else None

    def recorded(self, name: str, needed: Sequence[str]) -> str | None:
        """As `find`, for what must not be taken for nothing: InputError where there is a table, or
        a view, of this name that does not have the needed columns."""
        table = self.find(name, needed)
        if table is not None:
            return table
        fix = "export the report again with `nsys export --type sqlite`"
        there = schema.pick(self.tables, name)
        if there is not None:
            lacks = " and ".join(c for c in needed if c not in self.tables[there])
            raise InputError(f"has a {there} without {lacks}", file=self.path, fix=fix)
        view = schema.pick(dict.fromkeys(self.unread, ()), name)
        if view is not None:
            raise InputError(f"has {view} as a view, which is not read", file=self.path, fix=fix)
        return None

    def present(self, table: str, wanted: Sequence[str]) -> list[str]:
        """Those of the wanted columns that the table has."""
        return [c for c in wanted if c in self.tables[table]]

    def read(self, query: Query) -> Columns:
        """The columns that `query` asks for, in file order."""

    def has_text(self, table: str, column: str) -> bool:
        """Whether any row has text in `column`."""

    def names(self, values: Sequence[Any]) -> list[str | None]:
        """The texts of a coded column of names: ids into StringIds, or the text itself."""
        known = self.strings({v for v in values if isinstance(v, int) and v != NULL})
        return [v if isinstance(v, str) else known.get(v) for v in values]

    def strings(self, ids: set[int]) -> dict[int, str]:
        """Names by id, of those in `ids` that the file has."""

    def string_ids(self, patterns: Sequence[str]) -> list[int]:
        """Ids of the names that contain one of `patterns`, whatever their case."""

    def pairs(self, table: str, key: str, value: str) -> list[tuple[Any, Any]]:
        """Two columns of a small table, as they are; none where it is not there."""


class _Growing:
    """A column that grows in place, in the narrowest integers that hold it.

    Batches are copied out rather than kept: many small blocks that live long would leave the heap
    in pieces, several times as large as the columns.
    """

    def __init__(self, *, narrow: bool) -> None:
        self._data: npt.NDArray[Any] = np.empty(0, np.int8 if narrow else np.int64)
        self._rows = 0

    def add(self, values: npt.NDArray[Any], highest: int | None = None) -> None:
        """Append; `highest` is the largest code so far of a narrow column."""
        if highest is not None and highest > np.iinfo(self._data.dtype).max:
            self._data = self._data.astype(np.min_scalar_type(-highest - 1))
        rows = self._rows + len(values)
        if rows > len(self._data):
            # In place where the system can (mremap).
            self._data.resize(max(rows, len(self._data) * 3 // 2), refcheck=False)
        self._data[self._rows : rows] = values
        self._rows = rows

    def column(self) -> npt.NDArray[Any]:
        """What was added; nothing more can be."""
        self._data.resize(self._rows, refcheck=False)
        return self._data


class _Gatherer:
    """Collects record batches into `Columns`, narrowing each batch as it comes.

    The batches hold the columns of the query in its order.
    """

    def __init__(self, query: Query) -> None:
        self._query = query
        self._codes: dict[str, dict[Any, int]] = {
            name: {} for name in query.columns[len(query.numbers) :]
        }
        self._columns = {name: _Growing(narrow=name in self._codes) for name in query.columns}
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""
        self._rows += batch.num_rows
        for at, name in enumerate(self._columns):
            column = batch.column(at)
            if name not in self._codes:
                self._columns[name].add(as_integers(column))
                continue
            codes = (
                self._encode_text(name, column)
                if name == self._query.text or is_text(column.type)
                else self._encode(name, as_integers(column))
            )
            self._columns[name].add(codes, len(self._codes[name]))

    def _encode(self, name: str, values: Integers) -> npt.NDArray[Any]:
        codes = self._codes[name]
        if not len(values):
            return np.empty(0, np.int32)
        if (values == values[0]).all():
            return np.full(len(values), codes.setdefault(int(values[0]), len(codes)), np.int32)
        encoded = pc.dictionary_encode(pa.array(values))
        here = [codes.setdefault(int(v), len(codes)) for v in encoded.dictionary.to_numpy()]
        coded: Codes = np.asarray(here, np.int32)[encoded.indices.to_numpy()]
        return coded

    def _encode_text(self, name: str, values: pa.Array) -> npt.NDArray[Any]:
        codes = self._codes[name]
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        encoded = pc.dictionary_encode(values.cast(pa.binary()), null_encoding="mask")
        here = [
            codes.setdefault(v.decode("utf-8", errors="replace"), len(codes)) if v else -1
            for v in encoded.dictionary.to_pylist()
        ]
        here.append(-1)  # a null's index
        indices = pc.fill_null(encoded.indices, len(here) - 1)
        coded: Codes = np.asarray(here, np.int32)[indices.to_numpy(zero_copy_only=False)]
        return coded

    def columns(self) -> Columns:
        """What was collected."""
        data = {name: column.column() for name, column in self._columns.items()}
        return Columns(self._rows, data, {name: list(codes) for name, codes in self._codes.items()})


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, as it is or by dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def gather(batches: Iterable[pa.RecordBatch], query: Query) -> Columns:
    """All batches, which hold the columns of `query`, as `Columns`."""
    gatherer = _Gatherer(query)
    for batch in batches:
        gatherer.add(batch)
    return gatherer.columns()


def as_integers(values: pa.Array) -> Integers:
    """An Arrow column as int64; null, NaN and what is no number become `NULL`."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if pa.types.is_integer(kind) and not pa.types.is_uint64(kind):
        values = values.cast(pa.int64())
    elif pa.types.is_uint64(kind):
        values = pc.if_else(pc.less(values, pa.scalar(1 << 63, pa.uint64())), values, None)
        values = values.cast(pa.int64())
    elif pa.types.is_floating(kind):
        usable = pc.less(pc.abs(values), 9e15)  # null for NaN is false
        values = pc.trunc(pc.if_else(usable, values, None)).cast(pa.int64())
    else:
        return np.full(len(values), NULL, np.int64)
    if values.null_count:
        values = pc.fill_null(values, NULL)
    integers: Integers = values.to_numpy(zero_copy_only=False)
    return integers


# --- rows, each once --------------------------------------------------------------------------


def read_distinct(source: Source, query: Query) -> tuple[Columns, int]:
    """As `Source.read`, without the rows that repeat another in every column of the table (the
    first one stays), and how many these were.

    nsys writes an event once. A file that was put together or imported twice holds rows that are
    equal in every column, and sums over them would be too high. The other columns are read only
    where rows are alike in those that are asked for.
    """
    asked = source.read(query)
    hashes = _hashes(asked)
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return asked, 0
    del hashes
    others = [c for c in source.tables[query.table] if c not in query.columns]
    whole = source.read(replace(query, numbers=[*query.numbers, *others]))
    again = _repeats(whole)
    kept = np.ones(whole.rows, np.bool_)
    kept[again] = False
    data = {name: whole.data[name][kept] for name in asked.data}
    return Columns(whole.rows - len(again), data, whole.values), len(again)


def repeats_note(repeats: int, what: str) -> str:
    """What to say of rows that were left out as repeats."""
    if repeats == 1:
        return f"1 {what} row repeats another in every column and is not counted again"
    return f"{repeats:,} {what} rows repeat others in every column and are not counted again"


def _hashes(columns: Columns) -> Integers:
    """A number per row, equal for equal rows; of unequal ones hardly ever."""
    hashes = np.zeros(columns.rows, np.int64)
    for values in columns.data.values():
        hashes *= _FACTOR  # wraps around
        hashes ^= hashes >> 29
        hashes += values
    return hashes


def _repeats(columns: Columns) -> Integers:
    """Indices of the rows that are equal to an earlier one."""
    _, inverse, counts = np.unique(_hashes(columns), return_inverse=True, return_counts=True)
    alike = np.flatnonzero(counts[inverse] > 1)
    if not len(alike):
        return alike
    values = [column[alike] for column in columns.data.values()]
    order = np.lexsort(values)  # stable: of equal rows the first one stays first
    same = np.ones(len(alike) - 1, np.bool_)
    for column in values:
        same &= column[order[1:]] == column[order[:-1]]
    return alike[order[1:][same]]
