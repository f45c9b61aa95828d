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

A kernel that writes an input or a parameter anew (in another layout) prepares it for the calls that
read it.

What was computed again is work: inductor inlines cheap nodes into every kernel that reads them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..core.nodes import Node, NodeGraph
from ..core.resolve import NodeStatus, RawLayer, Resolution
from ..core.tensor_types import FLOATS, precision_of
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
    r"|(mkldnn|cudnn)_rnn\w*"
)
_ATTENTION = "scaled_dot_product"
_GENERATED = ("cpp_", "triton_", "cuda_fused_")
# A parameter of so many elements is a constant in the code (torch/_inductor/graph.py).
_INLINED = 8
_NUMBERED = re.compile(r"(_default)?(_\d+)?$")
_EXTERN = re.compile(
    r"^(extern_kernels\.|(torch\.ops\.)?\w+(\.|::)|aoti_torch_(cpu|cuda)_|aoti_torch_)(?P<op>\w+?)"
    r"(_out)?(\.\w+)?$"
)


@dataclass(frozen=True)
class Graph:
    """The captured graph: its nodes under our names, and by the names that torch gave them;
    `given`: its tensors that no node makes, by their names in the graph of the code."""

    nodes: NodeGraph
    names: Mapping[str, str]
    given: Mapping[str, str] = field(default_factory=dict)

    def is_constant(self, post: str) -> bool:
        """Whether a node of the code's graph is a parameter whose values are in the code."""
        shape = self.nodes.shape(self.given[post]) if post in self.given else None
        return shape is not None and len(shape) < 2 and math.prod(shape) <= _INLINED

    def dtype(self, tensor: str) -> str | None:
        """The type of a tensor, as ``fp32``; None where it is no tensor or not known."""
        about = self.nodes.tensors.get(tensor)
        return None if about is None else precision_of(about["dtype"]) or about["dtype"]


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
    extern = set(_captured(elsewhere, before, graph))
    whole = set(_captured((node for node in elsewhere if _ATTENTION in node), before, graph))
    types = _Types(graph, extern, whole)
    layers, resolutions = [], []
    done: set[str] = set()
    for kernel in kernels:
        computed = own.get(kernel) or _others(posts[kernel], elsewhere, graph)
        nodes = _captured(computed, before, graph, extern)
        here = computed if kernel in own else [p for p in computed if p not in elsewhere]
        products = [p for p in here if _PRODUCT.fullmatch(operator_of(p).strip("_"))]
        multiplied = _captured(products, before, graph)
        if kernel not in own and multiplied:
            read = done & _ancestors(multiplied, graph.nodes)
            nodes = tuple(n for n in nodes if n in multiplied or n not in read)
        layers.append(
            EngineLayer(
                RawLayer(name=kernel, op=_name(kernel)),
                precision_in=types.read(nodes, done),
                precision_out=types.written(nodes[-1:]),
                compute_precision=types.written(multiplied),
                tactic="extern call" if kernel in own else "generated kernel",
            )
        )
        done.update(nodes)
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


def _others(posts: Sequence[str], elsewhere: Collection[str], graph: Graph) -> list[str]:
    """The nodes that a generated kernel computes; where all are computed by extern calls it
    prepares what these read."""
    here = [p for p in posts if p not in elsewhere and not graph.is_constant(p)]
    working = [p for p in here if not is_passive(p)]
    return working or _working(posts)


def _working(names: Sequence[str]) -> list[str]:
    """The nodes that compute something; all where none does."""
    return [n for n in names if not is_passive(n)] or list(names)


def _captured(
    posts: Iterable[str],
    before: Mapping[str, Sequence[str]],
    graph: Graph,
    extern: Collection[str] = (),
) -> tuple[str, ...]:
    """Our names of the captured nodes that these nodes come from, in graph order; of what is given,
    those that read it: of `extern`, which are calls into libraries, where any of these does."""
    found: set[str] = set()
    for post in posts:
        found |= {graph.names[n] for n in _working(before.get(post) or ()) if n in graph.names}
        readers = graph.nodes.consumers.get(graph.given.get(post, ""), ())
        names = {node.name for node in readers}
        found |= names.intersection(extern) or names
    return tuple(sorted(found, key=graph.nodes.position.__getitem__))


class _Types:
    """The types of what kernels read and write, as the captured graph has them.

    Attention that no call computes as a whole has none: PyTorch's own way for it takes several
    kernels, whose tensors are not in that graph (of fp16 they are fp32). `extern`: the nodes that
    extern calls compute; `whole`: the attention among them that one call does."""

    def __init__(self, graph: Graph, extern: Collection[str], whole: Collection[str]) -> None:
        self._graph, self._extern = graph, extern
        self._torn = {n.name for n in graph.nodes.nodes if _ATTENTION in n.op}.difference(whole)

    def written(self, nodes: Iterable[str]) -> str | None:
        """The type that these nodes write; None where it is not one or not known."""
        named = [self._graph.nodes.by_name[n] for n in nodes if n not in self._torn]
        found = {self._graph.dtype(n.outputs[0]) for n in named}
        return found.pop() if len(found) == 1 else None

    def read(self, nodes: Sequence[str], done: Collection[str]) -> str | None:
        """The widest floating type that a kernel of these nodes reads, else the first; of one that
        reads nothing the first that it writes. None where it is not known.

        `done`: the nodes that earlier kernels computed. Of what a call computes another kernel may
        read a part only, so that the others tell it."""
        if not self._torn.isdisjoint(nodes):
            return None
        own = [n for n in nodes if n not in self._extern] or nodes
        named = [self._graph.nodes.by_name[n] for n in own]
        inputs = (self._source(t, done) for n in named for t in n.inputs)
        read = [t for t in inputs if t is not None and self._maker(t) not in nodes]
        types = [self._graph.dtype(t) for t in read or [n.outputs[0] for n in named]]
        return next((f for f in FLOATS if f in types), next(iter(types), None))

    def _maker(self, tensor: str) -> str | None:
        node = self._graph.nodes.producer.get(tensor)
        return None if node is None else node.name

    def _source(self, tensor: str, done: Collection[str]) -> str | None:
        """What is read where a tensor is: below views and conversions that no kernel made before;
        None where that is a constant or no tensor."""
        nodes = self._graph.nodes
        while (node := nodes.producer.get(tensor)) and node.name not in done:
            operator = node.op.rpartition(".")[2]
            if operator not in PASSIVE or operator == "getitem":
                break
            tensor = next((t for t in node.inputs if t in nodes.tensors), "")
        return tensor if tensor in nodes.tensors else None


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


def _resolution(kernel: str, nodes: tuple[str, ...], graph: NodeGraph) -> Resolution:
    modules = graph.modules_of(nodes)
    if not modules:
        why = "inductor's provenance names no node of a module for it"
        return Resolution(kernel, 0, (), (), "unresolved", "unknown", why)
    why = "inductor's provenance names its nodes"
    return Resolution(kernel, 0, nodes, modules, RULE, "compute", why)
