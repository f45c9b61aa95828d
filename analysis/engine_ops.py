"""Operations of an engine's capture with their layer, nodes and modules.

Joins what a backend's own profile recorded to the engine's layers.json by name, and where a name
is several layers' by its occurrence within the iteration; never by position in two lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.errors import InputError
from ..core.tables import SCHEMAS
from ..engines.layers import load as load_layers
from .readers.base import Artefact
from .readers.onnxruntime import profile
from .run_files import needed


def engine_ops(run: Path, precision: str, backend: str) -> Artefact:
    """The `ops` of one engine's profile in a run directory, joined to its layers.

    Warm-up rows have a null iteration. Facts: those of the reader, `coverage` (share of the time
    of operations that has modules, null without any time) and `unlisted` (names that layers.json
    does not have, with their nanoseconds). InputError for files that are missing or broken.
    """
    stem = f"{precision}.{backend}"
    meta = needed(run / "captures" / f"{stem}.profile.meta.json")
    listed = load_layers(run / "engines" / f"{stem}.layers.json")
    if meta.get("profile") is None:
        raise InputError(
            "does not say which profile it is of",
            file=run / "captures" / f"{stem}.profile.meta.json",
            fix="run the profile stage again",
        )
    warmup = int(meta["facts"]["warmup_runs"])
    raw = profile.read(run / "captures" / Path(meta["profile"]).name, warmup)
    ops = join(raw.main, listed["layers"], precision)
    facts = {**raw.facts, "coverage": coverage(ops), "unlisted": unlisted(ops)}
    notes = list(raw.notes)
    if facts["unlisted"]:
        names = ", ".join(list(facts["unlisted"])[:3])
        notes.append(f"{len(facts['unlisted'])} names in the profile are no layer: {names}")
    return Artefact("engine", {**raw.tables, "ops": ops}, facts, notes)


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
    found = [
        _layer(by_name.get(name, ()), k, count)
        for name, (k, count) in zip(names, _occurrences(ops, by_name), strict=True)
    ]
    columns = {
        "layer": [n if f is None else f["name"] for n, f in zip(names, found, strict=True)],
        "nodes": [None if f is None else f["nodes"] for f in found],
        "modules": [None if f is None or not f["modules"] else f["modules"] for f in found],
        "rule": ["unresolved" if f is None else f["rule"] for f in found],
        "precision": [precision] * len(names),
    }
    for column, values in columns.items():
        field = SCHEMAS["ops"].field(column)
        place = ops.schema.get_field_index(column)
        ops = ops.set_column(place, field, pa.array(values, field.type))
    return ops


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


def coverage(ops: pa.Table) -> float | None:
    """Share of the rows' self time that has modules; null where there is no time."""
    times = ops["self_ns"].to_pylist()
    resolved = [m is not None for m in ops["modules"].to_pylist()]
    total = sum(t for t in times if t is not None)
    if not total:
        return None
    known = sum(t for t, r in zip(times, resolved, strict=True) if r and t is not None)
    return float(known / total)


def unlisted(ops: pa.Table) -> dict[str, int]:
    """Names without a layer and their nanoseconds, the longest first."""
    sums: dict[str, int] = {}
    columns = (ops[c].to_pylist() for c in ("name", "nodes", "self_ns"))
    for name, nodes, time in zip(*columns, strict=True):
        if nodes is None:
            sums[name] = sums.get(name, 0) + (time or 0)
    return dict(sorted(sums.items(), key=lambda entry: -entry[1]))
