"""Rule 3 for products that an engine runs as one.

Myelin multiplies one tensor by the weights of several modules in one kernel (query, key and value;
gate and up) and calls it ``fc__mye15762``. Seen in captures of TensorRT 8.6. Evidence: the layer's
word is a product's; two or more unclaimed products read one tensor and have constant weights; all
of them can have run there. Silent where another group or another such layer fits, where another
product can have run there, where the kernel's grid is not that of the products together, and where
another layer without nodes lies in the window, unless the grid confirms.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from .claims import Claims
from .flow import Flow
from .model import RawLayer
from .operator_kinds import CONVOLUTION, MATRIX
from .spelling import base, parts

PRODUCT = re.compile(r"fc|gemm|matmul|matrix_multiply", re.IGNORECASE)
_TILE = re.compile(r"gemm\w*_tilesize(\d+)x(\d+)x")


@dataclass(frozen=True)
class _Group:
    """Unclaimed products that read one tensor. They can have run after `low` and before `high`."""

    tensor: str
    nodes: tuple[int, ...]
    low: int
    high: int


def fused(
    layers: Sequence[RawLayer], flow: Flow, claims: Claims, open_layers: Sequence[int]
) -> dict[int, str]:
    """Claim the groups of products that open layers run; say of the others why not."""
    places = [p for p in open_layers if _is_product(layers[p])]
    if not places:
        return {}
    after, before = claims.windows()
    groups = _groups(flow, claims, after, before)
    fits = {p: [g for g in groups if g.low < p < g.high] for p in places}
    why: dict[int, str] = {}
    for p in places:
        if len(fits[p]) != 1 or len(fits[p][0].nodes) < 2:
            continue  # one product alone: elimination
        group = fits[p][0]
        rivals = [q for q in places if q != p and group in fits[q]]
        others = [
            i
            for i, node in enumerate(flow.nodes)
            if node.op in MATRIX | CONVOLUTION
            and i not in group.nodes
            and flow.alive[i]
            and not claims.claimed(i)
            and after[i] < p < before[i]
        ]
        crowd = [
            q for q in open_layers if q != p and any(after[i] < q < before[i] for i in group.nodes)
        ]
        agrees = _sizes_agree(layers[p], group, flow)
        names = [flow.nodes[i].name for i in group.nodes]
        if rivals:
            why[p] = f"{len(rivals) + 1} layers could be the products that read {group.tensor}"
        elif others:
            why[p] = f"{flow.nodes[others[0]].name} can have run here as well as {names[0]}"
        elif agrees is False:
            why[p] = f"its grid is not that of {' and '.join(names[:3])} together"
        elif crowd and not agrees:
            why[p] = f"{layers[crowd[0]].name} can be one of {' and '.join(names[:3])}"
        else:
            text = f"{len(names)} products that read {group.tensor} run as one: {', '.join(names)}"
            claims.add(p, _with_bias(group.nodes, flow, claims), "boundary", text)
    return why


def _is_product(layer: RawLayer) -> bool:
    said = parts(layer.name)
    return not layer.nameless and len(said) == 1 and PRODUCT.fullmatch(base(said[0])) is not None


def _groups(flow: Flow, claims: Claims, after: list[int], before: list[int]) -> list[_Group]:
    reading: dict[str, list[int]] = {}
    for i, node in enumerate(flow.nodes):
        if (
            node.op in ("MatMul", "Gemm")
            and flow.alive[i]
            and not claims.claimed(i)
            and len(node.inputs) > 1
            and flow.fixed(node.inputs[1])
        ):
            reading.setdefault(node.inputs[0], []).append(i)
    return [
        _Group(t, tuple(nodes), max(after[i] for i in nodes), min(before[i] for i in nodes))
        for t, nodes in reading.items()
    ]


def _with_bias(products: Sequence[int], flow: Flow, claims: Claims) -> list[int]:
    """The products, each with the bias that its module adds."""
    nodes = list(products)
    for i in products:
        for c in flow.consumers[i] if len(flow.consumers[i]) == 1 else ():
            adds = flow.nodes[c].op == "Add" and flow.producers[c] == (i,)
            if adds and flow.nodes[c].module == flow.nodes[i].module and not claims.claimed(c):
                nodes.append(c)
    return sorted(nodes)


def _sizes_agree(layer: RawLayer, group: _Group, flow: Flow) -> bool | None:
    """Whether the blocks of the layer's kernel are as many as tiles of M x the sum of N; None
    where its kernel does not say its tile, or shapes are not known."""
    kernels = [k for k in layer.kernels if "gemm" in k.name]
    tile = _TILE.search(kernels[0].name) if len(kernels) == 1 else None
    shapes = [flow.graph.shape(flow.nodes[i].outputs[0]) for i in group.nodes]
    known = [s for s in shapes if s]
    if tile is None or kernels[0].grid is None or len(known) < len(shapes):
        return None
    rows, columns = prod(known[0][:-1]), sum(s[-1] for s in known)
    blocks, high, wide = prod(kernels[0].grid), int(tile[1]), int(tile[2])
    wanted = ceil(rows / high) * ceil(columns / wide)
    turned = ceil(columns / high) * ceil(rows / wide)
    return blocks % wanted == 0 or blocks == turned  # a multiple: split along K
