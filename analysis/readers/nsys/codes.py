"""Columns of an nsys export made fit for use: names as codes, times within sense, absent ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .source import NULL, Codes, Columns, Integers, Source

BOUND = 1 << 60  # times beyond are damage: sums and differences of them would overflow


class Names:
    """Codes for names that come as ids into StringIds, or as text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str) -> int:
        """The code of a text."""
        found = self._codes.get(text)
        if found is None:
            found = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return found

    def of_ids(self, codes: Codes, ids: list[Any], strings: dict[int, str]) -> Codes:
        """Codes of names for a column of coded ids (or names): -1 where an id has no name."""
        known = {i: i if isinstance(i, str) else strings.get(i) for i in ids}
        return self._mapped(
            [-1 if known[i] is None else self.code(known[i] or "") for i in ids], codes
        )

    def of_texts(self, codes: Codes, texts: list[Any]) -> Codes:
        """Codes of names for a column of coded texts."""
        return self._mapped([self.code(t) for t in texts], codes)

    @staticmethod
    def _mapped(to: list[int], codes: Codes) -> Codes:
        narrow = np.min_scalar_type(-1 - max([0, *to]))
        mapped: Codes = np.asarray([*to, -1], narrow)[codes]
        return mapped


def present(source: Source, table: str, wanted: tuple[str, ...]) -> list[str]:
    """Those of the wanted columns that the table has."""
    columns = source.tables[table]
    return [c for c in wanted if c in columns]


def ids_in(values: list[Any]) -> set[int]:
    """The ids among values that may be names or unknown."""
    return {v for v in values if isinstance(v, int) and v != NULL}


def times(values: Integers) -> Integers:
    """Times, those out of any sensible bound as `NULL`."""
    if not len(values) or (values.min() > -BOUND and values.max() < BOUND):
        return values
    return np.where((values > -BOUND) & (values < BOUND), values, NULL)


def codes_of(raw: Columns, column: str, rows: int) -> tuple[Codes, list[int]]:
    """A coded column and its values; of an absent one, `NULL` in every row."""
    if column in raw.values:
        return raw[column], raw.values[column]
    return np.zeros(rows, np.int8), [NULL]
