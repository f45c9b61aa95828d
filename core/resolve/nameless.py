"""Rules 5 and 6 for kernels without a name of their own inside a ForeignNode.

Myelin marks most of its operations with ranges, but not all: a kernel that it launches outside of
them is only known to be of the region. Each is a layer of its own here. What can be said of it is
what its kernel's name lists, so it is a node by elimination only where that one alone can have run
there and is the operation that the kernel names. A fill, which clears what a reduction over several
blocks sums up, belongs to the reduction: one block, and each of its runs comes directly before one.
Seen in captures of TensorRT 8.6.
"""

from __future__ import annotations

from collections.abc import Sequence

from .carrier import Carried
from .claims import Claims, working_units
from .flow import Flow
from .kernel_tokens import REDUCTIONS, computes, only_moves, tokens
from .model import RawLayer
from .operator_kinds import NORMALISATION

UNKNOWN_MOVE = Carried((), "unresolved", "a kernel without a name of its own that only moves data")


def moves(layer: RawLayer) -> bool:
    """Whether a layer without a name only moves, copies or sets data."""
    return layer.nameless and (not layer.kernels or only_moves(layer.kernels))


def eliminate(
    layers: Sequence[RawLayer], flow: Flow, claims: Claims, open_layers: Sequence[int]
) -> None:
    """Claim for the open layers without a name the node that each alone can be, and says to be."""
    for p in open_layers:
        said = computes(layers[p].kernels)
        if not layers[p].nameless or len(said) != 1 or said[0] not in REDUCTIONS:
            continue
        after, before = claims.windows()
        units = [
            unit
            for unit in working_units(flow, claims, after)
            if max(after[i] for i in unit) < p < min(before[i] for i in unit)
        ]
        if len(units) == 1 and flow.nodes[units[0][0]].op in REDUCTIONS[said[0]]:
            name = flow.nodes[units[0][0]].name
            why = f"its kernel's name says {said[0]}, and {name} alone can have run here"
            claims.add(p, units[0], "elimination", why)


def carried(p: int, layers: Sequence[RawLayer], flow: Flow, claims: Claims) -> Carried:
    """Whom a layer without a name that only moves data belongs to."""
    kernels = layers[p].kernels
    runs = [q for q, layer in enumerate(layers) if layer.nameless and layer.kernels == kernels]
    if len(kernels) != 1 or kernels[0].grid != (1, 1, 1):
        return UNKNOWN_MOVE
    if not all(_reduces(layers[q + 1]) for q in runs if q + 1 < len(layers)):
        return UNKNOWN_MOVE
    if runs[-1] + 1 == len(layers):
        return UNKNOWN_MOVE
    reduced = [
        i
        for i in claims.of_layer[p + 1]
        if flow.nodes[i].op.startswith("Reduce")
        or flow.nodes[i].op in NORMALISATION
        or flow.nodes[i].op == "Softmax"
    ]
    if len(reduced) != 1:
        return UNKNOWN_MOVE
    name, count = flow.nodes[reduced[0]].name, len(runs)
    times = "directly" if count == 1 else f"each of {count} times directly"
    return Carried(tuple(reduced), "carrier", f"a fill of one block, {times} before {name} reduces")


def _reduces(layer: RawLayer) -> bool:
    return len(layer.kernels) == 1 and not REDUCTIONS.keys().isdisjoint(tokens(layer.kernels[0]))
