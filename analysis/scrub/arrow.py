"""Parquet and Arrow files: nsys' directories of tables, and the tables of a run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
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
    table = path.stem
    with reading(path):
        schema, batches = _open(path)
        schema = schema.remove_metadata()
        with contextlib.ExitStack() as stack:
            writer: Any = None
            if out is not None:
                writer = stack.enter_context(_writer(path, out, _stored_schema(schema)))
            for batch in batches:
                columns = _columns(batch, table, scrubber, private or {})
                if writer is not None:
                    writer.write_batch(columns)


def _columns(
    batch: pa.RecordBatch, table: str, scrubber: Scrubber, private: dict[int, str]
) -> pa.RecordBatch:
    names = batch.schema.names
    schema = _stored_schema(batch.schema.remove_metadata())
    if table == schema_.STRINGS and {"id", "value"} <= set(names):
        arrays = [_stored(c) for c in batch.columns]
        ids, values = (batch.column(c).to_pylist() for c in ("id", "value"))
        texts = [
            v if v is None else scrubber.cell(v, f"{table}.value", private.get(k))
            for k, v in zip(ids, values, strict=True)
        ]
        at = names.index("value")
        arrays[at] = pa.array(texts, schema.field(at).type)
        return pa.record_batch(arrays, schema=schema)
    if rules.is_properties(table) and {"name", "value"} <= set(names):
        batch = _properties(batch, table, scrubber)
    arrays = []
    for name, array in zip(names, batch.columns, strict=True):
        kind = None if rules.is_properties(table) else rules.kind_of_column(table, name)
        # Nodes and modules of the tables of a run are texts, whatever their column is called.
        change = _change(scrubber, f"{table}.{name}", kind, name)
        arrays.append(_changed(_stored(array), change, scrubber, f"{table}.{name}"))
    return pa.record_batch(arrays, schema=schema)


def _change(scrubber: Scrubber, place: str, kind: str | None, field: str) -> Change:
    return lambda value: scrubber.cell(value, place, kind, field)


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
    batch = pa.record_batch([_stored(c) for c in batch.columns], names=batch.schema.names)
    at = batch.schema.names.index("value")
    arrays = list(batch.columns)
    arrays[at] = pa.array([v for _, v in rows], arrays[at].type)
    return pa.record_batch(arrays, names=batch.schema.names).filter(pa.array([k for k, _ in rows]))


def _stored_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _stored(array: pa.Array) -> pa.Array:
    kind = _stored_type(array.type)
    return array if kind == array.type else array.cast(kind)


def _stored_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(f.name, _stored_type(f.type), f.nullable) for f in schema])


# --- texts that only private columns lead to ------------------------------------------------------


def _private_strings(files: list[Path]) -> dict[int, str]:
    private: dict[int, str] = {}
    used: set[int] = set()
    for file in files:
        with reading(file):
            schema = _schema(file)
            for field in schema:
                if not pa.types.is_integer(field.type) or file.stem == schema_.STRINGS:
                    continue
                kind = rules.kind_of_reference(file.stem, field.name)
                if kind is None and not rules.may_refer(field.name):
                    continue
                for batch in _open(file, [field.name])[1]:
                    ids = batch.column(0).unique().to_pylist()
                    if kind is None:
                        used.update(i for i in ids if i is not None)
                    else:
                        private.update((i, kind) for i in ids if i is not None)
    return {k: v for k, v in private.items() if k not in used}


# --- files ----------------------------------------------------------------------------------------


def _schema(file: Path) -> pa.Schema:
    return pq.read_schema(file) if _is_parquet(file) else _open(file)[0]


def _is_parquet(file: Path) -> bool:
    with file.open("rb") as f:
        return f.read(4) == b"PAR1"


def _open(
    file: Path, columns: list[str] | None = None
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    if _is_parquet(file):
        opened = pq.ParquetFile(file)
        if opened.metadata.num_rows > _FREE_ROWS + file.stat().st_size:
            raise InputError("claims many more rows than it has bytes; no export does", file=file)
        return opened.schema_arrow, opened.iter_batches(_ROWS, columns=columns)
    source = pa.OSFile(str(file))
    reader = _ipc(source)
    return reader.schema, _ipc_batches(reader, columns)


def _ipc(source: Any) -> Any:
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return ipc.open_file(source) if is_file else ipc.open_stream(source)


def _ipc_batches(reader: Any, columns: list[str] | None) -> Iterator[pa.RecordBatch]:
    if isinstance(reader, ipc.RecordBatchFileReader):
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    else:
        batches = iter(reader)
    for batch in batches:
        yield batch if columns is None else batch.select(columns)


def _writer(path: Path, out: Path, schema: pa.Schema) -> Any:
    if _is_parquet(path):
        # Only Layerline's own mark of the schema's version is carried over.
        mark = (pq.read_schema(path).metadata or {}).get(b"layerline.schema")
        if mark is not None and mark.isdigit():
            schema = schema.with_metadata({b"layerline.schema": mark})
        return pq.ParquetWriter(out, schema, compression="zstd")
    return ipc.new_file(str(out), schema)
