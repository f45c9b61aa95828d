"""From inductor's provenance to an engine's layers: which nodes and modules each kernel is of.

`cppCodeToPost` of ``inductor_provenance_tracking_node_mappings.json`` (torch/_inductor/debug.py)
maps ``NAME:PLACE``, a kernel or an extern call at its place in the generated code, to nodes of the
graph that code was generated from; `postToPre` maps these to nodes of the captured graph, which
know their module. Both list more than was computed there, and what was not is left out:

- A node that an extern call computes is computed there alone. Inductor also lists it with the
  kernel that made one of its inputs, and lists with it what that kernel computed.
- A generated product is listed with what its input was computed from. What an earlier kernel
  computed of that, it read.
- A view, a constant, a dropout or conversion that does nothing is no work, beside nodes that are.

What was computed again is work: inductor inlines cheap nodes into every kernel that reads them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.nodes import Node, NodeGraph
from ..core.resolve import NodeStatus, RawLayer, Resolution
from .layers import EngineLayer

RULE = "provenance"
# Operators that compute nothing, by the names that nodes of either graph have.
PASSIVE = frozenset(
    {
        "_unsafe_view", "alias", "arange", "as_strided", "contiguous", "detach", "detach_",
        "diagonal", "dropout", "empty", "expand", "expand_as", "flatten", "full", "full_default",
        "getitem", "iota", "lift_fresh_copy", "movedim", "narrow", "new_ones", "new_zeros", "ones",
        "permute", "reshape", "scalar_tensor", "select", "slice", "split", "split_with_sizes",
        "chunk", "squeeze", "sym_size", "t", "to", "transpose", "unbind", "unflatten", "unsqueeze",
        "view", "zeros",
    }
)  # fmt: skip
# Operators that multiply matrices: their type is the one that the kernel computes in.
_PRODUCT = re.compile(
    r"addmm|addbmm|baddbmm|bmm|mm|matmul|linear\w*|(mkldnn_)?convolution\w*|scaled_dot_product\w*"
)
_ATTENTION = "scaled_dot_product"
_GENERATED = ("cpp_", "triton_", "cuda_fused_")
_NUMBERED = re.compile(r"(_default)?(_\d+)?$")
_EXTERN = re.compile(
    r"^(extern_kernels\.|(torch\.ops\.)?\w+(\.|::)|aoti_torch_(cpu|cuda)_|aoti_torch_)(?P<op>\w+?)"
    r"(_out)?(\.\w+)?$"
)


@dataclass(frozen=True)
class Graph:
    """The captured graph: its nodes under our names, and by the names that torch gave them;
    `dtypes`: of what each writes, as ``fp32``, by our name."""

    nodes: NodeGraph
    names: Mapping[str, str]
    dtypes: Mapping[str, str]


def operator_of(node: str) -> str:
    """The operator that a node is named after: ``add`` of ``add_12``."""
    return _NUMBERED.sub("", node)


def is_passive(node: str) -> bool:
    """Whether a node computes nothing, by its name."""
    return operator_of(node) in PASSIVE


def called(name: str) -> str:
    """What a call is of: the name of a generated kernel, the operator of an extern call. Code,
    provenance and profiles spell the latter in several ways."""
    found = _EXTERN.match(name)
    return name if found is None else found["op"]


def is_extern(kernel: str) -> bool:
    """Whether a name is of a call into a library, not of a generated kernel."""
    return not kernel.startswith(_GENERATED)


def listed(
    mappings: Mapping[str, Any], graph: Graph, kernels: Sequence[str]
) -> tuple[list[EngineLayer], list[Resolution]]:
    """The layers of an engine, named ``NAME:PLACE``, and what each is.

    `kernels`: the kernels and extern calls as the generated code runs them. One without provenance,
    or whose nodes have no module, is unresolved.
    """
    known: Mapping[str, Sequence[str]] = mappings.get("cppCodeToPost") or {}
    posts = {kernel: known.get(kernel, ()) for kernel in kernels}
    before: Mapping[str, Sequence[str]] = mappings.get("postToPre") or {}
    own = {k: _own(k, posts[k]) for k in kernels if is_extern(_name(k))}
    elsewhere = {node for nodes in own.values() for node in nodes}
    graph = replace(graph, dtypes=_written(elsewhere, before, graph))
    layers, resolutions = [], []
    done: set[str] = set()
    for kernel in kernels:
        computed = own.get(kernel) or _others(posts[kernel], elsewhere)
        nodes = _captured(computed, before, graph)
        products = [p for p in computed if _PRODUCT.fullmatch(operator_of(p).strip("_"))]
        multiplied = _captured(products, before, graph)
        if kernel not in own and multiplied:
            read = done & _ancestors(multiplied, graph.nodes)
            nodes = tuple(n for n in nodes if n in multiplied or n not in read)
        done.update(nodes)
        layers.append(_layer(kernel, nodes, multiplied, graph))
        resolutions.append(_resolution(kernel, nodes, graph.nodes))
    return layers, resolutions


def statuses(resolutions: Sequence[Resolution], graph: NodeGraph) -> dict[str, NodeStatus]:
    """What became of every node of the captured graph."""
    runs: dict[str, list[Resolution]] = {}
    for r in resolutions:
        for name in r.nodes:
            runs.setdefault(name, []).append(r)
    return {node.name: _status(node, runs.get(node.name, [])) for node in graph.nodes}


def _status(node: Node, runs: Sequence[Resolution]) -> NodeStatus:
    if runs:
        first = min(runs, key=lambda r: len(r.nodes))
        others = len(first.nodes) - 1
        again = f", and is computed again in {len(runs) - 1} others" if len(runs) > 1 else ""
        status = "fused" if others else "executed"
        why = f"runs together with {others} other nodes{again}" if others else "an own layer"
        return NodeStatus(status, first.name, first.occurrence, RULE, why)
    if operator_of(node.op.rpartition(".")[2]) in PASSIVE:
        return NodeStatus("folded", None, None, None, "computes nothing: a view or a constant")
    return NodeStatus("missing", None, None, None, "no kernel names it: folded, unused, or merged")


def _name(kernel: str) -> str:
    return kernel.rpartition(":")[0]


def _own(kernel: str, posts: Sequence[str]) -> list[str]:
    """The nodes that an extern call computes: those named after its operator. Where none is, what
    is no view."""
    if len(posts) < 2:
        return list(posts)
    call = called(_name(kernel)).strip("_")
    named = {p: operator_of(p).strip("_") for p in posts}
    fitting = {p: op for p, op in named.items() if op and op in call}
    longest = max(map(len, fitting.values()), default=0)
    return [p for p, op in fitting.items() if len(op) == longest] or _working(posts)


def _others(posts: Sequence[str], elsewhere: Collection[str]) -> list[str]:
    """The nodes that a generated kernel computes; where all are computed by extern calls it
    prepares what these read."""
    here = [p for p in posts if p not in elsewhere]
    working = [p for p in here if not is_passive(p)]
    return working or _working(posts)


def _working(names: Sequence[str]) -> list[str]:
    """The nodes that compute something; all where none does."""
    return [n for n in names if not is_passive(n)] or list(names)


def _captured(
    posts: Iterable[str], before: Mapping[str, Sequence[str]], graph: Graph
) -> tuple[str, ...]:
    """Our names of the captured nodes that these nodes come from, in graph order."""
    found: set[str] = set()
    for post in posts:
        found |= {graph.names[n] for n in _working(before.get(post) or ()) if n in graph.names}
    return tuple(sorted(found, key=graph.nodes.position.__getitem__))


def _written(
    extern: Iterable[str], before: Mapping[str, Sequence[str]], graph: Graph
) -> dict[str, str]:
    """`graph.dtypes` without attention that no call computes as a whole. PyTorch's own way for it
    takes several kernels, whose tensors are not in the captured graph: of fp16 they are fp32."""
    whole = _captured((node for node in extern if _ATTENTION in node), before, graph)
    torn = {n.name for n in graph.nodes.nodes if _ATTENTION in n.op} - set(whole)
    return {name: dtype for name, dtype in graph.dtypes.items() if name not in torn}


def _ancestors(names: Iterable[str], graph: NodeGraph) -> set[str]:
    """The nodes from which these are computed."""
    found: set[str] = set()
    coming = list(names)
    while coming:
        for tensor in graph.by_name[coming.pop()].inputs:
            node = graph.producer.get(tensor)
            if node is not None and node.name not in found:
                found.add(node.name)
                coming.append(node.name)
    return found


def _layer(
    kernel: str, nodes: Sequence[str], multiplied: Sequence[str], graph: Graph
) -> EngineLayer:
    products = {graph.dtypes[n] for n in multiplied if n in graph.dtypes}
    first, last = (graph.dtypes.get(nodes[i]) for i in (0, -1)) if nodes else (None, None)
    kind = "extern call" if is_extern(_name(kernel)) else "generated kernel"
    return EngineLayer(
        RawLayer(name=kernel, op=_name(kernel)),
        precision_in=first,
        precision_out=last,
        compute_precision=products.pop() if len(products) == 1 else None,
        tactic=kind,
    )


def _resolution(kernel: str, nodes: tuple[str, ...], graph: NodeGraph) -> Resolution:
    modules = graph.modules_of(nodes)
    if not modules:
        why = "inductor's provenance names no node of a module for it"
        return Resolution(kernel, 0, (), (), "unresolved", "unknown", why)
    why = "inductor's provenance names its nodes"
    return Resolution(kernel, 0, nodes, modules, RULE, "compute", why)
