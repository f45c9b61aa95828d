"""What goes into the resolver and what comes out; network.json.

network.json is ``{"schema_version": 1, "layers": [{"index", "name", "kind", "inputs", "outputs",
"node"}], "tensors": {name: {"dtype": "float16", "shape": [1, 512, 768]}}}``: TensorRT's network as
its parser left it. `index` is the number in ``(Unnamed Layer* N)``; `node` is the ONNX node's name,
or null where the writer did not know. `tensors` are the network's inputs and what its layers write,
with TensorRT's type by NumPy's name; null is unknown, a dimension that is null open; older files
have none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..documents import forms
from ..errors import InputError
from ..files import read_json

# From the most direct evidence to the least.
RULES = (
    "provenance", "name", "index", "boundary", "order", "elimination", "carrier", "unresolved",
)  # fmt: skip

NETWORK_SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Kernel:
    """A GPU kernel that a capture shows: its name, and the blocks that it was launched with (x, y,
    z), None where they are not known."""

    name: str
    grid: tuple[int, int, int] | None = None


@dataclass(frozen=True)
class RawLayer:
    """One engine layer as a tool wrote it. Lists of layers are in execution order.

    `inputs` and `outputs` are tensor names where the engine tells them, else None. `metadata` is
    TensorRT's Metadata (``[ONNX Layer: ...]``). `occurrence` counts the runs of the same name
    within one iteration, from 0. `kernels` are the GPU kernels that a capture shows in it, empty
    where there is none. `nameless`: one operation that ran inside the ForeignNode called `name`,
    where other operations have names of their own; the name then says nothing of it.
    """

    name: str
    op: str | None = None
    inputs: tuple[str, ...] | None = None
    outputs: tuple[str, ...] | None = None
    metadata: str | None = None
    occurrence: int = 0
    kernels: tuple[Kernel, ...] = ()
    nameless: bool = False


@dataclass(frozen=True)
class Resolution:
    """What one layer is. `nodes` in graph order; `modules` their distinct modules, in that order.

    `rule` is the least direct rule that any of the nodes needed; `node_rules` has the rule of
    each node, in step with `nodes`. `why` is one sentence for the user. An unresolved layer has
    no nodes and no modules. `kind`: "compute", does the nodes' work; "movement", only moves or
    converts data; "unknown", unresolved, and its name does not tell.
    """

    name: str
    occurrence: int
    nodes: tuple[str, ...]
    modules: tuple[str, ...]
    rule: str
    kind: str
    why: str
    node_rules: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeStatus:
    """What became of one ONNX node. `layer` and `occurrence` name the layer that runs it.

    `status`: "executed", a layer of its own; "fused", runs inside a layer together with others, or
    vanished into one; "folded", computed when the engine was built; "missing", should run, and no
    layer is known.
    """

    status: str
    layer: str | None
    occurrence: int | None
    rule: str | None
    why: str


@dataclass(frozen=True)
class NetworkLayer:
    """One layer of TensorRT's network before it was built."""

    index: int
    name: str = ""
    kind: str | None = None
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    node: str | None = None


@dataclass(frozen=True)
class Network:
    """The layers of network.json, by index."""

    layers: Mapping[int, NetworkLayer] = field(default_factory=dict)


def load_network(path: Path) -> Network:
    """Read network.json. Raises InputError for a missing, broken or foreign file."""
    return parse_network(read_json(path), path)


def parse_network(document: Any, file: str | Path | None = None) -> Network:
    """Check a network.json document. Raises InputError, naming the entry."""
    if not isinstance(document, dict) or not isinstance(document.get("layers"), list):
        is_layer_info = isinstance(document, dict) and "Layers" in document
        raise InputError(
            'is not a network.json (no "layers" list)',
            file=file,
            fix="layer information goes to --layer-info" if is_layer_info else "",
        )
    version = document.get("schema_version")
    if version != NETWORK_SCHEMA_VERSION:
        raise InputError(
            f"network.json has schema version {version!r}, "
            f"this layerline reads {NETWORK_SCHEMA_VERSION}",
            file=file,
            fix="build the engine again",
        )
    known = [_known(entry) for entry in document["layers"]]
    network = forms.check({"layers": known}, _NetworkFile, file, "build the engine again")
    layers: dict[int, NetworkLayer] = {}
    for i, layer in enumerate(network.layers):
        if layer.index in layers:
            raise InputError(f"layers[{i}]: the index {layer.index} occurs twice", file=file)
        layers[layer.index] = layer
    return Network(layers)


class _NetworkFile(msgspec.Struct):
    layers: list[NetworkLayer]


def _known(entry: Any) -> Any:
    """An entry without what is null."""
    return {k: v for k, v in entry.items() if v is not None} if isinstance(entry, dict) else entry
