"""The tables: their columns, types and files. Column names are the contract: add, don't rename.

All times are integer nanoseconds; unknown is null, never 0; every row says where it came from
(`source`: the capture's file name). The canonical form is a `pyarrow.Table` with exactly these
columns in this order; `frame` gives pandas with nullable types for work that groups and joins.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from .errors import InputError
from .files import open_regular, replacing

if TYPE_CHECKING:
    import pandas as pd

Ints = npt.NDArray[np.int64]
SCHEMA_VERSION = 1

PHASES = ("inference", "forward", "loss", "backward", "recompute", "optimizer", "data", "other")
DEVICE_KINDS = ("kernel", "memcpy", "memset")
# Rows that are no module's: time of operations without a known module, and in no operation.
UNRESOLVED = "unresolved"
OUTSIDE_OPERATORS = "outside operators"
RULES = (
    "provenance",  # what a compiler recorded of its own work
    "name",
    "index",
    "boundary",
    "order",
    "elimination",
    "carrier",
    "range",  # the eager side: a module range that encloses the operation
    "sequence",  # the eager side: a backward operator, by its forward operator
    UNRESOLVED,
)

_TYPES = {
    "text": pa.string(),
    "int": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "byte": pa.int8(),
    "texts": pa.list_(pa.string()),
    "ints": pa.list_(pa.int64()),
    "coded": pa.dictionary(pa.int32(), pa.string()),  # texts that repeat
}


def schema(columns: str) -> pa.Schema:
    """The schema of a table: ``name type, name type, ...``."""
    return pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, columns.split(","))])


SCHEMAS: dict[str, pa.Schema] = {
    # One row per GPU operation, engine node execution or CPU operator. `self_ns` is the duration
    # less that of nested operators of the same thread; sums over CPU operators use it. A list
    # that is empty says "none"; null says "not known" (an unresolved row has null modules).
    "ops": schema(
        "source text, precision text, phase text, iteration int, kind text, name text, "
        "start_ns int, duration_ns int, self_ns int, device int, stream int, process int, "
        "rank int, correlation int, range text, range_path texts, layer text, nodes texts, "
        "modules texts, rule text"
    ),
    # One row per engine layer (a fused operation of the engine). Statistics are over
    # per-iteration sums; total_ns is the sum over all iterations, `calls` the executions.
    "layers": schema(
        "source text, precision text, engine text, layer text, kind text, nodes texts, "
        "modules texts, rule text, calls int, kernels int, total_ns int, median_ns int, "
        "p90_ns int, p99_ns int, ci_low_ns int, ci_high_ns int, precision_in text, "
        "precision_out text, compute_precision text, tactic text"
    ),
    "counters": schema(
        "source text, precision text, engine text, layer text, kernel text, launch int, "
        "representative_of int, metric text, unit text, value real, text text, section text, "
        "pass int, clock_control text, nodes texts, modules texts, rule text"
    ),
    # One row per event of an allocator, in their order, or of PyTorch's CPU allocator; first those
    # for what was there before (action "before"). `bytes`: those asked for. `frames`: a line each,
    # innermost first.
    "memory": schema(
        "source text, rank int, iteration int, phase text, time_ns int, action text, bytes int, "
        "address int, category text, module text, frames coded"
    ),
    "latency": schema("source text, precision text, iteration int, latency_ns int"),
    # One row per engine and module. Errors are relative; null is unknown, and where values are not
    # finite (`nonfinite`: how many).
    "accuracy": schema(
        "source text, precision text, module text, tensor text, error_in real, error_out real, "
        "nonfinite int, first_wrong bool, how text"
    ),
    # One row per side (engine or eager), phase and module: the cost lies in [own_ns, own_ns +
    # shared_ns].
    "modules": schema(
        "side text, source text, precision text, phase text, module text, module_class text, "
        "depth int, own_ns int, own_low_ns int, own_high_ns int, shared_ns int, "
        "shared_low_ns int, shared_high_ns int, iterations int"
    ),
    # One row per parameter and optimizer step. `changed`: elements of which the bits changed, of
    # `elements` (of a sharded one: of the rank's own shard, `shape` is the whole's). Norms are
    # Euclidean, of the change, of the gradient (unscaled) and of the parameter before the step.
    # `stepped`: whether the optimizer's step ran (a gradient scaler skips it). Rows are counted of
    # embeddings. `index`: the parameter's number in its model; `parameter`: its name in `module`.
    "parameters": schema(
        "source text, rank int, step int, index int, module text, module_class text, "
        "parameter text, dtype text, shape ints, elements int, sharded bool, trainable bool, "
        "stepped bool, changed int, update_norm real, gradient_norm real, parameter_norm real, "
        "rows int, rows_changed int, rows_with_gradient int, unix_time real"
    ),
    # One row per communication of a rank. Times are on the clock of all ranks; `wait_ns` until the
    # last rank of the group began, `transfer_ns` from then on, `exposed_ns` what no compute hides
    # (null for a send or receive of a kernel that a row before has told it of).
    # `instance`: rows with the same one are one collective (null: no partner is known).
    # `bus_bandwidth` in bytes a second.
    "collectives": schema(
        "source text, rank int, group text, operation text, sequence int, iteration int, "
        "phase text, module text, start_ns int, duration_ns int, bytes int, wait_ns int, "
        "transfer_ns int, exposed_ns int, clock_uncertainty_ns int, dtype text, group_size int, "
        "peer int, stream int, instance int, matched_by text, known_by text, late_rank int, "
        "bus_bandwidth real"
    ),
    # One row per rank and step; the parts add up to `duration_ns`, `data_ns` is a part of
    # `idle_host_ns`. `communication_ns` is exposed and of no known partner. Of compute, in kernel
    # time: `beside_…` ran beside communication, `compared_…` of that has the same work alone to be
    # compared with, and took `slowed_ns` longer (null: nothing to compare).
    "ranks": schema(
        "source text, rank int, iteration int, start_ns int, duration_ns int, compute_ns int, "
        "transfer_ns int, wait_ns int, communication_ns int, copy_ns int, idle_host_ns int, "
        "idle_dependency_ns int, idle_launch_ns int, idle_unknown_ns int, data_ns int, "
        "beside_kernels int, beside_ns int, compared_kernels int, compared_ns int, slowed_ns int, "
        "unready_ns int, clock_offset_ns int, clock_uncertainty_ns int"
    ),
}


# What names a row of a table that is read again: never null.
NEEDED: dict[str, tuple[str, ...]] = {
    "layers": ("layer",),
    "modules": ("side", "precision", "phase", "module"),
    "counters": ("launch", "metric"),
    "parameters": ("source", "step", "index"),
}


def table(name: str, rows: Iterable[Mapping[str, Any]] | Mapping[str, Any]) -> pa.Table:
    """Build the table `name` from rows (dicts) or columns (a dict of arrays or lists).

    Missing columns become null; a column the schema does not have is an error (ValueError).
    """
    schema = SCHEMAS[name]
    if not isinstance(rows, Mapping):
        rows = [dict(row) for row in rows]
    names = set(rows) if isinstance(rows, Mapping) else {key for row in rows for key in row}
    if unknown := names - set(schema.names):
        raise ValueError(f"table {name} has no column {sorted(unknown)}")
    if not isinstance(rows, Mapping):
        return pa.Table.from_pylist(rows, schema=schema)
    length = len(next(iter(rows.values()), ()))
    arrays = []
    for field in schema:
        values = rows.get(field.name)
        if values is None:
            arrays.append(pa.nulls(length, field.type))
        elif isinstance(values, (pa.Array, pa.ChunkedArray)):
            arrays.append(values.cast(field.type))
        else:
            arrays.append(pa.array(values, type=field.type, from_pandas=True))
    return pa.table(arrays, schema=schema)


def with_columns(data: pa.Table, columns: Mapping[str, Any]) -> pa.Table:
    """The table with other values in some of its columns, of the types that these have."""
    for name, values in columns.items():
        at = data.schema.get_field_index(name)
        field = data.schema.field(at)
        if not isinstance(values, (pa.Array, pa.ChunkedArray)):
            values = pa.array(values, field.type)
        data = data.set_column(at, field, values)
    return data


def of_kinds(ops: pa.Table, kinds: Sequence[str], *known: str) -> pa.Table:
    """The operations of these kinds of which the columns `known` are not null."""
    keep = pc.is_in(ops["kind"], pa.array(kinds))
    for column in known:
        keep = pc.and_(keep, pc.is_valid(ops[column]))
    return ops.filter(keep)


def by_value(values: Ints) -> list[tuple[int, Ints]]:
    """Each distinct value, ascending, and the places that have it, ascending."""
    order = np.argsort(values, kind="stable")
    distinct, first = np.unique(values[order], return_index=True)
    return list(zip(distinct.tolist(), np.split(order, first[1:]), strict=False))


_SEPARATOR = "\x1f"


def codes(column: pa.Array | pa.ChunkedArray) -> tuple[Any, list[Any]]:
    """A code per row (an array, -1 for null) and each code's value, of a list a tuple of text."""
    if pa.types.is_list(column.type):
        # "l" before each list tells one empty text from no text.
        joined = pc.binary_join_element_wise("l", pc.binary_join(column, _SEPARATOR), _SEPARATOR)
        texts = pc.if_else(pc.greater(pc.list_value_length(column), 0), joined, "l")
        numbers, listed = codes(texts)
        return numbers, [tuple(text.split(_SEPARATOR)[1:]) for text in listed]
    encoded = pc.dictionary_encode(column)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.unify_dictionaries().combine_chunks()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([]).dictionary_encode()
    numbers = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False)
    return numbers, encoded.dictionary.to_pylist()


