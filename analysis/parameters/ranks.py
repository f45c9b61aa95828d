"""The ranks of one run as one history: shards added up, replicas once, stages side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from msgspec import structs

from ...core import documents
from ...core.errors import InputError
from ...core.stats import sum_all
from .history import History, Reals

# A parameter on one rank: the rank's history and its number there.
_Part = tuple[History, int]


def together(histories: Sequence[History]) -> History:
    """Parameters by their paths, so that ranks may hold different ones (stages of a pipeline), in
    the order of the ranks. Of a sharded one the shards are added up, as often as the mesh holds
    them being once; of another that several ranks hold, the first counts, and it is noted where the
    others changed something else. InputError where ranks saw different steps, or a parameter has
    two shapes."""
    first = histories[0]
    if len(histories) == 1:
        return first
    for other in histories[1:]:
        if not np.array_equal(other.steps, first.steps):
            raise InputError(
                f"has other steps than {first.source}", file=other.source, fix="copy both again"
            )
    parts: dict[str, list[_Part]] = {}
    for history in histories:
        for at, parameter in enumerate(history.parameters):
            parts.setdefault(parameter.path, []).append((history, at))
    parameters, columns = [], []
    notes = [note for history in histories for note in history.notes]
    for index, held in enumerate(parts.values()):
        parameter, figures = _one(held)
        parameters.append(structs.replace(parameter, index=index))
        columns.append(figures)
        notes += _apart(held)
    figures = {name: np.stack([c[name] for c in columns], axis=1) for name in first.figures}
    return replace(
        first,
        source=f"{first.source} and {len(histories) - 1} more ranks",
        parameters=tuple(parameters),
        figures=figures,
        rank=None,
        notes=tuple(dict.fromkeys(notes)),
    )


def _one(held: Sequence[_Part]) -> tuple[documents.Parameter, dict[str, Reals]]:
    """A parameter of its parts, with each figure by step."""
    shards = [h.parameters[at] for h, at in held]
    whole = shards[0]
    for (history, _), other in zip(held, shards, strict=True):
        if other.shape != whole.shape:
            raise InputError(
                f"{whole.path} has the shape {other.shape}, on another rank {whole.shape}",
                file=history.source,
                fix="are they of one run?",
            )
    figures = {name: [h.figures[name][:, at] for h, at in held] for name in held[0][0].figures}
    if not whole.sharded:
        return whole, {name: values[0] for name, values in figures.items()}
    elements, rows = (sum_all(getattr(p, name) for p in shards) for name in ("elements", "rows"))
    # How often the mesh holds each shard.
    copies = (elements or 0) / (math.prod(whole.shape) or 1)
    copies = copies if copies > 1 else 1.0
    summed = {
        name: np.sqrt(np.sum(np.square(values), axis=0) / copies)
        if name.endswith("norm")
        else np.sum(values, axis=0) / copies
        for name, values in figures.items()
    }
    size = None if elements is None else round(elements / copies)
    rows = None if rows is None else round(rows / copies)
    return structs.replace(whole, elements=size, rows=rows), summed


def _apart(held: Sequence[_Part]) -> Iterator[str]:
    """Ranks that hold one parameter whole, and changed other elements of it."""
    (first, at), *others = held
    parameter = first.parameters[at]
    if parameter.sharded:
        return
    for other, there in others:
        if not np.array_equal(
            other.figures["changed"][:, there], first.figures["changed"][:, at], equal_nan=True
        ):
            yield (
                f"rank {other.rank} changed other elements of {parameter.path} than rank "
                f"{first.rank}: replicas have come apart"
            )
