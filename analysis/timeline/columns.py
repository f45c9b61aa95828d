"""Columns of a table as codes: equal values, equal lists, equal combinations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .tracks import NULL, Ints

_SEPARATOR = "\x1f"


def integers(column: pa.ChunkedArray) -> Ints:
    """A column of integers; `NULL` where it is null."""
    found: Ints = pc.fill_null(column, NULL).to_numpy()
    return found


def codes(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    """A code per row (-1 for null) and the value of each code; lists are tuples of text."""
    listed = pa.types.is_list(column.type)
    encoded = pc.dictionary_encode(_joined(column) if listed else column).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.chunk(0) if encoded.num_chunks else pa.array([]).dictionary_encode()
    values = encoded.dictionary.to_pylist()
    if listed:
        # "l" before each list tells one empty text from no text.
        values = [tuple(v[1:].split(_SEPARATOR)[1:]) for v in values]
    found = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found, values


def _joined(column: pa.ChunkedArray) -> pa.ChunkedArray:
    joined = pc.binary_join(column, _SEPARATOR)
    some = pc.greater(pc.list_value_length(column), 0)
    text = pc.if_else(some, pc.binary_join_element_wise("l", joined, _SEPARATOR), "l")
    return pc.if_else(pc.is_valid(column), text, pa.scalar(None, pa.string()))


def combined(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """A code per row for each distinct combination, and the first row that has it."""
    whole = np.zeros(len(parts[0]), np.int64)
    first = np.zeros(min(1, len(whole)), np.int64)
    for part in parts:
        width = int(part.max(initial=-1)) + 2
        _, first, whole = np.unique(
            whole * width + part + 1, return_index=True, return_inverse=True
        )
    return whole.astype(np.int64), first
