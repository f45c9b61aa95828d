"""Rule 5, `elimination`, for strided copies that Myelin calls by a word of its own.

``xpos`` and ``post_xpos`` rotate positions (rotary embeddings) and, where their kernel lists moves
alone (``__myl_bb0_46_Mov``), are copies: the halves exchanged, a tensor laid out anew. Seen in
captures of TensorRT 8.6. Such a layer is a movement node if that is the only one not yet placed
that can have run there, and no other such layer can be that node. Where several can be it, all of
one module, it is that module's. It is never given to whoever made what it moves: the one result
still to be read may be a part of a product that other modules share.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .carrier import Carried
from .claims import Claims
from .flow import Flow
from .kernel_tokens import only_moves, tokens
from .model import RawLayer
from .spelling import base, parts

_WORD = re.compile(r"(?:post_)?xpos")


def is_copy(layer: RawLayer) -> bool:
    """Whether all words of a layer are such, and its kernels do nothing but move data."""
    said = [] if layer.nameless else parts(layer.name)
    spoken = bool(said) and all(_WORD.fullmatch(base(word)) for word in said)
    return spoken and only_moves(layer.kernels) and all("Mov" in tokens(k) for k in layer.kernels)


def placed(
    layers: Sequence[RawLayer], flow: Flow, claims: Claims, open_layers: Sequence[int]
) -> None:
    """Claim for the open copies the movement that each alone can be."""
    waiting = [p for p in open_layers if is_copy(layers[p])]
    while waiting:
        fits = _fits(waiting, claims)
        sole = {p: nodes[0] for p, nodes in fits.items() if len(nodes) == 1}
        settled = [p for p, i in sole.items() if list(sole.values()).count(i) == 1]
        for p in settled:
            name = flow.nodes[sole[p]].name
            why = f"{name} is the only movement not yet placed that can have run here"
            claims.add(p, (sole[p],), "elimination", why)
        waiting = [p for p in waiting if p not in settled]
        if not settled:
            break


def carried(p: int, flow: Flow, claims: Claims) -> Carried:
    """Whom a copy belongs to that several movements can be."""
    nodes = _fits([p], claims)[p]
    modules = {flow.nodes[i].module for i in nodes}
    if len(modules) != 1:
        return Carried((), "unresolved", "it moves data, but not whose")
    names = " or ".join(flow.nodes[i].name for i in nodes[:3])
    return Carried(tuple(nodes), "carrier", f"it is {names}, the movements that can have run here")


def _fits(layers: Sequence[int], claims: Claims) -> dict[int, list[int]]:
    """For each layer the movements not yet placed that can have run there."""
    after, before = claims.windows()
    moves = list(claims.movements())
    return {p: [i for i in moves if after[i] < p < before[i]] for p in layers}