def frame(data: pa.Table) -> pd.DataFrame:
    """The table as pandas: Int64, Float64 and string with NA, lists as Python lists or None."""
    import pandas as pd  # here, because reading a capture does without and it takes a second

    kinds = {
        pa.int64(): pd.Int64Dtype(),
        pa.float64(): pd.Float64Dtype(),
        pa.string(): pd.StringDtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    return data.to_pandas(types_mapper=kinds.get)


def write_parquet(path: Path, data: pa.Table) -> None:
    """Write a table, whole or not at all, with the schema's version in its metadata."""
    with replacing(path) as temporary:
        data = data.replace_schema_metadata(_versioned(data.schema).metadata)
        pq.write_table(data, temporary, compression="zstd")


def parquet_in_pieces(temporary: Path, name: str) -> pq.ParquetWriter:
    """A writer of the table `name`, piece by piece, into a file that `files.replacing` gave."""
    return pq.ParquetWriter(temporary, _versioned(SCHEMAS[name]), compression="zstd")


def _versioned(schema: pa.Schema) -> pa.Schema:
    version = {b"layerline.schema": str(SCHEMA_VERSION).encode()}
    return schema.with_metadata({**(schema.metadata or {}), **version})


def read_parquet(path: Path, name: str | None = None) -> pa.Table:
    """Read a table; with `name`, check that its columns are the contract's, and give them its types
    (other programs write nullable integers as floats, and texts in other encodings).

    Raises InputError for a missing file, one that is not Parquet, another schema version, missing
    columns, columns of other types, or nulls where a row needs a value (`NEEDED`).
    """
    try:
        with open_regular(path) as file:
            data = pq.read_table(file)
    except FileNotFoundError:
        raise InputError("no such file", file=path) from None
    except (pa.ArrowInvalid, OSError) as e:
        raise InputError(f"is not a Parquet table ({e})", file=path) from None
    version = (
        (data.schema.metadata or {}).get(b"layerline.schema", b"none").decode(errors="replace")
    )
    if name is not None:
        if version != str(SCHEMA_VERSION):
            raise InputError(
                f"schema version {version}, this layerline reads {SCHEMA_VERSION}",
                file=path,
                fix="make the report again",
            )
        missing = [c for c in SCHEMAS[name].names if c not in data.column_names]
        if missing:
            raise InputError(f"has no column {', '.join(missing)}", file=path)
        data = _typed(data, SCHEMAS[name], path)
        for column in NEEDED.get(name, ()):
            if unnamed := data[column].null_count:
                raise InputError(
                    f"{unnamed} of {len(data)} rows have no {column}", file=path, fix=_AGAIN
                )
    return data


_AGAIN = "make it again with layerline"


def _typed(data: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """The table with the schema's types; its further columns as they are."""
    types = dict(zip(schema.names, schema.types, strict=True))
    for at, field in enumerate(data.schema):
        wanted = types.get(field.name, field.type)
        if field.type == wanted:
            continue
        try:
            if _sort(field.type) not in ("nothing", _sort(wanted)):
                raise pa.ArrowInvalid
            data = data.set_column(at, field.name, data.column(at).cast(wanted))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            raise InputError(
                f"column {field.name} holds {field.type}, not {wanted}", file=path, fix=_AGAIN
            ) from None
    return data


def _sort(kind: pa.DataType) -> str:
    """What values of a type are. A number may be cast to another type of numbers, but no text to a
    number: Arrow would read it."""
    is_, name = pa.types, str(kind)
    if is_.is_dictionary(kind):
        return _sort(kind.value_type)
    if is_.is_string(kind) or is_.is_large_string(kind) or is_.is_string_view(kind):
        return "text"
    if is_.is_integer(kind) or is_.is_floating(kind):
        return "number"
    if is_.is_list(kind) or is_.is_large_list(kind):
        return f"list of {_sort(kind.value_type)}"
    return "nothing" if is_.is_null(kind) else name


def write_csv(path: Path, data: pa.Table) -> None:
    """Write a table as CSV: lists as JSON, null as an empty field."""
    flat = frame(data)
    for field in data.schema:
        if pa.types.is_list(field.type):
            flat[field.name] = [
                None if v is None else json.dumps(list(v), ensure_ascii=False)
                for v in flat[field.name]
            ]
    with replacing(path) as temporary:
        flat.to_csv(temporary, index=False)
