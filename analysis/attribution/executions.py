"""Executions: which operations of a capture are one run of a layer in one iteration.

A layer's range in an iteration is one execution. What runs in a ForeignNode under no name of its
own is one execution for each operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..readers.nsys.attribution import Launched
from ..readers.nsys.range_forest import Flags, Indices
from ..readers.nsys.source import NULL, Integers


def joined(parts: list[npt.NDArray[Any]], kind: Any) -> npt.NDArray[Any]:
    """One column of several; empty, of type `kind`, of none."""
    return np.concatenate(parts) if parts else np.empty(0, kind)


def picked(values: npt.NDArray[Any], index: Indices) -> npt.NDArray[Any]:
    """values[index], -1 where the index is -1."""
    if not len(values):
        return np.full(len(index), -1, values.dtype)
    found = values[index]
    found[index < 0] = -1
    return found


@dataclass(frozen=True)
class Executions:
    """Executions: a layer's range in an iteration, sorted by start within each iteration.

    `piece` is -1 for what an iteration does outside every layer; `of` gives per operation its
    execution, -1 for none.
    """

    piece: Indices
    iteration: Indices
    of: Indices


def _executions(piece: Indices, iteration: Indices, pieces: int, iterations: int) -> Executions:
    """The executions that operations belong to."""
    # A slot per piece, one per iteration for what is outside its layers, one for neither.
    slot = np.where(piece >= 0, piece, pieces + iteration)
    slot[iteration < 0] = pieces + iterations
    owner = np.full(pieces + iterations + 1, -1, np.int32)
    owner[slot] = iteration
    if (owner[slot] == iteration).all():
        used = np.flatnonzero(owner >= 0).astype(np.int32)
        rank = np.full(len(owner), -1, np.int32)
        rank[used] = np.arange(len(used), dtype=np.int32)
        return Executions(np.where(used < pieces, used, -1), owner[used], rank[slot])
    # A range in several iterations (nodes of CUDA graphs): each is an execution.
    key = iteration * np.int64(pieces + 1) + piece + 1
    key[iteration < 0] = -1
    distinct, of = np.unique(key, return_inverse=True)
    if distinct[0] < 0:
        distinct, of = distinct[1:], of - 1
    number, of_piece = np.divmod(distinct, pieces + 1)
    return Executions((of_piece - 1).astype(np.int32), number.astype(np.int32), of.astype(np.int32))


class Nameless:
    """Operations that are layers of their own: each gets a number beyond those of the pieces.

    `piece`: of every operation the layer's. `divided`: per piece, whether what runs directly in it
    is without a name. `moment`: of every operation the time by which executions are ordered.
    """

    def __init__(self, pieces: int, piece: Indices, divided: Flags, moment: Integers) -> None:
        alone = np.flatnonzero(picked(divided, piece) & (piece >= 0))
        self.moment = moment
        self.pieces = pieces
        self.homes = piece[alone]
        self.own = piece
        if len(alone):
            self.own = piece.copy()
            self.own[alone] = pieces + np.arange(len(alone), dtype=np.int32)

    def executions(self, number: Indices, iterations: int) -> Executions:
        """The executions that operations belong to, in order."""
        runs_of = _executions(self.own, number, self.pieces + len(self.homes), iterations)
        return _by_moment(runs_of, self.moment) if len(self.homes) else runs_of

    def home(self, piece: Indices) -> Indices:
        """The pieces, of an operation without a name the piece around it."""
        at = piece >= self.pieces
        homes = piece.copy()
        homes[at] = self.homes[piece[at] - self.pieces]
        return homes


def moments(launched: Sequence[Launched]) -> Integers:
    """When operations were launched; those of a CUDA graph, which are launched at once, or without
    a launch, when they ran."""
    moments = []
    for x in launched:
        known = x.call_start != NULL
        if x.origin is not None:
            known &= x.origin < 0
        moments.append(np.where(known, x.call_start, x.operations.start))
    return joined(moments, np.int64)


def _by_moment(runs_of: Executions, moment: Integers) -> Executions:
    """Executions in the order of their first operations; what is outside every layer last."""
    first = np.full(len(runs_of.piece), np.iinfo(np.int64).max)
    inside = runs_of.of >= 0
    np.minimum.at(first, runs_of.of[inside], moment[inside])
    order = np.lexsort((first, runs_of.piece < 0))
    place = np.empty(len(order) + 1, np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    place[-1] = -1
    return Executions(runs_of.piece[order], runs_of.iteration[order], place[runs_of.of])
