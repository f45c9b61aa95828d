"""Parquet and Arrow files: nsys' directories of tables, and the tables of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq

from ...core.errors import InputError
from ..readers.nsys import schema as schema_
from ..readers.nsys.parquet import reading
from . import nsys_rules as rules
from .nsys_sqlite import property_row
from .scrubber import Scrubber

_ROWS = 65_536
_FREE_ROWS = 1_000_000  # many more rows than bytes are a bomb
SUFFIXES = (".parquet", ".arrow")

Change = Callable[[str], str]


def rewrite_directory(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """nsys' parquetdir or arrowdir: learn from every table (`out` None), or write all of them."""
    files = sorted(f for f in path.iterdir() if f.suffix in SUFFIXES and f.is_file())
    private = _private_strings(files)
    if out is not None:
        out.mkdir()
    for other in sorted(path.iterdir()):
        if other not in files:
            scrubber.remove(other.suffix or "a file", "no table, left out")
    for file in files:
        rewrite(file, None if out is None else out / file.name, scrubber, private)


def rewrite(
    path: Path,
    out: Path | None,
    scrubber: Scrubber,
    private: dict[int, str] | None = None,
) -> None:
    """One file. `private`: ids of StringIds that only private columns lead to, with their kind."""
    with reading(path):
        schema = _stored_schema(_schema(path))
        with contextlib.nullcontext() if out is None else _writer(path, out, schema) as writer:
            for batch in _batches(path):
                columns = _columns(batch.cast(schema), path.stem, scrubber, private or {})
                if writer is not None:
                    writer.write_batch(columns)


def _columns(
    batch: pa.RecordBatch, table: str, scrubber: Scrubber, private: dict[int, str]
) -> pa.RecordBatch:
    names, properties = batch.schema.names, rules.is_properties(table)
    if properties and {"name", "value"} <= set(names):
        batch = _properties(batch, table, scrubber)
    arrays = []
    for name, array in zip(names, batch.columns, strict=True):
        place = f"{table}.{name}"
        if table == schema_.STRINGS and name == "value" and "id" in names:
            ids = batch.column("id").to_pylist()
            texts = [
                v if v is None else scrubber.cell(v, place, private.get(k))
                for k, v in zip(ids, array.to_pylist(), strict=True)
            ]
            arrays.append(pa.array(texts, array.type))
            continue
        kind = None if properties else rules.kind_of_column(table, name)
        # Nodes and modules of the tables of a run are texts, whatever their column is called.
        change = partial(scrubber.cell, place=place, kind=kind, field=name)
        arrays.append(_changed(array, change, scrubber, place))
    return pa.record_batch(arrays, schema=batch.schema)


def _changed(array: pa.Array, change: Change, scrubber: Scrubber, place: str) -> pa.Array:
    """The array with every text in it changed, in lists and structures too."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        encoded = array.dictionary_encode()
        texts = [None if v is None else change(v) for v in encoded.dictionary.to_pylist()]
        return pa.array(texts, kind).take(encoded.indices)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        scrubber.remove(place, "binary data", len(array) - array.null_count)
        return pa.nulls(len(array), kind)
    if pa.types.is_nested(kind):
        return pa.array([_nested(v, change) for v in array.to_pylist()], kind)
    return array


def _nested(value: Any, change: Change) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_nested(v, change) for v in value]
    if isinstance(value, dict):
        return {k: _nested(v, change) for k, v in value.items()}
    return value


def _properties(batch: pa.RecordBatch, table: str, scrubber: Scrubber) -> pa.RecordBatch:
    names, values = batch.column("name").to_pylist(), batch.column("value").to_pylist()
    rows = [property_row(scrubber, table, n, v) for n, v in zip(names, values, strict=True)]
    at = batch.schema.get_field_index("value")
    field = batch.schema.field(at)
    batch = batch.set_column(at, field, pa.array([v for _, v in rows], field.type))
    return batch.filter(pa.array([keep for keep, _ in rows], pa.bool_()))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _stored_type(f.type), f.nullable) for f in schema])


# --- texts that only private columns lead to ------------------------------------------------------


def _private_strings(files: list[Path]) -> dict[int, str]:
    private: dict[int, str] = {}
    used: set[int] = set()
    for file in files:
        if file.stem == schema_.STRINGS:
            continue
        with reading(file):
            for field in _schema(file):
                kind = rules.kind_of_reference(file.stem, field.name)
                if not pa.types.is_integer(field.type) or not (kind or rules.may_refer(field.name)):
                    continue
                for batch in _batches(file, [field.name]):
                    ids = batch.column(0).drop_null().unique().to_pylist()
                    if kind is None:
                        used.update(ids)
                    else:
                        private.update(dict.fromkeys(ids, kind))
    return {k: v for k, v in private.items() if k not in used}


# --- files ----------------------------------------------------------------------------------------


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as f:
        return f.read(4) == b"PAR1"


def _schema(file: Path) -> pa.Schema:
    return pq.read_schema(file) if _is_parquet(file) else _ipc(file).schema


def _batches(file: Path, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
    if _is_parquet(file):
        opened = pq.ParquetFile(file)
        if opened.metadata.num_rows > _FREE_ROWS + file.stat().st_size:
            raise InputError("claims many more rows than it has bytes; no export does", file=file)
        yield from opened.iter_batches(_ROWS, columns=columns)
        return
    reader = batches = _ipc(file)
    if isinstance(reader, ipc.RecordBatchFileReader):
        batches = map(reader.get_batch, range(reader.num_record_batches))
    for batch in batches:
        yield batch if columns is None else batch.select(columns)


def _ipc(file: Path) -> Any:
    source = pa.OSFile(str(file))
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return ipc.open_file(source) if is_file else ipc.open_stream(source)


def _writer(path: Path, out: Path, schema: pa.Schema) -> Any:
    if _is_parquet(path):
        # Only Layerline's own mark of the schema's version is carried over.
        mark = (pq.read_schema(path).metadata or {}).get(b"layerline.schema")
        if mark is not None and mark.isdigit():
            schema = schema.with_metadata({b"layerline.schema": mark})
        return pq.ParquetWriter(out, schema, compression="zstd")
    return ipc.new_file(str(out), schema)
