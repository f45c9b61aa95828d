"""Rule 5, `elimination`: the one node that can be it.

A layer that ran at position p can be an unclaimed node only if the nearest claimed producers of
the node ran before p and its nearest claimed consumers after p. One candidate is an answer; two
are none. Repeated until nothing changes, because each answer narrows the others.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .claims import Claims, working_units
from .flow import Flow, open_at
from .kernel_tokens import allows, is_product, works
from .model import RawLayer
from .operator_kinds import CONVOLUTION, ELEMENTWISE, MATRIX
from .products import PRODUCT
from .spelling import base, parts

# What an engine's own word cannot be. It only vetoes: it never makes one candidate of two.
_WORDS: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (PRODUCT, MATRIX | CONVOLUTION),
    (re.compile(r"(?:post_)?xpos"), ELEMENTWISE),
    (
        re.compile(r"conv(?:olution)?", re.IGNORECASE),
        CONVOLUTION | MATRIX,
    ),
)


def eliminate(
    layers: Sequence[RawLayer], flow: Flow, claims: Claims, open_layers: Sequence[int]
) -> dict[int, str]:
    """Claim for the open working layers what elimination gives; say of the others why not."""
    waiting = list(open_layers)
    why: dict[int, str] = {}
    while waiting:
        after, before = claims.windows()
        units = working_units(flow, claims, after)
        spans = [
            (max(after[i] for i in unit) + 1, min(before[i] for i in unit), u)
            for u, unit in enumerate(units)
        ]
        counts, sole = open_at(spans, len(layers))
        wanted: dict[int, list[int]] = {}
        for p in waiting:
            if counts[p] == 1:
                wanted.setdefault(sole[p], []).append(p)
        settled: set[int] = set()
        for u, rivals in wanted.items():
            node = flow.nodes[units[u][0]]
            if len(rivals) > 1:
                for p in rivals:
                    why[p] = f"{len(rivals)} layers could be {node.name}"
            elif not _can_be(layers[rivals[0]], node.op):
                why[rivals[0]] = f"the only node that ran here, {node.name}, is no such operation"
            elif (moved := _movement(rivals[0], layers, claims, after, before)) is not None:
                why[rivals[0]] = (
                    f"{flow.nodes[moved].name} can have run here as well as {node.name}"
                )
            else:
                claims.add(
                    rivals[0],
                    units[u],
                    "elimination",
                    f"{node.name} is the only node not yet placed that can have run here",
                )
                settled.add(rivals[0])
        for p in waiting:
            if p not in settled and counts[p] != 1:
                why[p] = (
                    f"{counts[p]} nodes can have run here"
                    if counts[p]
                    else "no node is left that can have run here"
                )
        waiting = [p for p in waiting if p not in settled]
        if not settled:
            break
    return {p: why[p] for p in waiting if p in why}


def _movement(
    p: int,
    layers: Sequence[RawLayer],
    claims: Claims,
    after: Sequence[int],
    before: Sequence[int],
) -> int | None:
    """A movement that layer p can be as well: only where nothing says that the layer computes."""
    layer = layers[p]
    if layer.op is not None or layer.outputs is not None or works(layer.kernels):
        return None
    if any(word.fullmatch(base(part)) for part in parts(layer.name) for word, _ in _WORDS):
        return None
    return next((i for i in claims.movements() if after[i] < p < before[i]), None)


def _can_be(layer: RawLayer, op: str) -> bool:
    multiplies = bool(layer.kernels) and all(is_product(k) for k in layer.kernels)
    if not allows(layer.kernels, op) or (multiplies and op not in MATRIX | CONVOLUTION):
        return False
    words = [base(p) for p in parts(layer.name)]
    if len(words) != 1:
        return True
    return all(op in allowed for word, allowed in _WORDS if word.fullmatch(words[0]))
