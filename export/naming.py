"""One name, all the way down: every ONNX node is renamed to ``module.path/OpType[_n]``.

torch's exporter stores with each node the modules that were running
(``pkg.torch.onnx.name_scopes``, outermost first, the operator itself last). Graph rewrites lose
it for a few nodes; these take it from their neighbours in the dataflow. Runs on the graph of
`onnx_ir`, which it changes in place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..core.errors import CheckFailed
from ..core.module_paths import common_parent
from ..core.nodes import SCHEMA_VERSION, Node, sanitised

if TYPE_CHECKING:
    from torch import nn

SCOPES = "pkg.torch.onnx.name_scopes"
HIERARCHY = "pkg.torch.onnx.class_hierarchy"
_TRACE = "pkg.torch.onnx.stack_trace"
# A module list that was sliced (`for layer in self.layers[2:]`) appears as `layers.slice(2, …)`.
_SLICE = re.compile(r"\.slice\((None|\d+), (?:None|-?\d+), (?:None|1)\)\.(\d+)")
# A module that is called again appears as `layer@1`; strict tracing prefixes `L__self___`.
_AGAIN = re.compile(r"@\d+")
_PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
# The keys of an entry of nodes.json.
_NODE = ("name", "op", "module", "module_class", "inputs", "outputs", "source")
_SELF = re.compile(r"^L(?:__self__|\['self'\])_?(?:_modules)?[._]?")


@dataclass(frozen=True)
class ModuleTree:
    """The modules of a model: path to class, in ``named_modules()`` order, and aliases.

    `aliases` maps a path to the other paths at which the same module is registered.
    """

    classes: dict[str, str]
    aliases: dict[str, tuple[str, ...]]

    @classmethod
    def of(cls, model: nn.Module) -> ModuleTree:
        """Read the tree of a model."""
        classes = {path: type(module).__name__ for path, module in model.named_modules()}
        return cls(classes, other_names(model.named_modules(remove_duplicate=False)))

    def canonical(self, scope: str) -> str | None:
        """The path in ``named_modules()`` for a scope as the exporter spells it, or None."""
        for candidate in (spelled(scope), spelled(scope, own=False)):
            if candidate in self.classes:
                return candidate
            for kept, others in self.aliases.items():
                if candidate in others:
                    return kept
        return None

    def module_of(self, scopes: Iterable[str]) -> str | None:
        """The innermost module of a chain of scopes, outermost first; None if none is known."""
        paths = map(self.canonical, reversed(list(scopes)))
        return next((path for path in paths if path is not None), None)


def other_names(named: Iterable[tuple[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The first name of each object that has several, and its others, in their order."""
    names: dict[int, list[str]] = {}
    for name, thing in named:
        names.setdefault(id(thing), []).append(name)
    return {first: tuple(others) for first, *others in names.values() if others}


def spelled(scope: str, *, own: bool = True) -> str:
    """A module's path as ``named_modules()`` has it, of a scope as the exporter spells it.

    `own` False: without what strict tracing puts before it, too.
    """
    path = _AGAIN.sub("", scope)
    path = _SLICE.sub(lambda m: f".{int(m[1]) + int(m[2]) if m[1] != 'None' else m[2]}", path)
    return path if own else _SELF.sub("", path)


@dataclass(frozen=True)
class Naming:
    """The named nodes in graph order; how many modules came from neighbours in the dataflow."""

    nodes: tuple[Node, ...]
    inferred: int


def all_nodes(graph: Any) -> Iterator[Any]:
    """Every node in graph order, those of subgraphs (If, Loop) right after their owner."""
    for node in graph:
        yield node
        for attribute in node.attributes.values():
            kind = str(attribute.type)
            if kind == "GRAPH":
                yield from all_nodes(attribute.as_graph())
            elif kind == "GRAPHS":
                for inner in attribute.as_graphs():
                    yield from all_nodes(inner)


def name_nodes(model: Any, tree: ModuleTree) -> Naming:
    """Rename the nodes of a freshly exported `onnx_ir.Model` by the exporter's scopes."""
    nodes = list(all_nodes(model.graph))
    known: dict[Any, str] = {}
    sources: dict[Any, str | None] = {}
    for node in nodes:
        scopes = _scopes(node)
        module = _folded_into(node, tree)
        if module is None and scopes:
            module = tree.module_of(scopes[:-1])
        if module is not None:
            known[node] = module
        sources[node] = _source(node)
    return _rename(nodes, known, sources, tree)


def _folded_into(node: Any, tree: ModuleTree) -> str | None:
    """The module of the weight of a product that a batch normalisation was folded into: the
    exporter gives it the scope of the normalisation. None for every other node."""
    if node.op_type not in _PRODUCTS or "batch_norm" not in (_source(node) or ""):
        return None
    weight = node.inputs[1] if len(node.inputs) > 1 else None
    return None if weight is None else tree.canonical((weight.name or "").rpartition(".")[0])


def rename_converted(model: Any, before: Iterable[Node], tree: ModuleTree) -> Naming:
    """Name the nodes again after a conversion that kept names and added nodes without."""
    by_name = {n.name: n for n in before}
    nodes = list(all_nodes(model.graph))
    old = {node: by_name[node.name] for node in nodes if node.name in by_name}
    known = {node: entry.module for node, entry in old.items() if entry.module is not None}
    return _rename(nodes, known, {node: entry.source for node, entry in old.items()}, tree)


