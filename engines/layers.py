"""layers.json: what an engine is made of, the same for every backend.

``{"schema_version": 1, "engine", "backend", "precision", "layers": [{"name", "op", "inputs",
"outputs", "nodes", "modules", "rule", "kind", "why", "precision_in", "precision_out",
"compute_precision", "tactic", "occurrence"}], "nodes": [{"name", "op", "module", "status",
"layer", "why"}]}``

Layers are in execution order; `occurrence` tells layers of one name apart, in that order.
Precisions are fp32, tf32, fp16, bf16, fp8, int8 and the like, null where nothing is known or,
for `compute_precision`, where a layer computes nothing. `nodes` are the exported model's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core import documents
from ..core.errors import InputError
from ..core.nodes import NodeGraph
from ..core.resolve import Network, NodeStatus, RawLayer, Resolution, node_status, resolve

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class EngineLayer:
    """One layer as the backend knows it.

    `raw` is what the resolver is given; `inputs` and `outputs` the tensors that the layer really
    has, where the backend told the resolver others.
    """

    raw: RawLayer
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    precision_in: str | None = None
    precision_out: str | None = None
    compute_precision: str | None = None
    tactic: str | None = None


def document(
    engine: str,
    backend: str,
    precision: str,
    layers: Sequence[EngineLayer],
    graph: NodeGraph,
    network: Network | None = None,
) -> dict[str, Any]:
    """The layers.json of an engine: every layer resolved to nodes, every node with its fate."""
    resolutions = resolve([layer.raw for layer in layers], graph, network)
    statuses = node_status(resolutions, graph)
    return resolved(engine, backend, precision, layers, graph, resolutions, statuses)


def resolved(
    engine: str,
    backend: str,
    precision: str,
    layers: Sequence[EngineLayer],
    graph: NodeGraph,
    resolutions: Sequence[Resolution],
    statuses: Mapping[str, NodeStatus],
) -> dict[str, Any]:
    """The layers.json of layers that are resolved already; `statuses` in graph order."""
    return {
        "schema_version": SCHEMA_VERSION,
        "engine": engine,
        "backend": backend,
        "precision": precision,
        "layers": [
            {
                "name": r.name,
                "occurrence": r.occurrence,
                "op": layer.raw.op,
                "inputs": layer.raw.inputs if layer.inputs is None else layer.inputs,
                "outputs": layer.raw.outputs if layer.outputs is None else layer.outputs,
                "nodes": r.nodes,
                "modules": r.modules,
                "rule": r.rule,
                "kind": r.kind,
                "why": r.why,
                "precision_in": layer.precision_in,
                "precision_out": layer.precision_out,
                "compute_precision": layer.compute_precision,
                "tactic": layer.tactic,
            }
            for layer, r in zip(layers, resolutions, strict=True)
        ],
        "nodes": [
            {
                "name": node.name,
                "op": node.op,
                "module": node.module,
                "status": status.status,
                "layer": status.layer,
                "why": status.why,
            }
            for node, status in zip(graph.nodes, statuses.values(), strict=True)
        ],
    }


def load(path: Path) -> dict[str, Any]:
    """Read a layers.json of ours. Raises InputError for a missing, broken or foreign file."""
    layers = documents.checked(path, documents.Layers)
    version = layers.get("schema_version", SCHEMA_VERSION)
    if version != SCHEMA_VERSION:
        raise InputError(
            f"layers.json has schema version {version!r}, this layerline reads {SCHEMA_VERSION}",
            file=path,
            fix="build the engine again",
        )
    return layers
