"""Engine layers in an nsys capture: iterations, layers, and what each operation belongs to.

TensorRT marks its work with NVTX ranges (profiling verbosity DETAILED names them): in the domain
``TensorRT`` one ``ExecutionContext::enqueue`` per inference and one range per layer in it; in
``myelin-exec`` one push/pop range per fused operation inside a ``{ForeignNode[...]}`` layer,
which is finer. Myelin's start/end ranges (``myelinGraphExecute``) are phases, no layers.
In an eager capture of this project the ranges of modules are the layers; in anybody else's the
innermost ranges, without the numbers that PyTorch gives every call (``aten::mm, op_id = 34``).

The layer of an operation is the innermost such range around its launch (of a CUDA graph's node:
around its capture). What runs in a ForeignNode outside of Myelin's ranges, where it has such, is
without a name: each such operation is a layer of its own (`executions`). An iteration is the
outermost range of the iteration's name around the launch; a CUDA graph launched outside every one
is an iteration of its own. Of several engines in a capture each has its own iterations (`engines`)
and its own layers.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...core.labels import labelled
from ...core.own_ranges import ITERATION, MODULE, NO_LAYER
from ...core.resolve.spelling import is_enqueue, is_region
from ...core.torch_ranges import split
from ..readers.nsys import schema
from ..readers.nsys.attribution import Attribution
from ..readers.nsys.capture import KERNEL, Operations
from ..readers.nsys.range_forest import Flags, Indices
from ..readers.nsys.source import NULL, Integers
from .engines import Engines, engines, one
from .executions import Nameless, joined, moments, picked

TENSORRT, MYELIN = "TensorRT", "myelin"


@dataclass(frozen=True)
class Layer:
    """A layer by its name and by which of the equal names in an iteration it is, from 0."""

    name: str
    occurrence: int
    label: str  # unique: the name, with " #2" where an iteration has several
    engine: int = 0  # number of its engine, which the label has where several have the name
    nameless: bool = False  # one operation inside the ForeignNode of that name


@dataclass(frozen=True)
class Runs:
    """The layers of a capture in execution order, and the operations in them.

    `operations`: by kind. `layer` and `iteration` (indices, -1 for none): those of every operation,
    one kind after the other. `calls`: executions of each layer. `iterations`: how many, of all
    engines. `engine`: "tensorrt", or None where the ranges are not TensorRT's. `engines`: which
    iterations are whose.
    """

    operations: list[Operations]
    layer: Indices
    iteration: Indices
    layers: list[Layer]
    calls: Integers
    iterations: int
    engine: str | None
    notes: list[str]
    engines: Engines

    @property
    def ns(self) -> Integers:
        """The duration of every operation, one kind after the other; `NULL` where unknown."""
        return joined([_duration(o) for o in self.operations], np.int64)

    @property
    def kernel(self) -> Flags:
        """Which operations are kernels."""
        return joined([np.full(len(o), o.kind == KERNEL) for o in self.operations], np.bool_)


def _duration(operations: Operations) -> Integers:
    start, end = operations.start, operations.end
    if not len(start) or (start.min() > NULL and end.min() > NULL):
        return end - start
    return np.where((start == NULL) | (end == NULL), NULL, end - start)


def runs(attribution: Attribution, iteration: str | None = None) -> Runs:
    """Find iterations and layers.

    `iteration`: a pattern (``*`` and ``?``) for the names of the ranges that are iterations; by
    default TensorRT's enqueue, else this project's own iteration ranges, else the whole capture
    is one iteration. Every operation outside all iterations has none, and is noted.
    """
    kinds = _Kinds(attribution)
    notes: list[str] = []
    is_iteration, whole = kinds.iterations(iteration, notes)
    around = attribution.forest.outermost(is_iteration)
    is_layer = kinds.layers(is_iteration)
    layer_piece = attribution.forest.nearest(is_layer)
    launched = attribution.launched
    piece = joined([x.piece for x in launched], np.int32)
    outer_piece, inside = picked(around, piece), picked(layer_piece, piece)
    # A range around the iteration is no layer of it; what is inside has the higher index.
    inside[inside < outer_piece] = -1
    outer = picked(attribution.forest.owner, outer_piece)
    call_start = None
    if whole:
        outer = np.zeros(len(outer), np.int32)
    if any(x.origin is not None for x in launched):
        origins = [np.full(len(x.piece), -1) if x.origin is None else x.origin for x in launched]
        origin = joined(origins, np.int32)
        inside = np.where(origin >= 0, picked(layer_piece, origin), inside)
        if not whole and iteration is None:
            call = joined([x.call for x in launched], np.int32)
            call_start = joined([x.call_start for x in launched], np.int64)
            alone = (outer < 0) & (origin >= 0) & (call >= 0)
            outer[alone] = len(attribution.capture.ranges) + call[alone]
            outer_piece = np.where(alone, origin, outer_piece)
    number, count = (outer, 1) if whole else _ranked(attribution, outer, call_start)
    whose = one(count)
    if kinds.tensorrt and iteration is None and count:
        home = np.empty(count, np.int32)
        home[number[number >= 0]] = outer_piece[number >= 0]
        # Around a layer there is a layer of the same enqueue, or one around the enqueue, or none.
        outermost = is_layer & (picked(layer_piece, attribution.forest.parent) < around)
        whose = engines(attribution, home, around, outermost)
    divided = kinds.divided(is_layer, layer_piece)
    own = picked(_first_piece(attribution), inside)
    nameless = Nameless(len(divided), own, divided, moments(launched))
    layers, layer, calls = _layers(attribution, number, count, whose, nameless)
    engine = "tensorrt" if kinds.tensorrt else None
    operations = [x.operations for x in launched]
    capture = Runs(operations, layer, number, layers, calls, count, engine, notes, whose)
    names = [[x.name for x in layers if x.engine == i] for i in range(len(whose))]
    notes += [*_outside(capture.ns[number < 0]), *whose.note(names)]
    return capture


def _outside(ns: Integers) -> list[str]:
    """How many operations are in no iteration, and their time."""
    if not len(ns):
        return []
    known = ns[ns != NULL]
    text = f"{len(ns)} GPU operations lie outside every iteration and are in no layer "
    text += f"({int(known.sum()):,} ns"
    unknown = len(ns) - len(known)
    return [text + (f", and {unknown} of unknown time)" if unknown else ")")]


class _Kinds:
    """Which pieces are TensorRT's, Myelin's, iterations."""

    def __init__(self, attribution: Attribution) -> None:
        ranges = attribution.capture.ranges
        self._attribution = attribution
        owner = attribution.forest.owner
        self._name = ranges.name[owner]
        self._loose = ranges.loose[owner]
        self._enqueue = self._named(is_enqueue)
        named = self._domain_matrix(ranges, attribution.capture.domain_names)
        place = (ranges.thread[owner], ranges.domain[owner])
        self._trt = (named == TENSORRT)[place]
        self._myelin = np.char.startswith(named, MYELIN)[place]
        if not self._trt.any() and self._enqueue.any():
            # The domains' names are not in the capture (it began later): the domain of enqueue is
            # TensorRT's, and another one inside a ForeignNode is Myelin's.
            domain = ranges.domain[owner]
            self._trt = np.isin(domain, np.unique(domain[self._enqueue]))
            foreign = self._named(lambda n: n.startswith("{ForeignNode["))
            inside = attribution.forest.nearest(foreign) >= 0
            self._myelin = inside & ~self._trt
        self.tensorrt = bool((self._enqueue & self._trt).any())

    @staticmethod
    def _domain_matrix(ranges: Any, known: dict[tuple[int, int], str]) -> npt.NDArray[np.str_]:
        table = [
            [known.get((t >> schema.PROCESS_SHIFT, d), "") for d in ranges.domains or [0]]
            for t in ranges.threads or [0]
        ]
        return np.asarray(table, dtype=np.str_)

    def _named(self, test: Any) -> Flags:
        names = self._attribution.capture.names
        fits: Flags = np.asarray([*(bool(test(n)) for n in names), False], np.bool_)
        chosen: Flags = fits[self._name]
        return chosen

    def iterations(self, pattern: str | None, notes: list[str]) -> tuple[Flags, bool]:
        """Which pieces are iterations, and whether the whole capture is one instead."""
        if pattern is not None:
            return self._named(lambda n: fnmatch.fnmatchcase(n, pattern)), False
        if self.tensorrt:
            return self._enqueue & self._trt, False
        own = self._named(lambda n: n.startswith(ITERATION))
        if own.any():
            return own, False
        notes.append("no range marks an iteration; the whole capture is taken as one")
        return own, True

    def divided(self, is_layer: Flags, layer_piece: Indices) -> Flags:
        """Which pieces are ForeignNodes whose name has layers inside in the capture."""
        regions = is_layer & self._named(is_region)
        around = picked(layer_piece, self._attribution.forest.parent)[is_layer]
        inside = np.zeros(len(self._name), np.bool_)
        inside[around[around >= 0]] = True
        pieces: Flags = regions & np.isin(self._name, self._name[regions & inside])
        return pieces

    def layers(self, is_iteration: Flags) -> Flags:
        """Which pieces are layers."""
        named = self._name >= 0
        if self.tensorrt:
            named &= (self._trt | self._myelin) & ~self._enqueue & ~self._loose
        elif (modules := self._named(lambda n: n.startswith(MODULE))).any():
            named &= modules
        chosen: Flags = named & ~is_iteration
        return chosen


def _first_piece(attribution: Attribution) -> Indices:
    """Per piece the first piece of its range: they differ where a range was cut or is on two
    threads, and then stand for one execution."""
    owner = attribution.forest.owner
    first = np.empty(len(attribution.capture.ranges), np.int32)
    first[owner[::-1]] = np.arange(len(owner))[::-1]
    return first[owner]


def _ranked(
    attribution: Attribution, key: Indices, call_start: Integers | None
) -> tuple[Indices, int]:
    """Numbers of the iterations by their start, from 0, -1 stays, and how many there are. A key is
    a range, or of a CUDA graph launched outside every one the number of ranges and of its call."""
    ranges = attribution.capture.ranges
    size = max(len(ranges), int(key.max(initial=-1)) + 1)
    start = np.full(size, NULL)
    start[: len(ranges)] = ranges.start
    if call_start is not None:
        alone = key >= len(ranges)
        start[key[alone]] = call_start[alone]
    present = np.zeros(size, np.bool_)
    present[key[key >= 0]] = True
    used = np.flatnonzero(present)
    rank = np.full(size + 1, -1, np.int32)
    rank[used[np.argsort(start[used], kind="stable")]] = np.arange(len(used))
    return rank[key], len(used)


def _layers(
    attribution: Attribution,
    number: Indices,
    count: int,
    whose: Engines,
    nameless: Nameless,
) -> tuple[list[Layer], Indices, Integers]:
    """The layers in execution order, the layer of every operation, executions per layer."""
    runs_of = nameless.executions(number, count)
    ranges = attribution.capture.ranges
    names, name_of = _layer_names(attribution.capture.names)
    name = np.full(len(runs_of.piece), -1, np.int32)
    layered = runs_of.piece >= 0
    home = nameless.home(runs_of.piece[layered])
    name[layered] = name_of[ranges.name[attribution.forest.owner[home]]]
    alone = {int(n) for n in np.unique(name[runs_of.piece >= nameless.pieces])}
    width = len(names) + 1
    occurrence = _occurrences(runs_of.iteration * np.int64(width) + name + 1, count * width)
    engine = whose.of[runs_of.iteration]
    distinct, layer = _dense((occurrence * np.int64(len(whose)) + engine) * width + name + 1)
    place = _execution_order(layer, runs_of.iteration, len(distinct), whose)
    by_place = np.argsort(place, kind="stable")
    moved = np.empty(len(distinct), np.int32)
    moved[by_place] = np.arange(len(distinct))
    layer = moved[layer]
    calls = np.bincount(layer)
    layers = _labelled(distinct[by_place].tolist(), width, names, len(whose), alone)
    return layers, np.append(layer, np.int32(-1))[runs_of.of], calls


def _layer_names(texts: list[str]) -> tuple[list[str], Indices]:
    """Names of layers, and the name of each text: without PyTorch's numbers of single calls."""
    known: dict[str, int] = {}
    codes = []
    for text in texts:
        if text.startswith(MODULE):
            text = text.removeprefix(MODULE) or "(model)"
        elif ", op_id = " in text or ", seq = " in text:
            text, _ = split(text)
        codes.append(known.setdefault(text, len(known)))
    return list(known), np.asarray([*codes, -1], np.int32)


