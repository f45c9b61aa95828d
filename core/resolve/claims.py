"""Who claims what while the rules run, and which nodes a layer without a name can still be.

Layers are named by their execution position, nodes by their number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .flow import NEVER, Flow
from .model import RULES
from .operator_kinds import CONVOLUTION, HEAVY, MATRIX, VIEW

_WEIGHT = {rule: i for i, rule in enumerate(RULES)}


class Claims:
    """The nodes each layer claims, with the rule that gave each, and the reverse.

    A node keeps the first rule that gave it to anybody: `rule_of[node]`.
    """

    def __init__(self, layers: int, flow: Flow) -> None:
        self._flow = flow
        self.of_layer: list[dict[int, str]] = [{} for _ in range(layers)]
        self.first: list[int | None] = [None] * len(flow.nodes)
        self.last: list[int | None] = [None] * len(flow.nodes)
        self.why: dict[int, str] = {}

    def add(
        self, layer: int, nodes: Iterable[int], rule: str, why: str, *, runs: bool = True
    ) -> None:
        """Give `nodes` to a layer; what it already has keeps its rule. The weakest rule's
        sentence is kept as the layer's. `runs` False: it only moves data for them, and another
        layer runs them."""
        own = self.of_layer[layer]
        weakest = max((_WEIGHT[r] for r in own.values()), default=-1)
        for node in nodes:
            if node in own:
                continue
            own[node] = rule
            if not runs:
                continue
            first, last = self.first[node], self.last[node]
            self.first[node] = layer if first is None else min(first, layer)
            self.last[node] = layer if last is None else max(last, layer)
        if _WEIGHT[rule] >= weakest:
            self.why[layer] = why

    def release(self, layer: int, nodes: Iterable[int]) -> None:
        """Take `nodes` from a layer again."""
        for node in nodes:
            del self.of_layer[layer][node]
            places = [p for p, own in enumerate(self.of_layer) if node in own]
            self.first[node] = min(places, default=None)
            self.last[node] = max(places, default=None)

    def windows(self) -> tuple[list[int], list[int]]:
        """`Flow.windows` of what is claimed so far."""
        return self._flow.windows(self.first, self.last, len(self.of_layer))

    def beside(self, layer: int, kinds: frozenset[str]) -> list[int]:
        """Unclaimed working nodes of these operators that read what the layer's nodes make or are
        read by them, and can have run with them."""
        after, before = self.windows()
        return [
            i
            for i, node in enumerate(self._flow.nodes)
            if node.op in kinds
            and self._flow.alive[i]
            and not self.claimed(i)
            and after[i] <= layer <= before[i]
            and layer in (after[i], before[i])
        ]

    def movements(self) -> Iterator[int]:
        """Unclaimed movements that do more than change a shape."""
        for i, node in enumerate(self._flow.nodes):
            movement = self._flow.is_movement(i) and node.op not in VIEW
            if movement and self._flow.alive[i] and not self.claimed(i):
                yield i

    def claimed(self, node: int) -> bool:
        """Whether any layer claims the node."""
        return self.first[node] is not None

    def claimed_elsewhere(self, node: int, layer: int) -> bool:
        """Whether a layer other than `layer` claims the node."""
        first, last = self.first[node], self.last[node]
        return first is not None and not first == last == layer

    def rule(self, layer: int) -> str:
        """The layer's rule: the least direct one that any of its nodes needed."""
        own = self.of_layer[layer]
        return max(own.values(), key=_WEIGHT.__getitem__) if own else "unresolved"


def working_units(flow: Flow, claims: Claims, after: list[int]) -> list[tuple[int, ...]]:
    """Unclaimed nodes that are alive and no movement. A matrix product and the bias added to it are
    one candidate."""
    nodes = [
        i
        for i in range(len(flow.nodes))
        if flow.alive[i]
        and not claims.claimed(i)
        and not flow.is_movement(i)
        and (flow.inputs_known or after[i] != NEVER or flow.nodes[i].op in HEAVY)
    ]
    free = set(nodes)
    biased = {
        i: add
        for i in nodes
        if flow.nodes[i].op in MATRIX | CONVOLUTION and len(flow.consumers[i]) == 1
        for add in free.intersection(flow.consumers[i])
        if flow.nodes[add].op == "Add"
        and flow.producers[add] == (i,)
        and flow.nodes[add].module == flow.nodes[i].module
    }
    added = set(biased.values())
    return [(i, biased[i]) if i in biased else (i,) for i in nodes if i not in added]
