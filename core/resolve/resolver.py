"""Raw engine layer names to ONNX nodes to modules.

Six rules, from the most direct evidence to the least: name, index, boundary, order, elimination,
carrier (each has its module here). What none of them settles is `unresolved`, with the reason.
A wrong answer is worse than none: whenever two answers are possible, there is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from ..nodes import NodeGraph
from . import (
    boundary,
    companions,
    copies,
    elimination,
    epilogues,
    expansion,
    kernel_tokens,
    nameless,
    order,
    products,
    words,
)
from .boundary import Tensors
from .carrier import Carried, Carriers
from .claims import Claims
from .flow import Flow
from .model import Network, RawLayer, Resolution
from .operator_kinds import HEAVY
from .spelling import (
    Speller,
    foreign_range,
    is_region,
    metadata_names,
    parts,
    reformat_of,
    unnamed_layer,
)


def resolve(
    layers: Sequence[RawLayer],
    graph: NodeGraph,
    network: Network | None = None,
    *,
    whole: bool = True,
) -> list[Resolution]:
    """What each layer is, one Resolution per layer in the same order.

    `layers` are one iteration in execution order (the rules order, elimination and carrier rest
    on it). `whole` False: others may have run between them. Pure: nothing is read or written, and
    equal input gives equal output.
    """
    return _Resolver(layers, graph, network, whole=whole).run()


class _Resolver:
    def __init__(
        self,
        layers: Sequence[RawLayer],
        graph: NodeGraph,
        network: Network | None,
        *,
        whole: bool,
    ) -> None:
        self.layers = layers
        self.whole = whole
        self.graph = graph
        self.network = network
        self.flow = Flow(graph)
        self.speller = Speller(graph, network)
        self.claims = Claims(len(layers), self.flow)
        self.tensors = Tensors(layers, self.flow, self.speller)
        self.why_not: dict[int, str] = {}

    def run(self) -> list[Resolution]:
        self.by_name()
        self.by_index()
        self.by_boundary()
        companions.companions(self.layers, self.flow, self.speller, self.claims)
        unclaimed = self.open(range(len(self.layers)))
        moving = [p for p in unclaimed if self.moves(p)]
        named = [p for p in unclaimed if not self.moves(p) and not self.is_region(p)]
        self.working(named)
        copies.placed(self.layers, self.flow, self.claims, self.open(moving))
        carriers = Carriers(self.layers, self.flow, self.speller, self.tensors, self.claims, moving)
        boundary.release_views(self.flow, self.claims)
        carried = {p: self.carried(p, carriers) for p in self.open(moving)}
        return [self.resolution(p, carried.get(p)) for p in range(len(self.layers))]

    def working(self, layers: Sequence[int]) -> None:
        """What the layers at work compute, by all rules until none finds more."""
        waiting = list(layers)
        while True:
            before = len(waiting)
            self.said()
            order.by_order(self.layers, self.flow, self.claims, self.named(waiting))
            self.enclosed()
            waiting = self.open(waiting)
            reasons = products.fused(self.layers, self.flow, self.claims, waiting)
            waiting = self.open(waiting)
            own = self.named(waiting)
            reasons = elimination.eliminate(self.layers, self.flow, self.claims, own) | reasons
            nameless.eliminate(self.layers, self.flow, self.claims, self.open(waiting))
            waiting = self.open(waiting)
            if not waiting or len(waiting) == before:
                break
        for p in waiting:
            self.note(p, reasons.get(p))
        self.said()
        if self.whole:
            epilogues.unnamed(self.layers, self.flow, self.speller, self.claims)

    def said(self) -> None:
        """What layers that are known in part say besides, in words and in names of kernels."""
        words.spelled_out(self.layers, self.flow, self.claims)
        epilogues.gelus(self.layers, self.flow, self.claims)
        words.spoken(self.layers, self.flow, self.speller, self.claims)
        kernel_tokens.explained(self.layers, self.flow, self.claims)

    def carried(self, p: int, carriers: Carriers) -> Carried:
        """Whom a layer that only moves data belongs to."""
        if self.layers[p].nameless:
            return nameless.carried(p, self.layers, self.flow, self.claims)
        if copies.is_copy(self.layers[p]):
            return copies.carried(p, self.flow, self.claims)
        return carriers.find(p)

    def open(self, layers: Iterable[int]) -> list[int]:
        """Those of the layers that have no nodes yet."""
        return [p for p in layers if not self.claims.of_layer[p]]

    def named(self, layers: Iterable[int]) -> list[int]:
        """Those of the layers that have a name of their own."""
        return [p for p in layers if not self.layers[p].nameless]

    def moves(self, p: int) -> bool:
        """Whether a layer only moves data."""
        layer = self.layers[p]
        said = self.tensors.moving[p] and not kernel_tokens.works(layer.kernels)
        return said or nameless.moves(layer) or copies.is_copy(layer)

    def is_region(self, p: int) -> bool:
        """Whether a layer is a whole ForeignNode."""
        return not self.layers[p].nameless and is_region(self.layers[p].name)

    def note(self, p: int, reason: str | None) -> None:
        """Add a reason why a layer stays unresolved."""
        if reason:
            known = self.why_not.get(p)
            self.why_not[p] = f"{known}; {reason}" if known else reason

    def by_name(self) -> None:
        """Rule 1, and the part of rule 4 that tells apart nodes whose names are spelled alike."""
        equal: dict[tuple[str, ...], list[int]] = {}
        for p, layer in enumerate(self.layers):
            texts = self.texts(layer)
            named: dict[str, None] = {}
            strange = 0
            for text in texts:
                nodes = self.speller.find(text)
                if len(nodes) == 1:
                    named[nodes[0]] = None
                elif nodes:
                    places = equal.setdefault(nodes, [])
                    if p not in places:
                        places.append(p)
                else:
                    strange += 1
            if named:
                source = "its name" if layer.name.startswith(texts[0]) else "its metadata"
                why = _named(source, named, strange)
                numbers = [self.graph.position[n] for n in named]
                # A reshape around a product is called after it.
                moved = [
                    i
                    for i in numbers
                    if self.flow.nodes[i].op in HEAVY and kernel_tokens.only_moves(layer.kernels)
                ]
                self.claims.add(p, moved, "name", why, runs=False)
                self.claims.add(p, numbers, "name", why)
        for names, places in equal.items():
            numbers = [self.graph.position[n] for n in names]
            free = [i for i in numbers if not self.claims.claimed(i)]
            if len(free) == len(places) and all(self.flow.leads_to(*ab) for ab in pairwise(free)):
                for k, (p, node) in enumerate(zip(places, free, strict=True), 1):
                    why = f"run {k} of {len(places)} of a name that fits {len(names)} nodes"
                    self.claims.add(p, (node,), "order", why)
            else:
                for p in places:
                    self.note(p, f"the name fits {' and '.join(names[:3])}")

    def texts(self, layer: RawLayer) -> tuple[str, ...]:
        """The names that a layer gives of its nodes: its metadata if that names any (TensorRT's
        parser reuses node names for other layers), else the whole name or its parts."""
        if reformat_of(layer.name) is not None:
            return ()  # it names the layer for which it moves
        names = metadata_names(layer.metadata or "")
        if any(self.speller.find(t) for t in names):
            return names
        if foreign_range(layer.name) is not None:
            return ()
        return (layer.name,) if self.speller.find(layer.name) else parts(layer.name)

    def by_index(self) -> None:
        """Rule 2."""
        known = order.indexed(self.layers, self.flow, self.claims, self.network)
        for p, layer in enumerate(self.layers):
            for part in parts(layer.name) if "Unnamed Layer" in layer.name else ():
                unnamed = unnamed_layer(part)
                if unnamed is None:
                    continue
                if unnamed[0] in known:
                    node, why = known[unnamed[0]]
                    self.claims.add(p, (node,), "index", why)
                elif not self.claims.of_layer[p] and p not in self.why_not:
                    self.note(p, f"nothing says what unnamed layer {unnamed[0]} is")

    def by_boundary(self) -> None:
        """Rule 3: unnamed layers first, then what lies between the tensors of named ones."""
        named = [p for p in range(len(self.layers)) if self.claims.of_layer[p]]
        for p, layer in enumerate(self.layers):
            if self.claims.of_layer[p] or layer.nameless:
                continue
            ends = foreign_range(layer.name)
            region = boundary.Region((), "")
            if layer.outputs:
                region = boundary.between(p, layer, self.flow, self.tensors, self.claims)
            if not region.nodes and ends is not None:
                region = self.foreign(p, ends, region.why)
            if region.nodes:
                self.claims.add(p, region.nodes, "boundary", region.why)
            else:
                self.note(p, region.why)
        expansion.expanded(self.layers, self.flow, self.tensors, self.claims)
        for p in named:
            layer = self.layers[p]
            if not layer.inputs or not layer.outputs:
                continue
            region = boundary.between(p, layer, self.flow, self.tensors, self.claims, alone=False)
            more = [i for i in region.nodes if not self.claims.claimed(i)]
            if more and self.claims.of_layer[p].keys() <= set(region.nodes):
                self.claims.add(p, more, "boundary", region.why)

    def foreign(self, p: int, ends: tuple[str, str], reason: str) -> boundary.Region:
        """A ForeignNode of which only the two ends are known."""
        first, last = (self.speller.find(e) for e in ends)
        if len(first) != 1 or len(last) != 1:
            gone = ends[0] if len(first) != 1 else ends[1]
            text = f"its range ends at {gone}, which is no node of the model"
            return boundary.Region((), f"{reason}; {text}" if reason else text)
        if self.flow.number[first[0]] > self.flow.number[last[0]]:
            return boundary.Region((), "its range runs against the graph")
        nodes = boundary.within(first[0], last[0], self.flow)
        free = tuple(i for i in nodes if not self.claims.claimed_elsewhere(i, p))
        return boundary.Region(free, f"the nodes on paths from {first[0]} to {last[0]}")

    def enclosed(self) -> None:
        """A working node fed by a layer and read by the same layer ran in it (boundary), unless the
        layer's kernels cannot have run one of them: then what it is known by is doubtful."""
        after, before = self.claims.windows()
        inside: dict[int, list[int]] = {}
        for i in range(len(self.flow.nodes)):
            free = self.flow.alive[i] and not self.claims.claimed(i)
            if after[i] == before[i] and free and not self.flow.is_movement(i):
                inside.setdefault(after[i], []).append(i)
        for p, nodes in inside.items():
            kernels = self.layers[p].kernels
            if all(kernel_tokens.allows(kernels, self.flow.nodes[i].op) for i in nodes):
                for i in nodes:
                    why = f"{self.flow.nodes[i].name} lies between nodes that the layer names"
                    self.claims.add(p, (i,), "boundary", why)

    def resolution(self, p: int, carried: Carried | None) -> Resolution:
        layer = self.layers[p]
        own = self.claims.of_layer[p]
        if carried is not None and carried.nodes:
            numbers, rule, why, kind = carried.nodes, carried.rule, carried.why, "movement"
            rules: tuple[str, ...] = (rule,) * len(numbers)
        elif own:
            numbers = tuple(sorted(own))
            rules = tuple(own[i] for i in numbers)
            rule, why = self.claims.rule(p), self.claims.why[p]
            moves = all(self.flow.is_movement(i) for i in numbers)
            kind = "movement" if moves or layer.name.endswith(" copy") else "compute"
        else:
            numbers, rules, rule = (), (), "unresolved"
            why = carried.why if carried is not None else self.why_not.get(p, "")
            if layer.nameless:
                why = why or "a kernel without a name of its own"
            elif not why.startswith("the name fits"):
                why = "no node of the model has this name" + (f"; {why}" if why else "")
            kind = "movement" if carried is not None else "unknown"
        nodes = tuple(self.flow.nodes[i].name for i in numbers)
        return Resolution(
            name=layer.name,
            occurrence=layer.occurrence,
            nodes=nodes,
            modules=self.graph.modules_of(nodes),
            rule=rule,
            kind=kind,
            why=why,
            node_rules=rules,
        )


def _named(source: str, nodes: dict[str, None], strange: int) -> str:
    count = len(nodes)
    text = f"{source} says {next(iter(nodes))}" if count == 1 else f"{source} lists {count} nodes"
    return text + (f"; {strange} more parts are the engine's own" if strange else "")