def _rename(
    nodes: list[Any],
    known: dict[Any, str],
    sources: Mapping[Any, str | None],
    tree: ModuleTree,
) -> Naming:
    modules = spread(nodes, known, *neighbours(nodes))
    names = unique_names((modules.get(node, ""), node.op_type) for node in nodes)
    named = []
    for node, name in zip(nodes, names, strict=True):
        node.name = name
        module = modules.get(node, "")  # without a module on either side: the root's
        named.append(node_of(node, name, module, tree.classes[module], sources.get(node)))
    return Naming(tuple(named), len(nodes) - len(known))


def node_of(
    node: Any, name: str, module: str | None, module_class: str | None, source: str | None = None
) -> Node:
    """The entry of nodes.json for a node of `onnx_ir`."""
    return Node(
        name=name,
        op=node.op_type,
        module=module,
        module_class=module_class,
        inputs=tuple("" if v is None else v.name for v in node.inputs),
        outputs=tuple(v.name for v in node.outputs),
        source=source,
    )


def neighbours(nodes: list[Any]) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
    """The nodes that read what each node writes, and those that write what it reads."""
    consumers = {n: [use.node for o in n.outputs for use in o.uses()] for n in nodes}
    producers = {
        n: [p for i in n.inputs if i is not None and (p := i.producer()) is not None] for n in nodes
    }
    return consumers, producers


def spread(
    nodes: list[Any],
    known: Mapping[Any, str],
    consumers: Mapping[Any, list[Any]],
    producers: Mapping[Any, list[Any]],
) -> dict[Any, str]:
    """A module for every node that has one, or else neighbours with one in the dataflow.

    What reads a node's outputs decides (a cast or split belongs to the module that needed it),
    several modules by what encloses them all; without known readers, what the node reads does.
    """
    return carried(nodes, carried(nodes[::-1], known, consumers), producers)


def carried(
    order: Iterable[Any], known: Mapping[Any, str], beside: Mapping[Any, list[Any]]
) -> dict[Any, str]:
    """The module around the nearest known nodes in one direction."""
    modules = dict(known)
    for node in order:
        if node not in modules:
            around = [modules[n] for n in beside[node] if n in modules]
            if around:
                modules[node] = common_parent(around)
    return modules


def unique_names(entries: Iterable[tuple[str, str]]) -> list[str]:
    """``module/Op[_n]`` for each (module, op); unique also after ``.`` and ``*`` become ``_``."""
    taken: set[str] = set()
    counts: dict[str, int] = {}
    names = []
    for module, op in entries:
        base = f"{module}/{op}"
        number = counts.get(base, 0)
        name = base if number == 0 else f"{base}_{number}"
        while sanitised(name) in taken:
            number += 1
            name = f"{base}_{number}"
        counts[base] = number + 1
        taken.add(sanitised(name))
        names.append(name)
    return names


def strip_metadata(model: Any) -> None:
    """Remove the exporter's metadata: its stack traces carry the paths of this machine."""
    model.metadata_props.clear()
    model.graph.metadata_props.clear()
    for value in (*model.graph.inputs, *model.graph.initializers.values()):
        value.metadata_props.clear()
    for node in all_nodes(model.graph):
        node.metadata_props.clear()
        for value in node.outputs:
            value.metadata_props.clear()


def name_initializers(model: Any, module: nn.Module) -> None:
    """A weight that is shared keeps one name, that of ``named_parameters()``, not a later alias."""
    initializers = model.graph.initializers
    for name, aliases in other_names(module.named_parameters(remove_duplicate=False)).items():
        for alias in aliases:
            if name not in initializers and alias in initializers:
                initializers[alias].name = name


def document(model_name: str, model: Any, naming: Naming, tree: ModuleTree) -> dict[str, Any]:
    """nodes.json of a model that was exported here.

    Raises CheckFailed where a node has no module of the model, or two nodes share a name.
    """
    strays = [n.name for n in naming.nodes if n.module not in tree.classes]
    if strays or len({sanitised(n.name) for n in naming.nodes}) != len(naming.nodes):
        raise CheckFailed(
            f"{model_name}: nodes without a module or a name of their own "
            f"({', '.join(strays[:3]) or 'equal names'})",
            fix="please report this model",
        )
    return nodes_json(model_name, model, naming.nodes, tree.aliases)


def nodes_json(
    model_name: str, model: Any, nodes: Iterable[Node], aliases: Mapping[str, Iterable[str]]
) -> dict[str, Any]:
    """nodes.json, as `core.nodes` describes it, of an `onnx_ir.Model` and its named nodes."""
    weights = set(model.graph.initializers)
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model_name,
        "opset": model.graph.opset_imports.get(""),
        # Before IR version 4 weights were inputs as well.
        "inputs": [v.name for v in model.graph.inputs if v.name not in weights],
        "outputs": [v.name for v in model.graph.outputs],
        "initializers": list(model.graph.initializers),
        "aliases": {k: list(v) for k, v in aliases.items()},
        "nodes": [{key: getattr(node, key) for key in _NODE} for node in nodes],
    }


def _scopes(node: Any) -> list[str]:
    text = node.metadata_props.get(SCOPES)
    return [] if text is None else [str(s) for s in ast.literal_eval(text)]


_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>\S+)')


def _source(node: Any) -> str | None:
    """The torch operator and the line of the model's code, e.g. ``aten.add (model.py:12 f)``."""
    hierarchy = node.metadata_props.get(HIERARCHY)
    if hierarchy is None:
        return None
    operator = str(ast.literal_eval(hierarchy)[-1]).removesuffix(".default")
    frames = list(_FRAME.finditer(node.metadata_props.get(_TRACE, "")))
    if not frames:
        return operator
    last = frames[-1]
    file = PurePosixPath(last["file"]).name
    return f"{operator} ({file}:{last['line']} {last['function']})"
