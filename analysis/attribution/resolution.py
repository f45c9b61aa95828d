"""Layers of an engine from any artefact that names them: layer lists, timings, profiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ...core.errors import InputError
from ...core.nodes import NodeGraph
from ...core.resolve import Network, RawLayer, Resolution, resolve
from ..readers.base import Artefact
from ..readers.tensorrt import profile

Row = dict[str, Any]


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


ENOUGH = 0.95  # of the time has its modules: less is asked about


FITS = "is nodes.json that of the model, and of the export, that the engine was built from?"
