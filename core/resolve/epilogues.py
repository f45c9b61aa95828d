"""Rule 3 for what a product's kernel applies to what it writes, and the layer does not name.

TensorRT's products add a bias or another product's result and apply a Relu or GELU to what they
write. A GELU is in the kernel's name (``sm90_xmma_gemm_…_warpgroupsize1x1x1_gelu_beta0_…``); it is
the pattern of nodes that reads the product alone. The others are in no name. Such a node ran in the
product where it can have run nowhere else: all layers from the product to the first that reads the
node's result are known to do something else, because they are products, which apply nothing to what
they read, or kernels of Myelin's own whose names list as many operations as the layers' names.
Seen in captures of TensorRT 8.6.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import order
from .claims import Claims
from .flow import Flow, met
from .kernel_tokens import APPLIED, is_product, tokens
from .model import RawLayer
from .operator_kinds import MATRIX
from .spelling import Speller, base, parts, unnamed_layer

_GELU = re.compile(r"_gemm_\w*_gelu_")
# Myelin's own words for steps, none of which is a sum or an activation of the model.
_OWN = re.compile(r"sr_div|sr_pow|maxred|sub|exp|sum|erf|tanh|mean|sigmoid|slice|(?:.+\.)?cast")


def gelus(layers: Sequence[RawLayer], flow: Flow, claims: Claims) -> None:
    """Claim the GELU whose only source is one product, where the product's kernel says that it
    applies one."""
    products = [
        p
        for p, layer in enumerate(layers)
        if any(_GELU.search(k.name) for k in layer.kernels)
        and any(flow.nodes[i].op in MATRIX for i in claims.of_layer[p])
    ]
    if not products:
        return
    after, before = claims.windows()
    fed: dict[int, list[tuple[int, ...]]] = {}
    for pattern in order.gelus(flow, claims, after):
        sources, reader = _sources(pattern, flow, claims), min(before[i] for i in pattern)
        if len(sources) != 1 or reader <= (p := sources.pop()):
            continue
        if not any(order.is_gelu(layer.name) for layer in layers[p + 1 : reader]):
            fed.setdefault(p, []).append(pattern)
    for p in products:
        patterns = fed.get(p, [])
        if len(patterns) == 1:
            module = flow.nodes[patterns[0][0]].module
            why = (
                f"its kernel's name says that it applies a GELU, and {module} reads what it writes"
            )
            claims.add(p, order.with_moves(patterns[0], flow, claims), "boundary", why)


def _sources(nodes: tuple[int, ...], flow: Flow, claims: Claims) -> set[int]:
    """The layers that run what feeds the nodes from outside, through what nobody claims."""
    sources = met(nodes, flow.producers, lambda i: not claims.claimed(i))
    return {ran for i in sources if (ran := claims.first[i]) is not None}


def unnamed(layers: Sequence[RawLayer], flow: Flow, speller: Speller, claims: Claims) -> None:
    """Claim for products the sums and activations that can have run nowhere else. `layers` must be
    all that ran."""
    after, before = claims.windows()
    products = {p for p, layer in enumerate(layers) if _multiplies(layer)}
    closed = [
        bool(own) and (p in products or _lists_all(layer, speller))
        for p, (layer, own) in enumerate(zip(layers, claims.of_layer, strict=True))
    ]
    for i, node in enumerate(flow.nodes):
        p, reader = after[i], before[i]
        if (
            node.op in APPLIED
            and flow.alive[i]
            and not claims.claimed(i)
            and p in products
            and len(layers[p].kernels) == 1  # split along K, only its second kernel applies it
            and any(flow.nodes[n].op in MATRIX for n in claims.of_layer[p])
            and p < reader < len(layers)
            and all(closed[p + 1 : reader + 1])
            and _applied(i, flow, claims)
        ):
            why = f"{node.name} can have run nowhere else: what follows does something else"
            claims.add(p, (i,), "boundary", why)


def _multiplies(layer: RawLayer) -> bool:
    return bool(layer.kernels) and all(is_product(k) for k in layer.kernels)


def _lists_all(layer: RawLayer, speller: Speller) -> bool:
    """Whether the layer's name has as many parts as its kernel's name has operations, and all of
    them are known."""
    texts = parts(layer.name)
    return (
        len(layer.kernels) == 1
        and len(tokens(layer.kernels[0])) == len(texts)
        and all(speller.find(t) or unnamed_layer(t) or _OWN.fullmatch(base(t)) for t in texts)
    )


def _applied(i: int, flow: Flow, claims: Claims) -> bool:
    """Whether what lies between node i and the layers that feed it can be applied with it."""

    def free(n: int) -> bool:
        return not claims.claimed(n)

    between = (n for n in met([i], flow.producers, free) if free(n))
    return all(flow.nodes[n].op in APPLIED or flow.is_movement(n) for n in between)
