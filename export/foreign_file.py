"""nodes.json of an ONNX file that somebody else exported: its own names, and the modules they tell.

Node names stay as the file has them, because engines built from it carry these. Modules come from
what torch's exporters leave:

- dynamo: the metadata ``pkg.torch.onnx.name_scopes`` of each node (`naming`);
- TorchScript (``dynamo=False``): names ``/layers.0/fc/MatMul_1``, the path of attributes and the
  operator. A child of an nn.Sequential repeats its parent (``/net/net.0/Relu``). A module that is
  called again has a number there (``/fc_1/Gemm``), which cannot be told from a name;
- this project's exporter: names ``layers.0.fc/MatMul_1``.

Nodes without either (an optimiser's, a quantiser's) take the module of their neighbours in the
dataflow, as at export; what has no such neighbour has none. A node without a name is called
``node_of_OUTPUT``, as TensorRT's parser calls it (``getNodeName`` in onnx-tensorrt). Several nodes
of one name get `` #1``, `` #2``: which of them a layer is, the name does not say.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import InputError
from ..core.nodes import SCHEMA_VERSION
from . import naming
from .quiet import gist, quiet


@dataclass(frozen=True)
class Told:
    """nodes.json, and how many of its nodes tell their module themselves, have that of a
    neighbour, have none; how many had no name, or one that others have; how many local functions
    the model has, whose insides are not looked at."""

    document: dict[str, Any]
    known: int
    inferred: int
    unknown: int
    unnamed: int
    repeated: int
    functions: int


def read(path: Path) -> Told:
    """nodes.json of any ONNX file. Weights beside it are not read and need not be there.

    InputError where it is missing or no ONNX model.
    """
    model = _load(path)
    nodes = list(naming.all_nodes(model.graph))
    known: dict[Any, str] = {}
    classes: dict[Any, str | None] = {}
    for node in nodes:
        module, classes[node] = _module(node)
        if module is not None:
            known[node] = module
    found = naming.spread(nodes, known, *naming.neighbours(nodes))
    names, repeated = _names(nodes)
    weights = set(model.graph.initializers)
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": path.name,
        # Before IR version 4 weights were inputs as well.
        "inputs": [v.name for v in model.graph.inputs if v.name not in weights],
        "outputs": [v.name for v in model.graph.outputs],
        "initializers": list(model.graph.initializers),
        "aliases": {},
        "nodes": [
            {
                "name": name,
                "op": node.op_type,
                "module": found.get(node),
                "module_class": classes[node],
                "inputs": ["" if v is None else v.name for v in node.inputs],
                "outputs": [v.name for v in node.outputs],
                "source": None,
            }
            for node, name in zip(nodes, names, strict=True)
        ],
    }
    return Told(
        document,
        known=len(known),
        inferred=len(found) - len(known),
        unknown=len(nodes) - len(found),
        unnamed=sum(not n.name for n in nodes),
        repeated=repeated,
        functions=len(model.functions),
    )


def _load(path: Path) -> Any:
    import onnx_ir as ir
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    fix = "name the .onnx file that the engine was built from"
    if not path.is_file():
        what = "is no file" if path.exists() else "no such file"
        raise InputError(what, file=path, fix=fix)
    try:
        with quiet():
            model = ir.load(path)
    except OSError as e:
        raise InputError(f"cannot be read ({e.strerror or e})", file=path) from None
    except (DecodeError, ValueError, TypeError, RuntimeError) as e:
        raise InputError(f"is no ONNX model ({gist(e)})", file=path, fix=fix) from None
    if not len(model.graph):
        raise InputError("is no ONNX model, or has no node", file=path, fix=fix)
    return model


def _module(node: Any) -> tuple[str | None, str | None]:
    """The module that a node tells itself, and its class; null where it tells none."""
    scopes = _listed(node, naming.SCOPES)
    if len(scopes) < 2:
        return by_name(node.name or "", node.op_type), None
    classes = _listed(node, naming.HIERARCHY)
    known = len(classes) == len(scopes)
    module_class = classes[-2].rpartition(".")[2] if known else None
    return naming.spelled(scopes[-2], own=False), module_class


def _listed(node: Any, key: str) -> list[str]:
    """A list that torch's exporter wrote as text; empty where it is none: the file is anybody's."""
    try:
        found = ast.literal_eval(node.metadata_props.get(key, "[]"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(v) for v in found] if isinstance(found, list) else []


def by_name(name: str, op: str) -> str | None:
    """The module in a name that ends in its operator; null where it is no such name.

    >>> by_name("/net/net.0/Gemm_1", "Gemm"), by_name("h.0/Add", "Add"), by_name("Add_3", "Add")
    ('net.0', 'h.0', None)
    """
    *path, last = name.split("/")
    if not path or not re.fullmatch(rf"{re.escape(op)}(?:_\d+)?", last):
        return None
    found: list[str] = []
    for part in filter(None, path):
        if found and part.startswith(f"{found[-1]}."):
            found[-1] = part
        else:
            found.append(part)
    return ".".join(found)


def _names(nodes: list[Any]) -> tuple[list[str], int]:
    """A name of its own for each node; how many had one that others have."""
    plain = [n.name or f"node_of_{next((o.name for o in n.outputs), n.op_type)}" for n in nodes]
    counts, seen = Counter(plain), Counter[str]()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(name if counts[name] == 1 else f"{name} #{seen[name]}")
    return names, sum(n for n in counts.values() if n > 1)