def _labelled(
    codes: list[int], width: int, texts: list[str], engines: int, nameless: set[int]
) -> list[Layer]:
    repeated = {code % (width * engines) for code in codes if code >= width * engines}
    owners = Counter(name for _, name in {divmod(c % (width * engines), width) for c in codes})
    layers = []
    for code in codes:
        which, own = divmod(code, width * engines)
        engine, name = divmod(own, width)
        text = texts[name - 1] if name else NO_LAYER
        label = labelled(text, which, own in repeated)
        if owners[name] > 1:
            label += f" (engine {engine + 1})"
        layers.append(Layer(text, which, label, engine, name - 1 in nameless))
    return layers


def _occurrences(group: Integers, size: int) -> Indices:
    """How many equal groups come before each."""
    occurrence = np.zeros(len(group), np.int32)
    which = np.arange(len(group), dtype=np.int32)
    if size < 8 * len(group) + 1_000_000:
        # Most names occur once in an iteration: only the others need sorting.
        which = np.flatnonzero(np.bincount(group)[group] > 1).astype(np.int32)
    if len(which):
        order = which[np.argsort(group[which], kind="stable")]
        ordered = group[order]
        begins = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
        lengths = np.diff(np.append(begins, len(ordered)))
        occurrence[order] = np.arange(len(order)) - np.repeat(begins, lengths)
    return occurrence


