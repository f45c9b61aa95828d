"""Rules 2 and 4: layers told apart by their number in the network, or by execution order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from .claims import Claims, working_units
from .flow import NEVER, Flow, connected
from .kernel_tokens import allows
from .model import Network, RawLayer
from .operator_kinds import ELEMENTWISE, NORMALISATION
from .spelling import base, network_node, parts, unnamed_layer


def indexed(
    layers: Sequence[RawLayer], flow: Flow, claims: Claims, network: Network | None
) -> dict[int, tuple[int, str]]:
    """TensorRT's layer index -> (node number, reason), for every ``(Unnamed Layer* N)`` seen.

    With network.json the index says the node, or its output tensors do. Without, Normalization
    layers in ascending index are the normalisation nodes in graph order, if there are as many of
    the ones as of the others.
    """
    seen: dict[int, str | None] = {}
    for layer in layers:
        for part in parts(layer.name):
            unnamed = unnamed_layer(part)
            if unnamed is not None:
                seen[unnamed[0]] = unnamed[1] or seen.get(unnamed[0])
    if network is not None:
        return {
            index: (flow.number[name], f"network.json says what unnamed layer {index} is")
            for index in seen
            if index in network.layers
            and (name := network_node(network.layers[index], flow.graph)) is not None
        }
    indices = sorted(i for i, kind in seen.items() if kind == "Normalization")
    nodes = [
        i for i, node in enumerate(flow.nodes) if node.op in NORMALISATION and not claims.claimed(i)
    ]
    if len(indices) != len(nodes):
        return {}
    return {
        index: (node, f"normalisation {k} of {len(nodes)} by network index, as in the graph")
        for k, (index, node) in enumerate(zip(indices, nodes, strict=True), 1)
    }


# What a pattern of the engine's own must contain. A word that is not here says nothing.
_GELU = frozenset({"Tanh", "Erf", "Gelu", "FastGelu", "BiasGelu"})


def is_gelu(name: str) -> bool:
    """Whether the layer is one of the engines' GELU patterns: ``gelu_mul+gelu_mul_2+…``,
    ``GPT2Gelu``, ``FastGelu``."""
    words = [base(p).lower() for p in parts(name)]
    return bool(words) and all(re.match(r"(?:gpt2|fast|bias|quick)?_?gelu", w) for w in words)


def pattern(name: str) -> str:
    """The text by which layers count as equal: the name, an engine's pattern without numbers."""
    return "+".join(base(p) for p in parts(name)) if is_gelu(name) else name


def by_order(
    layers: Sequence[RawLayer], flow: Flow, claims: Claims, open_layers: Sequence[int]
) -> None:
    """Give the k-th layer of equal names the k-th candidate along the graph.

    Candidates are unclaimed working nodes that can have run where one of the layers did; for an
    engine's GELU pattern, regions around one tanh or erf. There must be as many as layers, each
    layer must fall between what feeds its candidate and what reads it, and each candidate must
    feed the next: branches side by side may run in any order, so order says nothing of them.
    """
    alike: dict[str, list[int]] = {}
    for p in open_layers:
        alike.setdefault(pattern(layers[p].name), []).append(p)
    for places in alike.values():
        gelu = is_gelu(layers[places[0]].name)
        if len(places) == 1 and not gelu:
            continue
        after, before = claims.windows()
        if gelu:
            groups = gelus(flow, claims, after)
        else:
            groups = [
                u
                for u in working_units(flow, claims, after)
                if any(_fits(u, after, before, p) for p in places)
            ]
        if len(groups) != len(places):
            continue
        if not all(
            allows(layers[p].kernels, flow.nodes[i].op)
            for p, g in zip(places, groups, strict=True)
            for i in g
        ):
            continue
        if all(_fits(g, after, before, p) for p, g in zip(places, groups, strict=True)) and all(
            flow.leads_to(a[0], b[-1]) for a, b in pairwise(groups)
        ):
            for k, (p, group) in enumerate(zip(places, groups, strict=True), 1):
                why = f"run {k} of {len(places)} of this name, as in the graph"
                claims.add(p, with_moves(group, flow, claims), "order", why)


def gelus(flow: Flow, claims: Claims, after: list[int]) -> list[tuple[int, ...]]:
    """Regions of unclaimed elementwise nodes that hold one tanh or erf: of each, the nodes in
    the module of that core (a bias or a sum of another module is not the pattern's)."""
    patterns = []
    for region in _regions(flow, claims, after):
        cores = [i for i in region if flow.nodes[i].op in _GELU]
        if len(cores) == 1:
            module = flow.nodes[cores[0]].module
            patterns.append(tuple(i for i in region if flow.nodes[i].module == module))
    return patterns


def _regions(flow: Flow, claims: Claims, after: list[int]) -> list[list[int]]:
    """Connected regions of unclaimed elementwise nodes (movement between them looked through),
    in graph order of their first node."""
    eligible = [
        not claims.claimed(i) and flow.alive[i] and (flow.inputs_known or after[i] != NEVER)
        for i in range(len(flow.nodes))
    ]

    def works(i: int) -> bool:
        return flow.nodes[i].op in ELEMENTWISE

    part = [e and (works(i) or flow.is_movement(i)) for i, e in enumerate(eligible)]
    pairs = (
        (p, i)
        for i, producers in enumerate(flow.producers)
        for p in producers
        if part[i] and part[p]
    )
    groups = connected(range(len(flow.nodes)), pairs)
    regions = ([i for i in group if eligible[i] and works(i)] for group in groups)
    return sorted(region for region in regions if region)


def _fits(group: Sequence[int], after: list[int], before: list[int], p: int) -> bool:
    return max(after[i] for i in group) < p < min(before[i] for i in group)


def with_moves(group: Sequence[int], flow: Flow, claims: Claims) -> tuple[int, ...]:
    """The group and the unclaimed movement nodes with all producers and consumers in it."""
    members = set(group)
    moves = (
        c
        for i in group
        for c in flow.consumers[i]
        if flow.is_movement(c)
        and not claims.claimed(c)
        and flow.consumers[c]
        and set(flow.producers[c]) | set(flow.consumers[c]) <= members
    )
    return (*group, *moves)
