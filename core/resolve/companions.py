"""Rule 5 for part of a layer: nodes that it lists under names of another export.

PyTorch's exporter calls a node after its operator (``node_add_5``, ``node_embedding``). An engine
that was built from such a file lists these names, and a nodes.json of another export has none of
them. Where a layer is known by one of its nodes (a normalisation, by index), the others that it
lists are found beside it: a layer's nodes hang together in the dataflow, and the name says of
which operators they are. One way to choose them is an answer; two are none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product
from math import comb, prod

from .claims import Claims
from .flow import Flow, met
from .model import RawLayer
from .spelling import Speller, parts

_EXPORTED = re.compile(r"node_([A-Za-z][A-Za-z_]*?)(?:_\d+)?")
# torch's word for what ONNX calls otherwise; else the word is the operator's name.
_OPERATORS = {
    "embedding": frozenset({"Gather"}),
    "linear": frozenset({"MatMul", "Gemm"}),
    "addmm": frozenset({"Gemm"}),
    "bitwise_and": frozenset({"And", "BitwiseAnd"}),
    "logical_and": frozenset({"And"}),
}
_MOST = 2_000  # ways to choose that are tried


def strangers(name: str, speller: Speller) -> list[tuple[str, str]]:
    """The parts of a layer's name that are nodes of another export than the graph's, and the
    operator's word in each."""
    return [
        (part, match[1].lower())
        for part in parts(name)
        if (match := _EXPORTED.fullmatch(part)) and not speller.find(part)
    ]


def companions(layers: Sequence[RawLayer], flow: Flow, speller: Speller, claims: Claims) -> None:
    """Claim for layers that are known in part what else they list."""
    for p, layer in enumerate(layers):
        if not claims.of_layer[p]:
            continue
        listed = strangers(layer.name, speller)
        chosen = _chosen(p, [word for _, word in listed], flow, claims) if listed else ()
        if chosen:
            why = f"beside what is known of it, the only nodes of the operators of {listed[0][0]}"
            why += f" and {len(listed) - 1} more that it lists" if len(listed) > 1 else ""
            claims.add(p, chosen, "elimination", why)


def _chosen(p: int, listed: Sequence[str], flow: Flow, claims: Claims) -> tuple[int, ...]:
    """The nodes of the listed operators; empty where there is no way to choose, or several."""
    wanted = Counter(listed)
    own = set(claims.of_layer[p])
    near = _around(own, flow, claims, len(listed))
    pools = {word: [i for i in near if _can_be(word, flow.nodes[i].op)] for word in wanted}
    ways = prod(comb(len(pools[word]), count) for word, count in wanted.items())
    if not 0 < ways <= _MOST:
        return ()
    each = (combinations(pools[word], count) for word, count in wanted.items())
    choices = [
        nodes
        for parts_ in product(*each)
        if len(nodes := {i for part in parts_ for i in part}) == len(listed)
        and _hang_together(nodes, own, flow)
    ]
    return tuple(sorted(choices[0])) if len(choices) == 1 else ()


def _can_be(word: str, op: str) -> bool:
    known = _OPERATORS.get(word)
    return op in known if known is not None else op.lower() == word.replace("_", "")


def _around(own: set[int], flow: Flow, claims: Claims, steps: int) -> list[int]:
    """Nodes at work that nobody claims, at most `steps` of them from what is held."""
    near: dict[int, None] = {}
    edge = set(own)
    for _ in range(steps):
        edge = {
            n
            for i in edge
            for n in _beside(i, flow)
            if n not in near and n not in own and not claims.claimed(n) and flow.alive[n]
        }
        near.update(dict.fromkeys(sorted(edge)))
    return sorted(near)


def _beside(i: int, flow: Flow) -> Iterator[int]:
    """Working nodes next to node i; movement between is looked through."""
    for edges in (flow.producers, flow.consumers):
        yield from (n for n in met([i], edges, flow.is_movement) if not flow.is_movement(n))


def _hang_together(nodes: set[int], own: set[int], flow: Flow) -> bool:
    beside = {i: list(_beside(i, flow)) for i in (*own, *nodes)}
    return nodes <= set(met(own, beside, nodes.__contains__))
