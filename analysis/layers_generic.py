"""Layers of an engine from any artefact that names them: layer lists, timings, profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ..core import tables
from ..core.errors import InputError
from ..core.nodes import NodeGraph
from ..core.resolve import Network, RawLayer, Resolution, resolve
from .layers import of_ops, without_kernels
from .layers_show import Times
from .readers.base import Artefact
from .readers.tensorrt import profile
from .sums import iterations_of, stat, sums

Row = dict[str, Any]


def of_artefact(artefact: Artefact, graph: NodeGraph | None, network: Network | None) -> pa.Table:
    """The `layers` table of an artefact, resolved; InputError where it names no layers."""
    if "layers" in artefact.tables:
        rows = artefact.tables["layers"].to_pylist()
        if graph is not None:
            fill(rows, raw_layers(rows, artefact), graph, network)
        return tables.table("layers", rows)
    ops = artefact.tables.get("ops")
    if ops is not None and "node" in ops["kind"].unique().to_pylist():
        return of_ops(_resolved_ops(ops, graph, network), engine=artefact.kind)
    raise nameless(artefact)


def nameless(artefact: Artefact) -> InputError:
    """The error for an artefact that names no layers: what it holds, and what to name."""
    if artefact.kind != profile.KIND:
        return InputError(
            f"is of kind {artefact.kind}, which names no engine layers",
            fix="name a capture, a profile or a layer list of an engine",
        )
    if "latency" in artefact.tables:
        what = "holds times of whole iterations (trtexec --exportTimes) and none of a layer"
    else:
        what = "holds settings of a TensorRT profile and no time of a layer"
    return InputError(what, fix="name what trtexec --exportProfile wrote, or an nsys capture")


def times(artefact: Artefact) -> Times:
    """What is known of the artefact's iterations, and of the time of all layers in one."""
    if "layers" not in artefact.tables:
        ops = artefact.tables["ops"]
        found = sums(ops)
        numbers, totals = found.iterations, found.total()
        if without_kernels(ops) is not None:
            # An iteration of nodes without any kernel took 0 ns of kernels.
            numbers = tuple(np.unique(iterations_of(ops)[1]).tolist())
            by_number = dict(zip(found.iterations, totals.tolist(), strict=True))
            totals = np.array([by_number.get(n, 0) for n in numbers], dtype=np.int64)
        total = None if found.unknown else stat(totals)
        return Times(len(numbers) or None, total)
    told = artefact.facts.get("iterations")
    known = told if isinstance(told, int) and told > 0 else None
    # TensorRT's medians are over a layer's own reports, fewer where it did not always run.
    return Times(known, None, own_reports=artefact.kind == profile.KIND)


def filled(what: Resolution) -> Row:
    """Columns of a resolution. Nodes and modules of an unresolved layer are not known: null."""
    known = what.rule != "unresolved"
    return {
        "nodes": list(what.nodes) if known else None,
        "modules": list(what.modules) if known else None,
        "rule": what.rule,
    }


def fill(
    rows: list[Row],
    raw: Sequence[tuple[str | None, RawLayer]],
    graph: NodeGraph,
    network: Network | None,
) -> None:
    """Resolve the layers `raw` (each with its engine) and write what they are into `rows`, which
    are in step."""
    for row, what in zip(rows, _resolve_runs(raw, graph, network), strict=True):
        row.update(filled(what))


def raw_layers(rows: list[Row], artefact: Artefact) -> list[tuple[str | None, RawLayer]]:
    """Engine and raw layer of each row, with the tensors and the metadata of its layer.

    A layer is told by its engine and its `index` there, which is that of its row: names repeat.
    """
    tensors: dict[tuple[Any, int], dict[str, list[str]]] = {}
    for tensor in _rows(artefact, "tensors"):
        sides = tensors.setdefault((tensor["engine"], tensor["index"]), {"input": [], "output": []})
        if tensor["direction"] in sides and tensor["tensor"] is not None:
            sides[tensor["direction"]].append(tensor["tensor"])
    metadata = {(d["engine"], d["index"]): d["metadata"] for d in _rows(artefact, "details")}
    seen: Counter[tuple[Any, str]] = Counter()
    count: Counter[Any] = Counter()
    found = []
    for row in rows:
        key, name = (row["engine"], count[row["engine"]]), (row["engine"], row["layer"])
        mine = tensors.get(key)
        found.append(
            (
                row["engine"],
                RawLayer(
                    name=row["layer"] or "",
                    op=row["kind"],
                    inputs=tuple(mine["input"]) if mine else None,
                    outputs=tuple(mine["output"]) if mine else None,
                    metadata=metadata.get(key),
                    occurrence=seen[name],
                ),
            )
        )
        seen[name] += 1
        count[row["engine"]] += 1
    return found


def _rows(artefact: Artefact, name: str) -> list[Row]:
    return artefact.tables[name].to_pylist() if name in artefact.tables else []


def _resolve_runs(
    raw: Sequence[tuple[str | None, RawLayer]], graph: NodeGraph, network: Network | None
) -> list[Resolution]:
    """Resolve engine by engine (a file may hold several), in step with `raw`."""
    found: dict[int, Resolution] = {}
    for engine in dict.fromkeys(e for e, _ in raw):
        mine = [i for i, (e, _) in enumerate(raw) if e == engine]
        resolved = resolve([raw[i][1] for i in mine], graph, network)
        found.update(zip(mine, resolved, strict=True))
    return [found[i] for i in range(len(raw))]


def _resolved_ops(ops: pa.Table, graph: NodeGraph | None, network: Network | None) -> pa.Table:
    """Operations with the resolution of their name, each distinct name once."""
    if graph is None:
        return ops
    rows = ops.select(["name", "layer"]).to_pylist()
    names = [r["layer"] or r["name"] or "" for r in rows]
    distinct = list(dict.fromkeys(names))
    resolved = resolve([RawLayer(name=n) for n in distinct], graph, network)
    by_name = {n: filled(w) for n, w in zip(distinct, resolved, strict=True)}
    for column in ("nodes", "modules", "rule"):
        at = ops.schema.get_field_index(column)
        values = pa.array([by_name[n][column] for n in names], ops.schema.field(at).type)
        ops = ops.set_column(at, ops.schema.field(at), values)
    return ops
