"""Rule 3, `boundary`: the nodes between a layer's input and output tensors.

Walk back from the outputs along data edges and stop at the inputs. The walk must close: if it
reaches a model input that the layer does not read, the layer does not compute what lies between,
or its tensors are not the model's. Tensors that the engine made (casts, reformats) stand for the
model's tensor they were made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .claims import Claims
from .flow import Flow, met
from .model import RawLayer
from .operator_kinds import HEAVY, VIEW
from .spelling import Speller, blocked_output, is_movement, tensor_spellings


class Tensors:
    """The tensors that the engine's layers hand each other, and the model's names for them."""

    def __init__(self, layers: Sequence[RawLayer], flow: Flow, speller: Speller) -> None:
        self._flow = flow
        self.writer = {t: p for p, layer in enumerate(layers) for t in layer.outputs or () if t}
        self.readers: dict[str, list[int]] = {}
        for p, layer in enumerate(layers):
            for t in dict.fromkeys(layer.inputs or ()):
                self.readers.setdefault(t, []).append(p)
        self._alias: dict[str, str] = {}
        self.moving = [
            is_movement(layer.name, layer.op) and not speller.find(layer.name) for layer in layers
        ]
        self._constant = self._constants(layers)
        for layer in layers:
            blocked = blocked_output(layer.name)
            model = self.model_name(blocked) if blocked is not None else None
            if model is not None and layer.outputs and self.model_name(layer.outputs[0]) is None:
                self._alias[layer.outputs[0]] = model
        self._follow(layers)

    def _follow(self, layers: Sequence[RawLayer]) -> None:
        """What a movement layer writes stands for what it reads, and the reverse."""
        moves = [
            (layer.inputs[0], layer.outputs[0])
            for p, layer in enumerate(layers)
            if self.moving[p] and layer.inputs and layer.outputs and len(layer.outputs) == 1
        ]
        changed = bool(moves)
        while changed:  # chains of moves are short; each pass settles one link
            changed = False
            for source, target in moves:
                a, b = self.model_name(source), self.model_name(target)
                if a is not None and b is None:
                    self._alias[target], changed = a, True
                elif b is not None and a is None:
                    self._alias[source], changed = b, True

    def _constants(self, layers: Sequence[RawLayer]) -> set[str]:
        """Tensors that layers write from constants alone (weights cast at run time)."""
        constants: set[str] = set()
        for layer in layers:
            inputs = [t for t in layer.inputs or () if t]
            if inputs and all(t in constants or self._fixed(t) for t in inputs):
                constants.update(t for t in layer.outputs or () if t)
        return constants

    def _fixed(self, tensor: str) -> bool:
        name = self.model_name(tensor)
        if name is None:
            return tensor not in self.writer
        return self._flow.fixed(name)

    def model_name(self, tensor: str) -> str | None:
        """The model's tensor that `tensor` is or was made from by moving it; None if unknown."""
        for text in tensor_spellings(tensor):
            if text in self._flow.known:
                return text
        return self._alias.get(tensor)

    def strange(self, tensor: str) -> bool:
        """Whether a layer made `tensor` at run time and it is not the model's."""
        return (
            tensor in self.writer
            and tensor not in self._constant
            and self.model_name(tensor) is None
        )


@dataclass(frozen=True)
class Region:
    """What the walk found: nodes in graph order, or none and the reason."""

    nodes: tuple[int, ...]
    why: str


