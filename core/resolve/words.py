"""Rule 3 where a layer's own words, or its kernel's, say what it also computes.

Myelin spells a softmax that it takes apart by its steps (``maxred+sub+exp__mye164443+sum+sr_div``)
and names no node for it; TensorRT's products apply a GELU to what they write and say so in the
kernel's name alone (``sm90_xmma_gemm_…_warpgroupsize1x1x1_gelu_beta0_…``). Seen in captures of
TensorRT 8.6. Such a word is no name: it counts only where exactly one unclaimed node, or pattern of
nodes, can have run there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import order
from .claims import Claims
from .flow import Flow, met
from .model import RawLayer
from .operator_kinds import MATRIX
from .spelling import base, parts

SOFTMAX = frozenset({"maxred", "exp", "sum"})
_GELU_EPILOGUE = re.compile(r"_gemm_\w*_gelu_")


def spelled_out(layers: Sequence[RawLayer], flow: Flow, claims: Claims) -> None:
    """Claim the softmax of layers whose own words are its steps, and the GELU of products whose
    kernel applies one."""
    for p, layer in enumerate(layers):
        if claims.of_layer[p] and {base(w) for w in parts(layer.name)} >= SOFTMAX:
            softmaxes = claims.beside(p, frozenset({"Softmax"}))
            if len(softmaxes) == 1:
                why = f"its own words take {flow.nodes[softmaxes[0]].name} apart"
                claims.add(p, softmaxes, "boundary", why)
    _epilogues(layers, flow, claims)


def _epilogues(layers: Sequence[RawLayer], flow: Flow, claims: Claims) -> None:
    """A GELU whose only source is one product, where the product's kernel says that it applies
    one."""
    products = [
        p
        for p, layer in enumerate(layers)
        if any(_GELU_EPILOGUE.search(k.name) for k in layer.kernels)
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
