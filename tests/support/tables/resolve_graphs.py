"""Small graphs for the rules that resolve layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from layerline.core.nodes import Node, NodeGraph
from layerline.core.resolve import Kernel, RawLayer, Resolution, resolve


def graph(
    *nodes: tuple[str, Sequence[str], Sequence[str]],
    inputs: Sequence[str] = ("x",),
    outputs: Sequence[str] = (),
    weights: Sequence[str] = ("w", "b", "c"),
) -> NodeGraph:
    """("module/Op", [inputs], [outputs]) each."""
    return NodeGraph(
        nodes=tuple(
            Node(
                name,
                name.rpartition("/")[2].split("_")[0],
                name.rpartition("/")[0],
                tuple(reads),
                tuple(writes),
            )
            for name, reads, writes in nodes
        ),
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        initializers=frozenset(weights),
    )


def told(
    *nodes: tuple[str, str, str],
    shapes: Mapping[str, Sequence[int]] | None = None,
    outputs: Sequence[str] = (),
) -> NodeGraph:
    """("module/Op", "what it reads", "what it writes") each, from x on; w and c are constants."""
    made = graph(
        *((name, reads.split(), writes.split()) for name, reads, writes in nodes),
        outputs=outputs or nodes[-1][2].split(),
        weights=("w", "c"),
    )
    tensors = {t: {"dtype": "float16", "shape": list(s)} for t, s in (shapes or {}).items()}
    return replace(made, tensors=tensors)


def run(g: NodeGraph, *layers: RawLayer | str, whole: bool = True) -> list[Resolution]:
    """What the layers are; a text is a layer of that name."""
    raw = [x if isinstance(x, RawLayer) else RawLayer(x) for x in layers]
    return resolve(raw, g, whole=whole)


def ran(name: str, kernel: str, grid: tuple[int, int, int] | None = None) -> RawLayer:
    """A layer in which one kernel ran."""
    return RawLayer(name, kernels=(Kernel(kernel, grid),))


def nameless(kernel: str, grid: tuple[int, int, int] | None = None) -> RawLayer:
    """A kernel that ran in a ForeignNode outside of Myelin's ranges."""
    return RawLayer("{ForeignNode[a...z]}", kernels=(Kernel(kernel, grid),), nameless=True)
