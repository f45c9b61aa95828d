"""Engine layers in an nsys capture: iterations, layers, and what each operation belongs to.

TensorRT marks its work with NVTX ranges (profiling verbosity DETAILED names them): in the domain
``TensorRT`` one ``ExecutionContext::enqueue`` per inference and one range per layer in it; in
``myelin-exec`` one push/pop range per fused operation inside a ``{ForeignNode[...]}`` layer,
which is finer. Myelin's start/end ranges (``myelinGraphExecute``) are phases, no layers.

The layer of an operation is the innermost such range around its launch (of a CUDA graph's node:
around its capture). An iteration is the outermost range of the iteration's name around the
launch; a CUDA graph launched outside every one is an iteration of its own.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .readers import nsys_schema as schema
from .readers.nsys_attribute import Attribution, Launched
from .readers.nsys_source import NULL, Integers
from .timeline import Flags, Indices

TENSORRT, MYELIN = "TensorRT", "myelin"
_ENQUEUE = re.compile(r"ExecutionContext::(enqueue|execute)")
OWN_ITERATION = "layerline/iteration/*"


@dataclass(frozen=True)
class Layer:
    """A layer by its name and by which of the equal names in an iteration it is, from 0."""

    name: str
    occurrence: int
    label: str  # unique: the name, with " #2" where an iteration has several


@dataclass(frozen=True)
class Placed:
    """Layer and iteration (indices, -1 for none) per row of the operations of one kind."""

    launched: Launched
    layer: Indices
    iteration: Indices

    @property
    def duration(self) -> Integers:
        """ns, `NULL` where unknown."""
        ops = self.launched.operations
        if not len(ops) or (ops.start.min() > NULL and ops.end.min() > NULL):
            return ops.end - ops.start
        unknown = (ops.start == NULL) | (ops.end == NULL)
        return np.where(unknown, NULL, ops.end - ops.start)


@dataclass(frozen=True)
class Runs:
    """The layers of a capture in execution order, and the operations in them.

    `calls`: executions of each layer. `iterations`: how many. `engine`: "tensorrt", or null where
    the ranges are not TensorRT's.
    """

    placed: list[Placed]
    layers: list[Layer]
    calls: Integers
    iterations: int
    engine: str | None
    notes: list[str]


def runs(found: Attribution, iteration: str | None = None) -> Runs:
    """Find iterations and layers.

    `iteration`: a pattern (``*`` and ``?``) for the names of the ranges that are iterations; by
    default TensorRT's enqueue, else this project's own iteration ranges, else the whole capture
    is one iteration. Every operation outside all iterations has none, and is noted.
    """
    kinds = _Kinds(found)
    notes: list[str] = []
    is_iteration, whole = kinds.iterations(iteration, notes)
    around = found.forest.outermost(is_iteration)
    layer_piece = found.forest.nearest(kinds.layers(is_iteration))
    first = _first_piece(found)

    pieces, iterations = [], []
    for launched in found.launched:
        inside = _at(layer_piece, launched.piece)
        if launched.origin is not None:
            made = _at(layer_piece, launched.origin)
            inside = np.where(launched.origin >= 0, made, inside)
        pieces.append(_at(first, inside))
        outer = _at(found.forest.owner, _at(around, launched.piece)).astype(np.int64)
        if whole:
            outer = np.zeros(len(outer), np.int64)
        elif launched.origin is not None and iteration is None:
            alone = (outer < 0) & (launched.origin >= 0) & (launched.call >= 0)
            outer[alone] = len(found.capture.ranges) + launched.call[alone]
        iterations.append(outer)
    numbers, count = _ranked(found, iterations, whole)
    outside = sum(int((n < 0).sum()) for n in numbers)
    if outside:
        notes.append(f"{outside} GPU operations lie outside every iteration and are in no layer")
    layers, codes, calls = _layers(found, pieces, numbers)
    placed = [
        Placed(launched, code, number)
        for launched, code, number in zip(found.launched, codes, numbers, strict=True)
    ]
    return Runs(placed, layers, calls, count, "tensorrt" if kinds.tensorrt else None, notes)


class _Kinds:
    """Which pieces are TensorRT's, Myelin's, iterations."""

    def __init__(self, found: Attribution) -> None:
        ranges = found.capture.ranges
        self._found = found
        owner = found.forest.owner
        self._name = ranges.name[owner]
        self._loose = ranges.loose[owner]
        self._enqueue = self._named(lambda n: _ENQUEUE.match(n) is not None)
        named = self._domain_matrix(ranges, found.capture.domain_names)
        place = (ranges.thread[owner], ranges.domain[owner])
        self._trt = named == TENSORRT
        self._trt = self._trt[place]
        self._myelin = np.char.startswith(named, MYELIN)[place]
        if not self._trt.any() and self._enqueue.any():
            # The domains' names are not in the capture (it began later): the domain of enqueue is
            # TensorRT's, and another one inside a ForeignNode is Myelin's.
            domain = ranges.domain[owner]
            self._trt = np.isin(domain, np.unique(domain[self._enqueue]))
            foreign = self._named(lambda n: n.startswith("{ForeignNode["))
            inside = found.forest.nearest(foreign) >= 0
            self._myelin = inside & ~self._trt
        self.tensorrt = bool(self._enqueue.any() and self._trt.any())

    @staticmethod
    def _domain_matrix(ranges: Any, known: dict[tuple[int, int], str]) -> npt.NDArray[np.str_]:
        table = [
            [known.get((t >> schema.PROCESS_SHIFT, d), "") for d in ranges.domains or [0]]
            for t in ranges.threads or [0]
        ]
        return np.asarray(table, dtype=np.str_)

    def _named(self, test: Any) -> Flags:
        names = self._found.capture.names
        fits: Flags = np.asarray([*(bool(test(n)) for n in names), False], np.bool_)
        chosen: Flags = fits[self._name]
        return chosen

    def iterations(self, pattern: str | None, notes: list[str]) -> tuple[Flags, bool]:
        """Which pieces are iterations, and whether the whole capture is one instead."""
        if pattern is not None:
            return self._named(lambda n: fnmatch.fnmatchcase(n, pattern)), False
        if self.tensorrt:
            return self._enqueue & self._trt, False
        own = self._named(lambda n: fnmatch.fnmatchcase(n, OWN_ITERATION))
        if own.any():
            return own, False
        notes.append("no range marks an iteration; the whole capture is taken as one")
        return own, True

    def layers(self, is_iteration: Flags) -> Flags:
        """Which pieces are layers."""
        named = self._name >= 0
        if self.tensorrt:
            named &= (self._trt | self._myelin) & ~self._enqueue & ~self._loose
        chosen: Flags = named & ~is_iteration
        return chosen


def _at(values: npt.NDArray[Any], index: Indices) -> npt.NDArray[Any]:
    """values[index], -1 where the index is -1."""
    if not len(values):
        return np.full(len(index), -1, values.dtype)
    found = values[index]
    found[index < 0] = -1
    return found


def _first_piece(found: Attribution) -> Indices:
    """Per piece the first piece of its range: they differ where a range was cut or is on two
    threads, and then stand for one execution."""
    owner = found.forest.owner
    first = np.full(len(found.capture.ranges), -1, np.int32)
    first[owner[::-1]] = np.arange(len(owner), dtype=np.int32)[::-1]
    return first[owner]


def _ranked(
    found: Attribution, iterations: list[Integers], whole: bool
) -> tuple[list[Indices], int]:
    """Numbers of the iterations by their start, from 0; -1 stays."""
    if whole:
        return [i.astype(np.int32) for i in iterations], 1
    size = len(found.capture.ranges) + 1
    size += max((int(x.call.max(initial=-1)) for x in found.launched), default=-1) + 1
    start = np.full(size, NULL)
    present = np.zeros(size, np.bool_)
    start[: len(found.capture.ranges)] = found.capture.ranges.start
    for launched, key in zip(found.launched, iterations, strict=True):
        present[key[key >= 0]] = True
        alone = key >= len(found.capture.ranges)
        start[key[alone]] = launched.call_start[alone]
    used = np.flatnonzero(present)
    rank = np.full(size, -1, np.int32)
    rank[used[np.argsort(start[used], kind="stable")]] = np.arange(len(used), dtype=np.int32)
    return [np.where(k >= 0, rank[k], -1).astype(np.int32) for k in iterations], len(used)


def _layers(
    found: Attribution, pieces: list[Indices], iterations: list[Indices]
) -> tuple[list[Layer], list[Indices], Integers]:
    """The layers in execution order, the layer of every operation, executions per layer."""
    size = np.int64(max(1, len(found.forest.start)) + 1)
    keys = [
        np.where(i >= 0, i * size + p + 1, -1)
        for i, p in zip((n.astype(np.int64) for n in iterations), pieces, strict=True)
    ]
    together = np.concatenate(keys) if keys else np.empty(0, np.int64)
    # An execution is a layer's range in an iteration; sorted by iteration, then by start.
    runs_, inverse = np.unique(together, return_inverse=True)
    iteration, piece = runs_ // size, (runs_ % size) - 1
    ranges = found.capture.ranges
    name = ranges.name[found.forest.owner[piece]] if len(ranges) else np.full(len(piece), -1)
    name = np.where(piece >= 0, name, -1).astype(np.int64)
    valid = runs_ >= 0
    width = np.int64(len(found.capture.names) + 1)
    group = np.where(valid, iteration * width + name + 1, -1)
    order = np.argsort(group, kind="stable")
    ordered = group[order]
    begins = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    lengths = np.diff(np.append(begins, len(ordered)))
    occurrence = np.empty(len(runs_), np.int64)
    occurrence[order] = np.arange(len(runs_)) - np.repeat(begins, lengths)
    code = np.where(valid, occurrence * width + name + 1, -1)
    distinct, at = np.unique(code, return_inverse=True)
    if len(distinct) and distinct[0] < 0:
        distinct, at = distinct[1:], at - 1
    place = _execution_order(at.astype(np.int32), iteration, len(distinct))
    sorted_place = np.argsort(place, kind="stable")
    new = np.empty(len(distinct) + 1, np.int32)
    new[sorted_place] = np.arange(len(distinct), dtype=np.int32)
    new[-1] = -1  # where the operation is in no iteration
    layer = new[at]
    calls = np.bincount(layer[layer >= 0], minlength=len(distinct))
    repeated = {int(d % width) for d in distinct if d >= width}
    texts = found.capture.names
    layers = []
    for d in distinct[sorted_place].tolist():
        which, name_code = divmod(d, int(width))
        text = texts[name_code - 1] if name_code else "(no layer range)"
        label = f"{text} #{which + 1}" if name_code in repeated else text
        layers.append(Layer(text, which, label))
    per_operation = layer[inverse]
    cuts = np.cumsum([len(k) for k in keys])[:-1]
    return layers, np.split(per_operation, cuts) if keys else [], calls.astype(np.int64)


def _execution_order(layer: Indices, iteration: Integers, count: int) -> Integers:
    """A place per layer: as in the iteration with the most executions; the others after it."""
    place = np.full(count, np.iinfo(np.int64).max)
    valid = np.flatnonzero(layer >= 0)
    if not len(valid):
        return place
    sizes = np.bincount(iteration[valid])
    fullest = int(sizes.argmax())
    rest = valid[iteration[valid] != fullest]
    typical = valid[iteration[valid] == fullest]
    for which, base in ((rest, len(layer)), (typical, 0)):
        # Backwards, so that the first execution is the one that stays.
        place[layer[which[::-1]]] = base + np.arange(len(which))[::-1]
    return place