def _dense(code: Integers) -> tuple[Integers, Indices]:
    """Distinct codes in order, and per entry the index of its code among them."""
    highest = int(code.max(initial=-1))
    if highest < 8 * len(code) + 1_000_000:
        distinct = np.flatnonzero(np.bincount(code))
        rank = np.zeros(highest + 1, np.int32)
        rank[distinct] = np.arange(len(distinct))
        return distinct, rank[code]
    distinct, at = np.unique(code, return_inverse=True)
    return distinct, at.astype(np.int32)


def _execution_order(layer: Indices, iteration: Indices, count: int, whose: Engines) -> Integers:
    """A place per layer: as in the iteration with the most executions; the others after it. One
    engine's layers come before the next one's."""
    if len(whose) > 1:
        place = np.zeros(count, np.int64)
        for engine in range(len(whose)):
            mine = whose.of[iteration] == engine
            own = _execution_order(layer[mine], iteration[mine], count, one(0))
            used = np.unique(layer[mine])
            place[used] = own[used] + 2 * len(layer) * engine
        return place
    place = np.full(count, np.iinfo(np.int64).max)
    if not len(layer):
        return place
    fullest = int(np.bincount(iteration).argmax())
    # Backwards, so that the first execution is the one that stays.
    place[layer[::-1]] = len(layer) + np.arange(len(layer))[::-1]
    typical = np.flatnonzero(iteration == fullest)
    place[layer[typical[::-1]]] = np.arange(len(typical))[::-1]
    return place
