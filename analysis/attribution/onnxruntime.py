"""Operations of an engine's capture with their layer, nodes and modules.

Joins what a backend's own profile recorded to the engine's layers.json by name, and where a name
is several layers' by its occurrence within the iteration; never by position in two lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from ...core.tables import with_columns


def join(
    ops: pa.Table, layers: Sequence[Mapping[str, Any]], precision: str | None = None
) -> pa.Table:
    """`ops` with layer, nodes, modules and rule of each row's layer, and `precision`.

    A row whose name is no layer's, or does not tell which of several, keeps its own name as layer,
    null modules and the rule unresolved. Times and rows are as they were.
    """
    by_name: dict[str, list[Mapping[str, Any]]] = {}
    for layer in layers:
        by_name.setdefault(layer["name"], []).append(layer)
    names = ops["name"].to_pylist()
    of_row = [
        _layer(by_name.get(name, ()), k, count)
        for name, (k, count) in zip(names, _occurrences(ops, by_name), strict=True)
    ]
    return with_columns(
        ops,
        {
            "layer": [n if x is None else x["name"] for n, x in zip(names, of_row, strict=True)],
            "nodes": [None if x is None else x["nodes"] for x in of_row],
            "modules": [None if x is None or not x["modules"] else x["modules"] for x in of_row],
            "rule": ["unresolved" if x is None else x["rule"] for x in of_row],
            "precision": [precision] * len(names),
        },
    )


def _layer(
    candidates: Sequence[Mapping[str, Any]], occurrence: int, count: int
) -> Mapping[str, Any] | None:
    """The layer of the `occurrence`-th of `count` rows of one name in one iteration."""
    if len(candidates) == 1:
        return candidates[0]
    if not candidates or count != len(candidates):
        return None
    return next((c for c in candidates if c.get("occurrence") == occurrence), None)


def _occurrences(ops: pa.Table, by_name: Mapping[str, Sequence[Any]]) -> list[tuple[int, int]]:
    """For each row, which one of its name it is in its iteration by start, and of how many.

    Only names that several layers have are told apart; in warm-up and unfinished runs (null
    iteration) they cannot be.
    """
    names = ops["name"].to_pylist()
    shared = {n for n, layers in by_name.items() if len(layers) > 1}
    result = [(0, 1)] * len(names)
    if not shared:
        return result
    groups: dict[tuple[str, int], list[int]] = {}
    iterations, starts = ops["iteration"].to_pylist(), ops["start_ns"].to_pylist()
    for i, name in enumerate(names):
        if name in shared:
            if iterations[i] is None or starts[i] is None:
                result[i] = (0, 0)
            else:
                groups.setdefault((name, iterations[i]), []).append(i)
    for rows in groups.values():
        rows.sort(key=starts.__getitem__)
        for k, i in enumerate(rows):
            result[i] = (k, len(rows))
    return result
