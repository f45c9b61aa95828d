"""Columns of integers out of an nsys export, whichever format it was exported to.

nsys stores times, ids and enumerations as 64-bit integers and names as ids into `StringIds`.
A source gives columns as NumPy arrays in file order; what is null or no integer is `NULL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

NULL = int(np.iinfo(np.int64).min)


@dataclass(frozen=True)
class Filter:
    """Rows whose `column` is one of `values`; with `exclude`, all others, nulls too."""

    column: str
    values: tuple[int, ...]
    exclude: bool = False


@dataclass
class Columns:
    """Columns of equal length.

    `data`: per column int64, or int32 codes where `values` has the column: the distinct values
    (integers, or text) by code; -1 is a null text. A name may be text where others have an id.
    """

    rows: int
    data: dict[str, npt.NDArray[Any]]
    values: dict[str, list[Any]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self.data[name]


class Source(Protocol):
    """The tables of one export."""

    path: Path
    tables: dict[str, tuple[str, ...]]

    def read(
        self,
        table: str,
        plain: Sequence[str],
        coded: Sequence[str] = (),
        text: str | None = None,
        where: Filter | None = None,
    ) -> Columns:
        """Columns of `table`: `plain` as integers, `coded` and the `text` column as codes."""

    def has_text(self, table: str, column: str) -> bool:
        """Whether any row has text in `column`."""

    def strings(self, ids: set[int]) -> dict[int, str]:
        """Names by id, of those in `ids` that the file has."""

    def string_ids(self, patterns: Sequence[str]) -> list[int]:
        """Ids of the names that contain one of `patterns`, whatever their case."""

    def pairs(self, table: str, key: str, value: str) -> list[tuple[Any, Any]]:
        """Two columns of a small table, as they are; none where it is not there."""


class Gatherer:
    """Collects record batches into `Columns`, narrowing each batch as it comes.

    The batches hold the plain columns, then the coded ones, then the text, in that order.
    """

    def __init__(self, plain: Sequence[str], coded: Sequence[str], text: str | None) -> None:
        self._plain, self._coded, self._text = list(plain), list(coded), text
        self._parts: dict[str, list[npt.NDArray[Any]]] = {
            name: [] for name in [*plain, *coded, *([text] if text else [])]
        }
        self._codes: dict[str, dict[Any, int]] = {
            name: {} for name in [*coded, *([text] if text else [])]
        }
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take one batch."""
        self._rows += batch.num_rows
        at = 0
        for name in self._plain:
            self._parts[name].append(as_integers(batch.column(at)))
            at += 1
        for name in self._coded:
            column = batch.column(at)
            codes = (
                self._encode_text(name, column)
                if is_text(column.type)
                else self._encode(name, as_integers(column))
            )
            self._parts[name].append(codes)
            at += 1
        if self._text:
            self._parts[self._text].append(self._encode_text(self._text, batch.column(at)))

    def _encode(self, name: str, values: Integers) -> Codes:
        codes = self._codes[name]
        if not len(values):
            return np.empty(0, np.int32)
        if (values == values[0]).all():
            code = codes.setdefault(int(values[0]), len(codes))
            return np.full(len(values), code, np.int32)
        encoded = pc.dictionary_encode(pa.array(values))
        here = [codes.setdefault(int(v), len(codes)) for v in encoded.dictionary.to_numpy()]
        found: Codes = np.asarray(here, np.int32)[encoded.indices.to_numpy()]
        return found

    def _encode_text(self, name: str, values: pa.Array) -> Codes:
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
        found: Codes = np.asarray(here, np.int32)[indices.to_numpy(zero_copy_only=False)]
        return found

    def columns(self) -> Columns:
        """What was collected; to be called once."""
        data: dict[str, npt.NDArray[Any]] = {}
        for name, parts in self._parts.items():
            kind: Any = np.int32 if name in self._codes else np.int64
            data[name] = np.concatenate(parts) if parts else np.empty(0, kind)
            parts.clear()  # one column at a time, so that the peak is one column more
        values = {name: list(codes) for name, codes in self._codes.items()}
        return Columns(self._rows, data, values)


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text, plain or by dictionary."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def gather(
    batches: Iterable[pa.RecordBatch],
    plain: Sequence[str],
    coded: Sequence[str],
    text: str | None,
) -> Columns:
    """All batches as `Columns`."""
    gatherer = Gatherer(plain, coded, text)
    for batch in batches:
        gatherer.add(batch)
    return gatherer.columns()


def as_integers(values: pa.Array | pa.ChunkedArray) -> Integers:
    """An Arrow column as int64; null, NaN, fractions of other types and text become `NULL`."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
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
    elif pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        values = values.cast(pa.int64())
    else:
        return np.full(len(values), NULL, np.int64)
    if values.null_count:
        values = pc.fill_null(values, NULL)
    integers: Integers = values.to_numpy(zero_copy_only=False)
    return integers
