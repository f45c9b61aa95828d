"""Rule 3, `boundary`: the nodes between a layer's input and output tensors.

Walk back from the outputs along data edges and stop at the inputs. The walk must close: if it
reaches a model input that the layer does not read, the layer does not compute what lies between,
or its tensors are not the model's. Tensors that the engine made (casts, reformats) stand for the
model's tensor they were made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from . import ops
from .claims import Claims
from .flow import Flow
from .model import RawLayer
from .spelling import Speller, is_movement, tensor_spellings


class Tensors:
    """The model's name for each tensor that the engine names, where there is one."""

    def __init__(self, layers: Sequence[RawLayer], flow: Flow, speller: Speller) -> None:
        self._known = flow.known
        self.written = {t for layer in layers for t in layer.outputs or () if t}
        self.read = {t for layer in layers for t in layer.inputs or () if t}
        self._alias: dict[str, str] = {}
        moves = [
            (layer.inputs[0], layer.outputs[0])
            for layer in layers
            if layer.inputs
            and layer.outputs
            and len(layer.outputs) == 1
            and is_movement(layer.name, layer.op)
            and not speller.find(layer.name)
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

    def model_name(self, tensor: str) -> str | None:
        """The model's tensor that `tensor` is or was made from by moving it; None if unknown."""
        for text in tensor_spellings(tensor):
            if text in self._known:
                return text
        return self._alias.get(tensor)


@dataclass(frozen=True)
class Region:
    """What the walk found: nodes in graph order, or none and the reason."""

    nodes: tuple[int, ...]
    why: str


def between(
    layer: int, raw: RawLayer, flow: Flow, tensors: Tensors, claims: Claims | None
) -> Region:
    """The nodes between the layer's tensors. `claims` None: nobody else's claims are looked at."""
    outputs = [m for t in raw.outputs or () if t and (m := tensors.model_name(t)) is not None]
    if not outputs:
        return Region((), f"its output tensors are not the model's ({_some(raw.outputs)})")
    stops: set[str] = set()
    unknown: list[str] = []
    for t in raw.inputs or ():
        name = tensors.model_name(t) if t else None
        if name is not None:
            stops.add(name)
        elif t and t in tensors.written:  # written at run time: not a constant that was folded
            unknown.append(t)
    found, reached, halted, leak = _walk(layer, outputs, stops, flow, claims if unknown else None)
    if leak is not None:
        return Region((), f"its tensors do not bound it: {leak} is not among its inputs")
    if len(halted) < len(unknown):
        return Region((), f"an input tensor is not the model's ({_some(unknown)})")
    if not flow.inputs_known:
        found &= _descendants(found, reached | halted, flow)
    if claims is not None:
        twice = [i for i in found if claims.claimed_elsewhere(i, layer)]
        heavy = [i for i in twice if flow.nodes[i].op in ops.HEAVY]
        if heavy:
            name = flow.nodes[min(heavy)].name
            return Region((), f"between its tensors lies {name}, which another layer runs")
    if not found:
        return Region((), "no node lies between its input and output tensors")
    read = [t for t in raw.inputs or () if tensors.model_name(t) in reached]
    text = f"the nodes between its tensors {_some(read)} and {_some(outputs)}"
    return Region(tuple(sorted(found)), text)


def _walk(
    layer: int, outputs: list[str], stops: set[str], flow: Flow, claims: Claims | None
) -> tuple[set[int], set[str], set[str], str | None]:
    """(nodes, stops reached, tensors of other layers at which it halted, tensor that leaks)."""
    inputs = set(flow.graph.inputs)
    found: set[int] = set()
    reached: set[str] = set()
    halted: set[str] = set()
    pending = [t for t in outputs if t not in stops]
    seen = set(pending)
    while pending:
        tensor = pending.pop()
        i = flow.writer.get(tensor)
        if i is None:
            if tensor in inputs:
                return found, reached, halted, tensor
            continue
        if claims is not None and claims.claimed_elsewhere(i, layer):
            halted.add(tensor)
            continue
        if i in found or not flow.alive[i]:
            continue
        found.add(i)
        for t in flow.reads[i]:
            if t in stops:
                reached.add(t)
            elif t not in seen:
                seen.add(t)
                pending.append(t)
    return found, reached, halted, None


def _descendants(found: set[int], tensors: set[str], flow: Flow) -> set[int]:
    """Of `found`, what reads one of `tensors`, directly or through others of `found`."""
    kept: set[int] = set()
    for i in sorted(found):
        if any(t in tensors for t in flow.reads[i]) or any(p in kept for p in flow.producers[i]):
            kept.add(i)
    return kept


def within(first: str, last: str, flow: Flow) -> tuple[int, ...]:
    """The nodes of ``ForeignNode[first...last]``: what lies on paths from one to the other."""
    start, end = flow.number[first], flow.number[last]
    down = {start}
    for i in range(start + 1, end + 1):
        if any(p in down for p in flow.producers[i]):
            down.add(i)
    up = {end}
    for i in range(end, start - 1, -1):
        if any(c in up for c in flow.consumers[i]):
            up.add(i)
    return tuple(sorted((down & up) | {start, end}))


def _some(names: Sequence[str] | None) -> str:
    """A few names for a sentence."""
    shown = [n for n in names or () if n]
    if not shown:
        return "none"
    return ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")
