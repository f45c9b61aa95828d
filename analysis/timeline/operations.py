"""The operations of the chosen iteration as columns, with the arguments of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from .iteration import times
from .tracks import NULL, About, Ints, Slices

# Columns of `ops` that many rows share.
_SHARED = ("kind", "phase", "layer", "nodes", "modules", "rule", "range")


@dataclass(frozen=True)
class Extra:
    """What another source knows of operations: a code per row (-1: nothing) into `values`."""

    code: Ints
    values: Sequence[About]


@dataclass(frozen=True)
class Operations:
    """Rows of `ops` by start, and the slices that they are drawn as. `time` is what the tables add
    up, in ns: the self time of operations that nest, else the duration."""

    table: pa.Table
    slices: Slices
    time: Ints
    on_device: bool

    def __len__(self) -> int:
        return len(self.slices)


def operations(
    table: pa.Table, *, on_device: bool, extras: Sequence[Extra | None] = ()
) -> Operations:
    """The rows of `table` (by start, none without a start or duration)."""
    known = [e for e in extras if e is not None]
    about, first = combined([*(codes(table[c])[0] for c in _SHARED), *(e.code for e in known)])
    shared = table.select(_SHARED).take(pa.array(first)).to_pylist()
    start, duration = integers(table["start_ns"]), integers(table["duration_ns"])
    name, names = codes(table["name"])
    slices = Slices(
        start=start,
        end=start + duration,
        name=np.where(name < 0, len(names), name),
        names=[*(n or "(no name)" for n in names), "(no name)"],
        about=about,
        abouts=[_about(row, known, int(at)) for row, at in zip(shared, first, strict=True)],
        own={
            "duration_ns": duration,
            "self_ns": integers(table["self_ns"]),
            "capture_ns": start,
            "correlation": integers(table["correlation"]),
        },
    )
    return Operations(table, slices, integers(times(table)), on_device)


def _about(row: Mapping[str, Any], extras: Sequence[Extra], at: int) -> About:
    about: dict[str, Any] = {c: row[c] for c in _SHARED if row[c] is not None and row[c] != []}
    # What has no module says so: unknown is written, not left out.
    about.setdefault("modules", "none" if row["modules"] == [] else "not known")
    about.setdefault("rule", "not known")
    for extra in extras:
        code = int(extra.code[at])
        if code >= 0:
            about.update(extra.values[code])
    return about


def integers(column: pa.ChunkedArray) -> Ints:
    """A column of integers; `NULL` where it is null."""
    numbers: Ints = pc.fill_null(column, NULL).to_numpy()
    return numbers


def codes(column: pa.ChunkedArray) -> tuple[Ints, list[Any]]:
    """As `tables.codes`, in 64 bits."""
    code, values = tables.codes(column)
    return code.astype(np.int64), values


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


def equal_rows(keys: Sequence[Ints], wanted: Sequence[Ints]) -> Ints:
    """For each row of the columns `wanted`, the first row of the columns `keys` that equals it; -1
    where none does."""
    pairs = zip(keys, wanted, strict=True)
    distinct = [np.unique(np.concatenate(pair), return_inverse=True)[1] for pair in pairs]
    code, _ = combined(distinct)
    of_keys, of_wanted = np.split(code, [len(keys[0])])
    first = np.full(int(code.max(initial=-1)) + 1, -1)
    first[of_keys[::-1]] = np.arange(len(of_keys))[::-1]  # of equal rows the first is set last
    return first[of_wanted]
