"""The dataflow of a graph as attribution needs it: data edges only, by node number.

A data edge is one along which values flow. Shape operands, shape queries and constants make no
data edge, so the nodes that only build shapes are nobody's neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from ..nodes import NodeGraph
from .operator_kinds import MOVEMENT, SHAPE_QUERY, data_inputs

NEVER = -1  # "ran before everything": no claimed producer


class Flow:
    """Data edges between the nodes, numbered in graph order.

    `alive[i]` says that node i works on values that change from run to run: it is not fed by
    constants alone and does not only compute shapes. `inputs_known` is False for a nodes.json
    without its optional list of inputs; then constants cannot be told from inputs, and a node is
    known to be alive only if a claimed node feeds it (or it is a product or a convolution:
    nobody multiplies constants at run time).
    """

    def __init__(self, graph: NodeGraph) -> None:
        self.graph = graph
        self.nodes = graph.nodes
        self.number = graph.position
        self.inputs_known = bool(graph.inputs)
        count = len(self.nodes)
        self.reads: list[tuple[str, ...]] = [
            tuple(t for t in data_inputs(n.op, n.inputs) if t not in graph.initializers)
            for n in self.nodes
        ]
        self.producers: list[tuple[int, ...]] = []
        consumers: list[list[int]] = [[] for _ in range(count)]
        writer = {t: i for i, n in enumerate(self.nodes) for t in n.outputs if t}
        self.writer = writer
        self.constant, self.shape_made = _liveness(graph, writer)
        self.alive = [not c and not s for c, s in zip(self.constant, self.shape_made, strict=True)]
        for i, tensors in enumerate(self.reads):
            found = dict.fromkeys(writer[t] for t in tensors if t in writer)
            self.producers.append(tuple(p for p in found if self.alive[p] and p < i))
            for p in self.producers[i]:
                consumers[p].append(i)
        self.consumers: list[tuple[int, ...]] = [tuple(c) for c in consumers]
        self.known: set[str] = {*writer, *graph.inputs, *graph.initializers}
        self.known |= {t for n in self.nodes for t in n.inputs if t}

    def is_movement(self, i: int) -> bool:
        """Whether node i only moves, views or converts data."""
        return self.nodes[i].op in MOVEMENT

    def fixed(self, tensor: str) -> bool:
        """Whether the tensor is the same in every run: a weight, or made of such alone."""
        i = self.writer.get(tensor)
        if i is not None:
            return self.constant[i]
        graph = self.graph
        return tensor in graph.initializers or (bool(graph.inputs) and tensor not in graph.inputs)

    def leads_to(self, source: int, target: int) -> bool:
        """Whether values flow from node `source` to node `target`: it must run before."""
        return target in met([source], self.consumers, lambda i: i < target)

    def windows(
        self, first: Sequence[int | None], last: Sequence[int | None], end: int
    ) -> tuple[list[int], list[int]]:
        """For each node: when the nearest claimed producers ran, and when the consumers do.

        `first[i]` and `last[i]` are the execution positions of the first and last layer that
        claims node i, None if none does. Gives (latest position among the nearest claimed
        producers or NEVER, earliest among the nearest claimed consumers or `end`), looking
        through unclaimed nodes. Linear in the number of edges.
        """
        after = [NEVER] * len(self.nodes)
        before = [end] * len(self.nodes)
        for i, producers in enumerate(self.producers):
            for p in producers:
                ran = first[p]
                after[i] = max(after[i], after[p] if ran is None else ran)
        for i in range(len(self.nodes) - 1, -1, -1):
            for c in self.consumers[i]:
                ran = last[c]
                before[i] = min(before[i], before[c] if ran is None else ran)
        return after, before


_Edges = Sequence[Sequence[int]] | Mapping[int, Sequence[int]]


def met(nodes: Iterable[int], edges: _Edges, through: Callable[[int], bool]) -> Iterator[int]:
    """The nodes that a walk from `nodes` along `edges` meets, each once; it goes on only from the
    first ones and from those that it may go `through`."""
    pending = list(nodes)
    seen = set(pending)
    while pending:
        for i in edges[pending.pop()]:
            if i not in seen:
                seen.add(i)
                yield i
                if through(i):
                    pending.append(i)


T = TypeVar("T", bound=Hashable)


def connected(members: Iterable[T], pairs: Iterable[tuple[T, T]]) -> list[list[T]]:
    """The members in groups that the pairs connect; groups by their first members, and those in
    each, in the order of `members`."""
    root = {member: member for member in members}

    def find(member: T) -> T:
        while root[member] != member:
            root[member] = root[root[member]]
            member = root[member]
        return member

    for a, b in pairs:
        root[find(a)] = find(b)
    groups: dict[T, list[T]] = {}
    for member in root:
        groups.setdefault(find(member), []).append(member)
    return list(groups.values())


def open_at(spans: Iterable[tuple[int, int, int]], count: int) -> tuple[list[int], list[int]]:
    """For each of `count` positions: how many of the spans (first position, the one after the last,
    number) hold it, and the sum of their numbers: the span's own where there is one. Linear."""
    held = [0] * (count + 1)
    total = [0] * (count + 1)
    for low, high, number in spans:
        if low < high:
            held[low] += 1
            total[low] += number
            held[high] -= 1
            total[high] -= number
    return list(accumulate(held)), list(accumulate(total))


def _liveness(graph: NodeGraph, writer: dict[str, int]) -> tuple[list[bool], list[bool]]:
    """(constant, shape_made) for each node.

    constant: every operand is one, so the engine computes it when it is built. Known only if the
    model's inputs are. shape_made: computes from the shapes of tensors alone (shape queries and
    what only they and constants feed). An embedding looked up by positions is work, not a shape.
    """
    inputs = set(graph.inputs)
    constant = [False] * len(graph.nodes)
    shape_made = [False] * len(graph.nodes)
    for i, node in enumerate(graph.nodes):
        if node.op in SHAPE_QUERY:
            shape_made[i] = True
            continue
        sure = fed_by_made = True
        some_made = False
        for position, t in enumerate(t for t in node.inputs if t):
            source = writer.get(t)
            if source is None:
                fixed = t in graph.initializers or (bool(inputs) and t not in inputs)
            else:
                fixed = constant[source]
                some_made |= shape_made[source]
            sure &= fixed
            from_shape = source is not None and shape_made[source]
            looked_up = position == 0 and node.op in ("Gather", "GatherND", "GatherElements")
            fed_by_made &= from_shape or (fixed and not looked_up)
        constant[i] = sure and bool(inputs) and node.op not in _RANDOM
        shape_made[i] = some_made and fed_by_made
    return constant, shape_made


_RANDOM = frozenset({"RandomNormal", "RandomUniform", "Multinomial", "Bernoulli"})