def between(
    layer: int, raw: RawLayer, flow: Flow, tensors: Tensors, claims: Claims, *, alone: bool = True
) -> Region:
    """The nodes between the layer's tensors.

    A strange input tensor is a boundary only if the layer that wrote it has nodes: the walk
    stops at them, and it must meet every one of these layers. `alone` False: nodes that other
    layers claim may lie between (the caller leaves them out).
    """
    outputs = [m for t in raw.outputs or () if t and (m := tensors.model_name(t)) is not None]
    if not outputs:
        return Region((), f"its output tensors are not the model's ({_some(raw.outputs)})")
    strange = [t for t in raw.inputs or () if t and tensors.strange(t)]
    writers = {tensors.writer[t] for t in strange}
    makers = {i: p for p in writers for i in claims.of_layer[p]}
    if not all(claims.of_layer[p] for p in writers):
        return Region((), f"an input tensor is not the model's ({_some(strange)})")
    stops = {m for t in raw.inputs or () if t and (m := tensors.model_name(t)) is not None}
    walk = _Walk(flow, stops, makers)
    leak = walk.leak(outputs)
    if leak is not None:
        return Region((), f"its tensors do not bound it: {leak} is not among its inputs")
    if walk.met != writers:
        return Region((), f"an input tensor is not the model's ({_some(strange)})")
    nodes = walk.found if flow.inputs_known else walk.fed()
    if alone:
        heavy = [
            i for i in nodes if flow.nodes[i].op in HEAVY and claims.claimed_elsewhere(i, layer)
        ]
        if heavy:
            name = flow.nodes[min(heavy)].name
            return Region((), f"between its tensors lies {name}, which another layer runs")
    if not nodes:
        return Region((), "no node lies between its input and output tensors")
    read = [t for t in raw.inputs or () if t in strange or tensors.model_name(t) in walk.reached]
    text = f"the nodes between its tensors {_some(read)} and {_some(outputs)}"
    return Region(_without_free_rides(nodes, flow), text)


def _without_free_rides(nodes: set[int], flow: Flow) -> tuple[int, ...]:
    """`found` in graph order without the views of modules that do no work here: a reshape on the
    way in costs nothing and must not make the layer one that two modules share."""
    working = {flow.nodes[i].module for i in nodes if not flow.is_movement(i)}
    return tuple(
        i
        for i in sorted(nodes)
        if not working or flow.nodes[i].op not in VIEW or flow.nodes[i].module in working
    )


class _Walk:
    """Back from tensors along data edges, to `stops` and to the nodes of `makers`."""

    def __init__(self, flow: Flow, stops: set[str], makers: dict[int, int]) -> None:
        self._flow = flow
        self._stops = stops
        self._makers = makers
        self.found: set[int] = set()
        self.reached: set[str] = set()
        self.met: set[int] = set()
        self._halted: set[str] = set()

    def leak(self, outputs: Sequence[str]) -> str | None:
        """Walk; the model input that is reached without passing a stop, if any."""
        model_inputs = set(self._flow.graph.inputs)
        pending = [t for t in outputs if t not in self._stops]
        seen = set(pending)
        while pending:
            tensor = pending.pop()
            i = self._flow.writer.get(tensor)
            if i is None:
                if tensor in model_inputs:
                    return tensor
                continue
            if i in self._makers:
                self.met.add(self._makers[i])
                self._halted.add(tensor)
                continue
            if i in self.found or not self._flow.alive[i]:
                continue
            self.found.add(i)
            for t in self._flow.reads[i]:
                if t in self._stops:
                    self.reached.add(t)
                elif t not in seen:
                    seen.add(t)
                    pending.append(t)
        return None

    def fed(self) -> set[int]:
        """Of what was found, what reads a boundary tensor, directly or through others found."""
        flow, tensors = self._flow, self.reached | self._halted
        kept: set[int] = set()
        for i in sorted(self.found):
            if any(t in tensors for t in flow.reads[i]) or any(
                p in kept for p in flow.producers[i]
            ):
                kept.add(i)
        return kept


def within(first: str, last: str, flow: Flow) -> tuple[int, ...]:
    """The nodes of ``ForeignNode[first...last]``: what lies on paths from one to the other."""
    start, end = flow.number[first], flow.number[last]
    down = set(met([start], flow.consumers, lambda i: i < end))
    up = set(met([end], flow.producers, lambda i: i > start))
    return tuple(sorted((down & up) | {start, end}))


def release_views(flow: Flow, claims: Claims) -> None:
    """Take from layers the views of modules that do no work in them: beside work that other
    evidence than names found, a reshape that the layer names is only where the graph was cut."""
    for p, own in enumerate(claims.of_layer):
        working = {i: rule for i, rule in own.items() if not flow.is_movement(i)}
        if all(rule == "name" for rule in working.values()):
            continue
        modules = {flow.nodes[i].module for i in working}
        views = (i for i in own if flow.nodes[i].op in VIEW)
        claims.release(p, [i for i in views if flow.nodes[i].module not in modules])


def _some(names: Sequence[str] | None) -> str:
    """A few names for a sentence."""
    known = [n for n in names or () if n]
    if not known:
        return "none"
    return ", ".join(known[:3]) + (", …" if len(known) > 3 else "")
