"""Rows of an nsys export, each once.

nsys writes an event once. A file that was put together or imported twice holds rows that are equal
in every column, and sums over them would be too high.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .source import Columns, Filter, Integers, Source

_FACTOR = 6364136223846793005  # Knuth's MMIX generator


def read(
    source: Source,
    table: str,
    plain: Sequence[str],
    coded: Sequence[str] = (),
    text: str | None = None,
    where: Filter | None = None,
) -> tuple[Columns, int]:
    """As `Source.read`, without the rows that repeat another in every column of the table (the
    first one stays), and how many these were.

    The other columns are read only where rows are alike in those that are asked for.
    """
    found = source.read(table, plain, coded, text, where)
    hashes = _hashes(found)
    hashes.sort()
    if not (hashes[1:] == hashes[:-1]).any():
        return found, 0
    del hashes
    others = [c for c in source.tables[table] if c not in (*plain, *coded, text)]
    whole = source.read(table, [*plain, *others], coded, text, where)
    again = _repeats(whole)
    kept = np.ones(whole.rows, np.bool_)
    kept[again] = False
    data = {name: whole.data[name][kept] for name in found.data}
    return Columns(whole.rows - len(again), data, whole.values), len(again)


def told(repeats: int, what: str) -> str:
    """What to say of them."""
    if repeats == 1:
        return f"1 {what} row repeats another in every column and is not counted again"
    return f"{repeats:,} {what} rows repeat others in every column and are not counted again"


def _hashes(columns: Columns) -> Integers:
    """A number per row, equal for equal rows; of unequal ones hardly ever."""
    found = np.zeros(columns.rows, np.int64)
    for values in columns.data.values():
        found *= _FACTOR  # wraps around
        found ^= found >> 29
        found += values
    return found


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
