"""Rule 6, `carrier`: what only moves data belongs to the producer of what it moves."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate

from .boundary import Tensors
from .claims import Claims
from .flow import Flow
from .model import RawLayer
from .spelling import Speller, foreign_range, parts, reformat_of


class Carriers:
    """Finds the producer of what each movement layer moves, once all other rules have run."""

    def __init__(
        self,
        layers: Sequence[RawLayer],
        flow: Flow,
        speller: Speller,
        tensors: Tensors,
        claims: Claims,
    ) -> None:
        self._layers = layers
        self._flow = flow
        self._speller = speller
        self._tensors = tensors
        self._claims = claims

    def find(self, p: int) -> tuple[tuple[int, ...], str]:
        """(node numbers, sentence) for the movement layer at position p; no nodes if unknown."""
        layer = self._layers[p]
        reformat = reformat_of(layer.name)
        nodes: tuple[int, ...] = ()
        if layer.inputs:
            nodes = self._writers(layer.inputs)
        if not nodes and reformat is not None:
            nodes = self._reformatted(*reformat)
        if nodes:
            return nodes, f"moves what {self._names(nodes)} made"
        if layer.outputs or reformat is not None:
            nodes = self._readers(layer, reformat)
            if nodes:
                return nodes, f"moves an input or a constant for {self._names(nodes)}"
        if not layer.inputs and reformat is None:
            nodes = self._by_liveness(p)
            if nodes:
                return nodes, f"only what {self._names(nodes)} made can be moved here"
        return (), "it moves data, but not whose"

    def _names(self, nodes: tuple[int, ...]) -> str:
        return ", ".join(self._flow.nodes[i].name for i in nodes[:3])

    def _writers(self, tensors: Sequence[str]) -> tuple[int, ...]:
        found: set[int] = set()
        for t in tensors:
            name = self._tensors.model_name(t)
            if name is not None:
                if name in self._flow.writer:
                    found.add(self._flow.writer[name])
            elif t in self._tensors.writer:
                found.update(self._sinks(self._claims.of_layer[self._tensors.writer[t]]))
        return tuple(sorted(found))

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

    def _readers(self, layer: RawLayer, reformat: tuple[str, int, str] | None) -> tuple[int, ...]:
        """What reads a moved model input or constant: nothing made it, so its first reader
        carries it."""
        if layer.inputs and any(self._made(t) for t in layer.inputs):
            return ()
        found: set[int] = set()
        pending = list(layer.outputs or ())
        for t in pending:
            for p in self._tensors.readers.get(t, ())[:1]:
                found.update(self._claims.of_layer[p])
                if not self._claims.of_layer[p] and self._tensors.moving[p]:
                    pending.extend(self._layers[p].outputs or ())
        if not found and reformat is not None and reformat[0] == "Input":
            nodes = self._nodes_named(reformat[2])
            if not any(self._flow.producers[i] for i in nodes):
                found = nodes
        return tuple(sorted(found))

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
        held = self._claims.of_layer
        earlier = next((q for q in range(p - 1, -1, -1) if held[q]), None)
        later = next((q for q in range(p + 1, len(held)) if held[q]), None)
        if earlier is None or later is None or self._feeding(later) != {earlier}:
            return ()
        return self._escaping(earlier, p)

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
            if not flow.consumers[i] or any(t in outputs for t in flow.nodes[i].outputs):
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
        end = len(self._layers)
        number = [0] * (end + 2)
        total = [0] * (end + 2)
        for q, held in enumerate(self._claims.of_layer):
            until = max((self._last_use[i] for i in held), default=-1)
            if until > q:
                number[q + 1] += 1
                total[q + 1] += q
                number[min(until, end)] -= 1
                total[min(until, end)] -= q
        return list(accumulate(number)), list(accumulate(total))

    def _feeding(self, p: int) -> set[int]:
        """The layers that the nodes of layer p read from, through unclaimed nodes."""
        held = self._claims.of_layer[p]
        pending = [q for i in held for q in self._flow.producers[i]]
        seen = set(pending)
        found: set[int] = set()
        while pending:
            i = pending.pop()
            ran = self._claims.last[i]
            if ran is not None:
                if i not in held:
                    found.add(ran)
                continue
            for q in self._flow.producers[i]:
                if q not in seen:
                    seen.add(q)
                    pending.append(q)
        return found
