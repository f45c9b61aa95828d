"""nodes.json: every ONNX node, the module it came from, and the graph they form.

``{"schema_version": 1, "model": str, "opset": 18, "inputs": [...], "outputs": [...],
"aliases": {path: [other paths]}, "initializers": [...],
"tensors": {name: {"dtype": "float16", "shape": [1, 512, 768]}},
"attributes": {node: {"reduction": "add"}},
"nodes": [{"name", "op", "module", "module_class", "inputs", "outputs", "source"}]}``

`name` is ``module.path/OpType[_n]``; unique, also after ``.`` and ``*`` become ``_``. The root
module's path is the empty string, its nodes are named ``/OpType``. Only `schema_version` and
`nodes` with name, op, module, inputs and outputs are required. `module` null means that the
writer did not know; the exporter never writes that. A tensor that is not in `tensors` has an
unknown type or shape, a dimension that is null is open; older files have no `tensors`. `attributes`
are those of nodes that are a number or text; older files have none, and no `opset`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .documents import forms
from .errors import InputError
from .files import read_json

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Node:
    """One ONNX node. Tensor names in `inputs` may be "" for an optional input left out."""

    name: str
    op: str
    module: str | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    module_class: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class NodeGraph:
    """The nodes in graph (topological) order, with the dataflow between them."""

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    initializers: frozenset[str] = frozenset()
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    tensors: dict[str, Any] = field(default_factory=dict)

    def shape(self, tensor: str) -> tuple[int, ...] | None:
        """The tensor's shape; None where it is not known, or a dimension is open."""
        about = self.tensors.get(tensor)
        shape = about.get("shape") if isinstance(about, dict) else None
        if not isinstance(shape, list) or not all(type(d) is int and d >= 0 for d in shape):
            return None
        return tuple(shape)

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """Node by its exact name."""
        return {n.name: n for n in self.nodes}

    @cached_property
    def position(self) -> dict[str, int]:
        """Node name to its place in graph order."""
        return {n.name: i for i, n in enumerate(self.nodes)}

    @cached_property
    def producer(self) -> dict[str, Node]:
        """Tensor name to the node that writes it. Graph inputs and constants have none."""
        return {t: n for n in self.nodes for t in n.outputs if t}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """Tensor name to the nodes that read it, in graph order."""
        found: dict[str, list[Node]] = {}
        for n in self.nodes:
            for t in dict.fromkeys(n.inputs):
                if t:
                    found.setdefault(t, []).append(n)
        return {t: tuple(ns) for t, ns in found.items()}

    def modules_of(self, names: tuple[str, ...] | list[str]) -> tuple[str, ...]:
        """The distinct modules of the nodes named, in graph order; nodes without one left out."""
        wanted = set(names)
        ordered = sorted(wanted & self.by_name.keys(), key=self.position.__getitem__)
        found = (self.by_name[n].module for n in ordered)
        return tuple(dict.fromkeys(m for m in found if m is not None))


def sanitised(name: str) -> str:
    """A node's name as Myelin spells it: ``.`` and ``*`` become ``_``."""
    return name.replace(".", "_").replace("*", "_")


def parse(document: Any, file: str | Path | None = None) -> NodeGraph:
    """Check a nodes.json document and give its graph. Raises InputError, naming the entry."""
    if not isinstance(document, dict) or not isinstance(document.get("nodes"), list):
        raise InputError('is not a nodes.json (no "nodes" list)', file=file)
    if isinstance(document.get("layers"), list) and "backend" in document:
        raise InputError(
            "is a layers.json, layerline's own list of an engine's layers, not a nodes.json",
            file=file,
            fix="give the nodes.json of the export (RUN/export/nodes.json)",
        )
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InputError(
            f"nodes.json has schema version {version!r}, this layerline reads {SCHEMA_VERSION}",
            file=file,
            fix="export the model again",
        )
    known = {k: v for k, v in document.items() if v is not None}
    if not isinstance(known.get("tensors"), dict):
        known.pop("tensors", None)
    graph = forms.check(known, NodeGraph, file, "export the model again")
    seen: set[str] = set()
    for i, node in enumerate(graph.nodes):
        if node.name in seen:
            raise InputError(f"nodes[{i}]: the name {node.name} occurs twice", file=file)
        seen.add(node.name)
    return graph


def load(path: Path) -> NodeGraph:
    """Read nodes.json. Raises InputError for a missing, broken or foreign file."""
    if path.suffix == ".onnx" and path.is_file():
        raise InputError(
            "is an ONNX model, not its nodes.json",
            file=path,
            fix=f"make that with `layerline nodes {path}`",
        )
    if not path.exists():
        fix = "layerline export RUN writes a run's, layerline nodes MODEL.onnx another model's"
        raise InputError("no such file", file=path, fix=fix)
    return parse(read_json(path, fix="make it again (layerline export, or layerline nodes)"), path)
