"""Layers of an engine from any artefact that names them: layer lists, timings, profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...core import tables
from ...core.errors import InputError
from ...core.nodes import NodeGraph
from ...core.resolve import Network, RawLayer, Resolution, resolve
from ..readers.base import Artefact
from ..readers.tensorrt import profile

Row = dict[str, Any]

ENOUGH = 0.95  # of the time has its modules: less is asked about
FITS = "is nodes.json that of the model, and of the export, that the engine was built from?"


def nameless(artefact: Artefact) -> InputError:
    """The error for an artefact that names no layers: what it holds, and what to name."""
    if artefact.kind != profile.KIND:
        return InputError(
            f"is of kind {artefact.kind}, which names no engine layers",
            fix="name a capture, a profile or a layer list of an engine; `layerline read FILE` "
            "shows what this one holds",
        )
    if "latency" in artefact.tables:
        what = "holds times of whole iterations (trtexec --exportTimes) and none of a layer"
    else:
        what = "holds settings of a TensorRT profile and no time of a layer"
    return InputError(what, fix="name what trtexec --exportProfile wrote, or an nsys capture")


def columns_of(resolution: Resolution | None) -> Row:
    """Columns of a resolution. Nodes and modules of an unresolved layer are not known, nor are
    modules where no node tells one: None."""
    if resolution is None or resolution.rule == "unresolved":
        return {"nodes": None, "modules": None, "rule": resolution and resolution.rule}
    return {
        "nodes": list(resolution.nodes),
        "modules": list(resolution.modules) or None,
        "rule": resolution.rule,
    }


def of_rows(
    ops: pa.Table, resolved: Sequence[Resolution | None], layer: pa.Array
) -> dict[str, pa.Array]:
    """Nodes, modules and rule of each operation, by the index of its layer (null: none)."""
    rows = [columns_of(r) for r in resolved]
    return {
        c: pa.array([row[c] for row in rows], ops.schema.field(c).type).take(layer)
        for c in ("nodes", "modules", "rule")
    }


def resolve_rows(
    rows: list[Row],
    raw: Sequence[tuple[str | None, RawLayer]],
    graph: NodeGraph,
    network: Network | None,
) -> None:
    """Resolve the layers `raw`, each with its engine, and write nodes, modules and rule into
    `rows`, which are in step. A file may hold several engines: each is resolved by itself."""
    for engine in dict.fromkeys(e for e, _ in raw):
        own = [i for i, (e, _) in enumerate(raw) if e == engine]
        for i, resolution in zip(
            own, resolve([raw[i][1] for i in own], graph, network), strict=True
        ):
            rows[i].update(columns_of(resolution))


def resolve_ops(ops: pa.Table, graph: NodeGraph, network: Network | None) -> pa.Table:
    """Operations with the resolution of their layer, or else their name; each distinct one once."""
    rows = ops.select(["name", "layer"]).to_pylist()
    code, names = tables.codes(pa.array([r["layer"] or r["name"] or "" for r in rows], pa.string()))
    resolved = resolve([RawLayer(name=n) for n in names], graph, network)
    return tables.with_columns(ops, of_rows(ops, resolved, pa.array(code)))


def raw_layers(rows: list[Row], artefact: Artefact) -> list[tuple[str | None, RawLayer]]:
    """Engine and raw layer of each row, with the tensors and the metadata of its layer.

    Names repeat, so a layer is known by its engine and its `index` there, which is that of its row.
    """
    tensors: dict[tuple[Any, int], dict[str, list[str]]] = {}
    for tensor in _rows(artefact, "tensors"):
        sides = tensors.setdefault((tensor["engine"], tensor["index"]), {"input": [], "output": []})
        if tensor["direction"] in sides and tensor["tensor"] is not None:
            sides[tensor["direction"]].append(tensor["tensor"])
    metadata = {(d["engine"], d["index"]): d["metadata"] for d in _rows(artefact, "details")}
    seen: Counter[tuple[Any, str]] = Counter()
    count: Counter[Any] = Counter()
    layers = []
    for row in rows:
        key, name = (row["engine"], count[row["engine"]]), (row["engine"], row["layer"])
        own = tensors.get(key)
        layers.append(
            (
                row["engine"],
                RawLayer(
                    name=row["layer"] or "",
                    op=row["kind"],
                    inputs=tuple(own["input"]) if own else None,
                    outputs=tuple(own["output"]) if own else None,
                    metadata=metadata.get(key),
                    occurrence=seen[name],
                ),
            )
        )
        seen[name] += 1
        count[row["engine"]] += 1
    return layers


def _rows(artefact: Artefact, name: str) -> list[Row]:
    return artefact.tables[name].to_pylist() if name in artefact.tables else []
