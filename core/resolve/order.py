"""Rules 2 and 4: layers told apart by their number in the network, or by execution order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from . import ops
from .claims import Claims
from .flow import NEVER, Flow
from .model import Network, RawLayer
from .spelling import base, parts, unnamed_layer


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
    found: dict[int, tuple[int, str]] = {}
    if network is not None:
        for index in seen:
            entry = network.layers.get(index)
            node = _node_of(entry.node, entry.outputs, flow) if entry is not None else None
            if node is not None:
                found[index] = node, f"network.json says what unnamed layer {index} is"
        return found
    indices = sorted(i for i, kind in seen.items() if kind == "Normalization")
    nodes = [
        i
        for i, node in enumerate(flow.nodes)
        if node.op in ops.NORMALISATION and not claims.claimed(i)
    ]
    if indices and len(indices) == len(nodes):
        for place, (index, node) in enumerate(zip(indices, nodes, strict=True), 1):
            found[index] = (
                node,
                f"normalisation {place} of {len(nodes)} by network index, as in the graph",
            )
    return found


def _node_of(name: str | None, outputs: Iterable[str], flow: Flow) -> int | None:
    if name is not None and name in flow.number:
        return flow.number[name]
    writers = {flow.writer[t] for t in outputs if t in flow.writer}
    return writers.pop() if len(writers) == 1 else None


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
    """Give the k-th layer of equal names the k-th group of unclaimed nodes that can be it.

    A group is a connected region of unclaimed working nodes (movement between them looked
    through). Every layer must fall between what feeds its group and what reads it, the numbers
    must agree, and either the name says what the groups must hold or all groups are alike.
    """
    alike: dict[str, list[int]] = {}
    for p in open_layers:
        alike.setdefault(pattern(layers[p].name), []).append(p)
    alike = {t: ps for t, ps in alike.items() if len(ps) > 1 or is_gelu(layers[ps[0]].name)}
    if not alike:
        return
    after, before = flow.windows(claims.first, claims.last, len(layers))
    for places in alike.values():
        gelu = is_gelu(layers[places[0]].name)
        groups = _groups(flow, claims, after, elementwise=gelu)
        if gelu:
            groups = [g for g in groups if _one_core(g, flow)]
        elif len({tuple(sorted(flow.nodes[i].op for i in g)) for g in groups}) > 1:
            continue
        if len(groups) != len(places):
            continue
        if not all(
            _outside(g, flow, claims, after, before, p) for p, g in zip(places, groups, strict=True)
        ):
            continue
        for k, (p, group) in enumerate(zip(places, groups, strict=True), 1):
            nodes = group + _moves_inside(group, flow, claims)
            claims.add(p, nodes, "order", f"run {k} of {len(places)} of this name, as in the graph")
        after, before = flow.windows(claims.first, claims.last, len(layers))


def _one_core(group: list[int], flow: Flow) -> bool:
    return sum(flow.nodes[i].op in _GELU for i in group) == 1


def _groups(flow: Flow, claims: Claims, after: list[int], *, elementwise: bool) -> list[list[int]]:
    """Connected regions of unclaimed working nodes, in graph order of their first node."""
    eligible = [
        not claims.claimed(i) and flow.alive[i] and (flow.inputs_known or after[i] != NEVER)
        for i in range(len(flow.nodes))
    ]

    def works(i: int) -> bool:
        return not flow.is_movement(i) and (not elementwise or flow.nodes[i].op in ops.ELEMENTWISE)

    root = list(range(len(flow.nodes)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = root[root[i]]
            i = root[i]
        return i

    for i, producers in enumerate(flow.producers):
        if eligible[i] and (works(i) or flow.is_movement(i)):
            for p in producers:
                if eligible[p] and (works(p) or flow.is_movement(p)):
                    root[find(p)] = find(i)
    regions: dict[int, list[int]] = {}
    for i in range(len(flow.nodes)):
        if eligible[i] and works(i):
            regions.setdefault(find(i), []).append(i)
    return sorted(regions.values())


def _outside(
    group: list[int], flow: Flow, claims: Claims, after: list[int], before: list[int], p: int
) -> bool:
    return max(after[i] for i in group) < p < min(before[i] for i in group)


def _moves_inside(group: list[int], flow: Flow, claims: Claims) -> list[int]:
    """Unclaimed movement nodes with all producers and all consumers in the group."""
    members = set(group)
    return [
        c
        for i in group
        for c in flow.consumers[i]
        if flow.is_movement(c)
        and not claims.claimed(c)
        and flow.consumers[c]
        and set(flow.producers[c]) | set(flow.consumers[c]) <= members
    ]
