"""Small graphs for the rules that resolve layers."""

from __future__ import annotations

from collections.abc import Sequence

from layerline.core.nodes import Node, NodeGraph


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
