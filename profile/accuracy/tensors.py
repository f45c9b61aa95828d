"""Which ONNX tensors a module reads and writes, by nodes.json and eager's shapes.

A module's output is the tensor that is written inside its subtree and read outside, or an output
of the model, and has the shape of what eager's forward gave; two of that shape are none. Its
inputs are told the same way. No name is compared and nothing is taken by its place in a list.
The exporter folds a batch normalisation into the convolution before it, and the tensor is then the
normalisation's output.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ...core.nodes import Node, NodeGraph

FLOATS = ("float32", "float16", "bfloat16")
_NORMALISES = re.compile("BatchNorm")  # the class, as PyTorch's and most others' are called


@dataclass(frozen=True)
class Eager:
    """A module of the eager model in the order in which it ended; `inputs` and `output`: values,
    None and empty where it was called more than once."""

    path: str
    name: str
    inputs: Sequence[Any]
    output: Any


@dataclass(frozen=True)
class Placed:
    """A module with its tensors in the graph: `output` None where none or several fit, then `why`
    says so. `reads`: every tensor from outside; `inputs`: those of which eager's value is known."""

    module: Eager
    reads: Sequence[str]
    inputs: Mapping[str, Any]
    output: str | None
    why: str = ""


class Source(Protocol):
    """Where the values of an engine's tensors come from: `placed` modules; `ends`: outputs of the
    model; `parts`: a module can be built alone."""

    @property
    def placed(self) -> Sequence[Placed]: ...

    @property
    def ends(self) -> Sequence[str]: ...

    @property
    def parts(self) -> bool: ...

    def same_engine(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Of the engine itself: what it keeps."""

    def second_engine(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Of one in which these are outputs. LayerlineError where it cannot be built."""

    def before(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Of what the engine was built from, run as it is."""

    def alone(self, tensor: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Of an engine of the part that makes it from `given`. LayerlineError as above."""


def place(graph: NodeGraph, tensors: Mapping[str, Any], modules: Iterable[Eager]) -> list[Placed]:
    """The modules with their tensors; `tensors`: types and shapes, of nodes.json."""
    placed = [_place(graph, tensors, m) for m in modules]
    for p in list(placed):
        if _NORMALISES.search(p.module.name) and not any(
            inside(n, p.module.path) for n in graph.nodes
        ):
            placed = _folded(placed, p.module)
    return placed


def _folded(placed: Sequence[Placed], norm: Eager) -> list[Placed]:
    """A batch normalisation without nodes of its own was folded into what made its input: the
    tensor of that module holds what the normalisation gave. By eager's values, which are the same;
    where several tensors have them, none is known."""
    made = [p for p in placed if p.output is not None and _gave(p.module, norm)]
    alone = len({p.output for p in made}) == 1 and norm.output is not None
    why = f"{norm.path} is folded into it, or into another"

    def with_it(p: Placed) -> Placed:
        if alone:
            return replace(p, module=replace(p.module, output=norm.output))
        return replace(p, output=None, why=why)

    return [with_it(p) if any(p is m for m in made) else p for p in placed]


def _gave(module: Eager, norm: Eager) -> bool:
    """Whether a normalisation read what another module gave, by value."""
    return (
        module.path != norm.path
        and len(norm.inputs) == 1
        and module.output is not None
        and module.output.shape == norm.inputs[0].shape
        and bool((module.output == norm.inputs[0]).all())
    )


def references(placed: Iterable[Placed]) -> dict[str, Any]:
    """Eager's value of every tensor of which one is known, outputs of modules before inputs."""
    found: dict[str, Any] = {}
    for p in placed:
        if p.output is not None:
            found.setdefault(p.output, p.module.output)
    for p in placed:
        for name, value in p.inputs.items():
            found.setdefault(name, value)
    return found


def inside(node: Node, path: str) -> bool:
    """Whether a node belongs to the subtree of a module."""
    return not path or node.module == path or (node.module or "").startswith(path + ".")


def _place(graph: NodeGraph, tensors: Mapping[str, Any], module: Eager) -> Placed:
    nodes = [n for n in graph.nodes if inside(n, module.path)]
    within = {n.name for n in nodes}
    written = {t for n in nodes for t in n.outputs if t}
    reads = [
        t
        for t in dict.fromkeys(t for n in nodes for t in n.inputs if t)
        if t not in written and (t in graph.producer or t in graph.inputs)
    ]
    leaves = [
        t
        for t in dict.fromkeys(t for n in nodes for t in n.outputs if t)
        if t in graph.outputs or any(c.name not in within for c in graph.consumers.get(t, ()))
    ]
    shapes = {t: _shape(tensors.get(t)) for t in {*reads, *leaves}}
    inputs: dict[str, Any] = {}
    for value in module.inputs:
        alike = [t for t in reads if shapes[t] == value.shape]
        twins = [v for v in module.inputs if v.shape == value.shape]
        if len(alike) == len(twins) == 1:
            inputs[alike[0]] = value
    if module.output is None:
        return Placed(module, reads, inputs, None, "no one output of eager's to compare with")
    fitting = [t for t in leaves if shapes[t] == module.output.shape]
    if len(fitting) == 1:
        return Placed(module, reads, inputs, fitting[0])
    why = f"{len(fitting)} tensors fit" if fitting else "no tensor of its shape leaves it"
    return Placed(module, reads, inputs, None, why)


def _shape(described: Any) -> tuple[int | None, ...] | None:
    """The shape of a floating tensor; None for others, and where it is unknown."""
    if not described or described.get("dtype") not in FLOATS or described.get("shape") is None:
        return None
    return tuple(described["shape"])
