"""Rule 6, `carrier`: what only moves data belongs to the producer of what it moves.

Unless a movement node of the model reads just that and is of the kind that the layer's word says:
then the layer is that node, by elimination.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from .boundary import Tensors
from .claims import Claims
from .flow import Flow, met, open_at
from .model import RawLayer
from .spelling import Speller, base, foreign_range, moved_tensor, parts, reformat_of

# The movement nodes that a layer's word can be.
_MOVES: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (re.compile(r"slice|split", re.IGNORECASE), frozenset({"Slice", "Split"})),
    (re.compile(r"cast", re.IGNORECASE), frozenset({"Cast", "CastLike"})),
    (re.compile(r"concat", re.IGNORECASE), frozenset({"Concat"})),
    (re.compile(r"pad", re.IGNORECASE), frozenset({"Pad"})),
    (re.compile(r"tran(?:spose)?", re.IGNORECASE), frozenset({"Transpose"})),
)


@dataclass(frozen=True)
class Carried:
    """What a movement layer belongs to; no nodes if that is not known."""

    nodes: tuple[int, ...]
    rule: str
    why: str


class Carriers:
    """Finds the producer of what each movement layer moves, once all other rules have run."""

    def __init__(
        self,
        layers: Sequence[RawLayer],
        flow: Flow,
        speller: Speller,
        tensors: Tensors,
        claims: Claims,
        moving: Sequence[int],
    ) -> None:
        self._layers = layers
        self._flow = flow
        self._speller = speller
        self._tensors = tensors
        self._claims = claims
        self._taken: set[int] = set()
        self._open = [
            p for p, own in enumerate(claims.of_layer) if not own and p not in set(moving)
        ]

    def find(self, p: int) -> Carried:
        """Whom the movement layer at position p belongs to."""
        layer = self._layers[p]
        reformat = reformat_of(layer.name)
        nodes: tuple[int, ...] = ()
        known = any(self._tensors.model_name(t) for t in layer.inputs or ())
        if layer.inputs:
            nodes = self._writers(layer.inputs)
        elif (tensor := moved_tensor(layer.name)) in self._flow.known:
            nodes = self._writers((tensor,)) or self._one_module(self._reading(tensor))
        if not nodes and reformat is not None:
            nodes = self._reformatted(*reformat)
            known = True
        if not nodes and (layer.outputs or reformat is not None):
            nodes = self._readers(p, reformat)
            if nodes:
                why = f"moves an input or a constant for {self._names(nodes)}"
                return Carried(nodes, "carrier", why)
        alive = not nodes and not layer.inputs and reformat is None
        if alive:
            nodes = self._one_module(set(self._by_liveness(p)))
        if not nodes:
            return Carried((), "unresolved", "it moves data, but not whose")
        # A model tensor by name: were the layer a node, its output would be the model's too.
        own = None if known else self._own(p, nodes)
        if own is not None:
            self._taken.add(own)
            why = f"only {self._names((own,))} moves what {self._names(nodes)} made"
            return Carried((own,), "elimination", why)
        if alive and self._between(nodes, p):
            why = "a layer before it is unresolved: what that made may be what is moved"
            return Carried((), "unresolved", why)
        return Carried(nodes, "carrier", f"moves what {self._names(nodes)} made")

    def _own(self, p: int, producers: tuple[int, ...]) -> int | None:
        """The one unclaimed node of the layer's kind that moves what `producers` made."""
        word = base(self._layers[p].name)
        kinds = next((kinds for pattern, kinds in _MOVES if pattern.match(word)), None)
        if kinds is None:
            return None
        flow, claims = self._flow, self._claims
        after, before = self._windows

        def free(i: int) -> bool:
            return flow.is_movement(i) and not claims.claimed(i)

        own = [
            i
            for i in met(producers, flow.consumers, free)
            if free(i) and flow.nodes[i].op in kinds and after[i] < p < before[i]
        ]
        return own[0] if len(own) == 1 and own[0] not in self._taken else None

    @cached_property
    def _windows(self) -> tuple[list[int], list[int]]:
        return self._claims.windows()

    def _names(self, nodes: tuple[int, ...]) -> str:
        return ", ".join(self._flow.nodes[i].name for i in nodes[:3])

    def _writers(self, tensors: Sequence[str]) -> tuple[int, ...]:
        writers: set[int] = set()
        for t in tensors:
            name = self._tensors.model_name(t)
            if name is not None:
                if name in self._flow.writer:
                    writers.add(self._flow.writer[name])
            elif t in self._tensors.writer:
                writers.update(self._sinks(self._claims.of_layer[self._tensors.writer[t]]))
        return tuple(sorted(writers))

    @cached_property
    def _by_name(self) -> dict[str, int]:
        return {layer.name: p for p, layer in enumerate(self._layers)}

    def _nodes_named(self, name: str) -> set[int]:
        """The nodes of the layer called `name`, by its claims or else by the name itself."""
        p = self._by_name.get(name)
        if p is not None and self._claims.of_layer[p]:
            return set(self._claims.of_layer[p])
        return {
            self._flow.number[n]
            for part in parts(name)
            if len(found := self._speller.find(part)) == 1
            for n in found
        }

    def _reformatted(self, side: str, index: int, name: str) -> tuple[int, ...]:
        """The producer of input or output tensor `index` of the layer called `name`."""
        p = self._by_name.get(name)
        if side == "Output":
            ends = foreign_range(name)
            if ends is not None:
                last = self._speller.find(ends[1])
                return (self._flow.number[last[0]],) if len(last) == 1 else ()
            return self._one_module(self._sinks(self._nodes_named(name)))
        if p is not None:
            inputs = self._layers[p].inputs
            if inputs and index < len(inputs):
                return self._writers((inputs[index],))
        nodes = self._nodes_named(name)
        return self._one_module(
            {q for i in nodes for q in self._flow.producers[i] if q not in nodes}
        )

    def _readers(self, p: int, reformat: tuple[str, int, str] | None) -> tuple[int, ...]:
        """What reads a moved model input or constant: nothing made it, so its first reader
        carries it. Where that reads it by another name, the next layer that reads the input, or
        what the input was moved from."""
        layer = self._layers[p]
        if layer.inputs and any(self._made(t) for t in layer.inputs):
            return ()
        readers: set[int] = set()
        pending = list(layer.outputs or ())
        for t in pending:
            for q in self._tensors.readers.get(t, ())[:1]:
                readers.update(self._claims.of_layer[q])
                if not self._claims.of_layer[q] and self._tensors.moving[q]:
                    pending.extend(self._layers[q].outputs or ())
        for t in () if readers else layer.inputs or ():
            name = self._tensors.model_name(t)
            if name is not None and name in self._flow.graph.inputs:
                reading = (self._tensors.readers.get(n, []) for n in (t, name))
                later = sorted(q for q in {*itertools.chain(*reading)} if q > p)
                of_later = (own for q in later if (own := self._claims.of_layer[q]))
                readers.update(next(of_later, {}))
        if not readers and reformat is not None and reformat[0] == "Input":
            nodes = self._nodes_named(reformat[2])
            if not any(q not in nodes for i in nodes for q in self._flow.producers[i]):
                readers = nodes
        return tuple(sorted(readers))

    def _reading(self, tensor: str) -> set[int]:
        """The nodes that read an input of the model or a constant."""
        readers = self._flow.graph.consumers.get(tensor, ())
        return {self._flow.number[n.name] for n in readers}

    def _made(self, tensor: str) -> bool:
        """Whether a node, or another layer, makes the tensor: it is no input and no constant."""
        name = self._tensors.model_name(tensor)
        return self._tensors.strange(tensor) if name is None else name in self._flow.writer

    def _sinks(self, nodes: set[int] | dict[int, str]) -> set[int]:
        """Of `nodes`, those whose output no other of them reads."""
        return {i for i in nodes if not any(c in nodes for c in self._flow.consumers[i])}

    def _one_module(self, nodes: set[int]) -> tuple[int, ...]:
        modules = {self._flow.nodes[i].module for i in nodes}
        return tuple(sorted(nodes)) if len(modules) == 1 else ()

    def _by_liveness(self, p: int) -> tuple[int, ...]:
        """Without tensor names: the one layer whose result still is to be read, or the layer
        just before if what follows reads that and nothing else."""
        counts, sole = self._live
        if counts[p] == 1:
            return self._escaping(sole[p], p)
        claimed = self._claims.of_layer
        earlier = next((q for q in range(p - 1, -1, -1) if claimed[q]), None)
        later = next((q for q in range(p + 1, len(claimed)) if claimed[q]), None)
        if earlier is None or later is None or self._feeding(later) != {earlier}:
            return ()
        return self._escaping(earlier, p)

    def _between(self, nodes: tuple[int, ...], p: int) -> bool:
        """Whether a layer at work of which nothing is known ran since the nodes did."""
        ran = (self._claims.last[i] for i in nodes)
        made = max((q for q in ran if q is not None), default=-1)
        return any(made < q < p for q in self._open)

    def _escaping(self, q: int, p: int) -> tuple[int, ...]:
        """The nodes of layer q whose results are read by others after p."""
        return tuple(sorted(i for i in self._claims.of_layer[q] if self._last_use[i] > p))

    @cached_property
    def _last_use(self) -> list[int]:
        """For each node the position of the last other layer that reads its result."""
        claims, flow, end = self._claims, self._flow, len(self._layers)
        outputs = set(flow.graph.outputs)
        use = [-1] * len(flow.nodes)
        for i in range(len(flow.nodes) - 1, -1, -1):
            # A constant that a layer claims besides is held by no buffer: nobody moves it.
            dangling = not flow.consumers[i] and flow.alive[i]
            if dangling or any(t in outputs for t in flow.nodes[i].outputs):
                use[i] = end
            for c in flow.consumers[i]:
                ran = claims.last[c]
                if ran is None:
                    use[i] = max(use[i], use[c])
                elif ran != claims.last[i]:
                    use[i] = max(use[i], ran)
        return use

    @cached_property
    def _live(self) -> tuple[list[int], list[int]]:
        """For each position: how many earlier layers' results are still to be read, and the sum
        of their positions (the layer itself where there is one)."""
        spans = (
            (q + 1, max((self._last_use[i] for i in claimed), default=-1), q)
            for q, claimed in enumerate(self._claims.of_layer)
        )
        return open_at(spans, len(self._layers))

    def _feeding(self, p: int) -> set[int]:
        """The layers that the nodes of layer p read from, through unclaimed nodes."""
        last = self._claims.last
        sources = met(
            self._claims.of_layer[p], self._flow.producers, lambda i: not self._claims.claimed(i)
        )
        return {ran for i in sources if (ran := last[i]) is not None}
