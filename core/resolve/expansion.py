"""Rule 3 for the reverse of fusion: one node that an engine runs as several layers.

ONNX Runtime inlines functions (an fp16 Softmax becomes ReduceMax, Sub, Exp, ReduceSum, Div) and
splits nodes when it moves transposes. Such layers are linked by tensors that are not the model's;
together they have boundaries that are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from . import boundary
from .boundary import Tensors
from .claims import Claims
from .flow import Flow, connected
from .model import RawLayer


def expanded(layers: Sequence[RawLayer], flow: Flow, tensors: Tensors, claims: Claims) -> None:
    """Claim, for layers linked by strange tensors, the one working node that they make up."""
    for members in _linked(layers, tensors, claims):
        inside = {t for p in members for t in layers[p].outputs or ()}
        reads = [t for p in members for t in layers[p].inputs or () if t not in inside]
        writes = [t for p in members for t in layers[p].outputs or ()]
        whole = RawLayer("", inputs=tuple(dict.fromkeys(reads)), outputs=tuple(writes))
        region = boundary.between(-1, whole, flow, tensors, claims)
        working = [i for i in region.nodes if not flow.is_movement(i)]
        if len(working) == 1 and not claims.claimed(working[0]):
            name = flow.nodes[working[0]].name
            why = f"one of {len(members)} layers that together compute {name}"
            for p in members:
                claims.add(p, region.nodes, "boundary", why)
    _finishing(layers, flow, tensors, claims)


def _linked(layers: Sequence[RawLayer], tensors: Tensors, claims: Claims) -> Iterator[list[int]]:
    """Groups of two and more layers without nodes that hand each other strange tensors."""
    writer = {
        t: p
        for p, layer in enumerate(layers)
        if not claims.of_layer[p]
        for t in layer.outputs or ()
        if t and tensors.model_name(t) is None
    }
    pairs = (
        (p, writer[t])
        for p, layer in enumerate(layers)
        if not claims.of_layer[p]
        for t in layer.inputs or ()
        if t in writer
    )
    return (group for group in connected(range(len(layers)), pairs) if len(group) > 1)


def _finishing(layers: Sequence[RawLayer], flow: Flow, tensors: Tensors, claims: Claims) -> None:
    """A layer that writes a node's output from what the node's own layer made, finishes it."""
    writer = tensors.writer
    for p, layer in enumerate(layers):
        if claims.of_layer[p]:
            continue
        sources = {writer[t] for t in layer.inputs or () if t in writer}
        made = {flow.writer[t] for t in layer.outputs or () if t in flow.writer}
        if len(sources) != 1 or len(made) != 1:
            continue
        (source,), (node,) = sources, made
        if node in claims.of_layer[source] and not any(
            tensors.model_name(t) for t in layer.inputs or () if t in writer
        ):
            why = f"finishes {flow.nodes[node].name}, which the layer before began"
            claims.add(p, (node,), "boundary", why)
