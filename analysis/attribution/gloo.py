"""Communications of the gloo backend: ranges ``gloo:all_reduce`` on threads of its own.

Such a trace has neither a group nor a number for them. What was asked for is the operator
``c10d::allreduce_`` on the caller's thread: the k-th of an operation is the k-th range that it
makes, where there are as many of one as of the other (gloo computes reduce-scatter by an
all-reduce, so the range's own name would be wrong). The group is known here where there is only
one; else `analysis.ranks.groups` tells it, by thread.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..model.ranks import POINT_TO_POINT, Group
from ..readers.torch.communication import Arguments, elements, operation_of
from ..readers.torch.events import UNKNOWN, Events, Ints
from .communication import Found, arguments_of

_PREFIX = "gloo:"
# The ranges that an operator of c10d makes.
_MADE_BY = {
    "all-reduce": ("all_reduce",), "all-gather": ("all_gather", "allgather"),
    "reduce-scatter": ("reduce_scatter", "all_reduce"), "all-to-all": ("all_to_all",),
}  # fmt: skip


def found(events: Events, groups: list[Group]) -> list[Found]:
    """The communications of gloo, each with its call where that is known."""
    is_range = np.array([n.startswith(_PREFIX) for n in events.names] or [False])
    ranges = np.flatnonzero(is_range[events.name])
    if not len(ranges):
        return []
    ranges = ranges[np.argsort(events.start[ranges], kind="stable")]
    calls = _calls(events, ranges)
    result, asked = [], []
    for i in ranges.tolist():
        call = calls.get(i, UNKNOWN)
        own = arguments_of(events, i)
        operation = operation_of(str(events.names[events.name[i]]))
        if call != UNKNOWN:
            operation = operation_of(str(events.names[events.name[call]]))
            of_call = arguments_of(events, call)
            own = Arguments(
                dims=of_call.dims,
                types=(*own.types, *of_call.types),
                inputs=of_call.inputs,
                dtype=next(iter(own.types), None),
            )
        asked.append(_size(operation, own))
        start, end = int(events.start[i]), events.end_of(i)
        by = "order" if call != UNKNOWN else "record"
        result.append(Found(call if call != UNKNOWN else i, operation, own, start, end, by))
    several = [g for g in groups if g.ranks is None or len(g.ranks) > 1]
    return [
        replace(
            f,
            group=_only(several if f.operation in POINT_TO_POINT else groups),
            thread=_number(events.places[events.thread[i]]),
            arguments=replace(f.arguments, group_size=size),
        )
        for f, i, size in zip(result, ranges.tolist(), asked, strict=True)
    ]


def _only(groups: list[Group]) -> Group | None:
    return groups[0] if len(groups) == 1 else None


def _number(place: object) -> int:
    return place if isinstance(place, int) else UNKNOWN


def _calls(events: Events, ranges: Ints) -> dict[int, int]:
    """The operator that asked for each range, by the range."""
    is_call = np.array([n.startswith("c10d::") for n in events.names] or [False])
    calls = np.flatnonzero(is_call[events.name])
    calls = calls[np.argsort(events.start[calls], kind="stable")]
    names = [str(events.names[events.name[i]]).removeprefix(_PREFIX) for i in ranges.tolist()]
    present = set(names)
    made: dict[str, list[int]] = {}
    for i in calls.tolist():
        operation = operation_of(str(events.names[events.name[i]]))
        usual = _MADE_BY.get(operation, (operation.replace("-", "_"),))
        name = next((n for n in usual if n in present), usual[0])
        made.setdefault(name, []).append(i)
    result: dict[int, int] = {}
    for name, asked in made.items():
        mine = [i for i, n in zip(ranges.tolist(), names, strict=True) if n == name]
        if len(mine) == len(asked):
            result |= dict(zip(mine, asked, strict=True))
    return result


def _size(operation: str, arguments: Arguments) -> int | None:
    """How many ranks the group has, by the shapes of result and input."""
    if operation not in ("all-gather", "reduce-scatter"):
        return None
    sizes = [s for d in arguments.dims if (s := elements(d))]
    if len(sizes) != 2 or max(sizes) % min(sizes):
        return None
    return max(sizes) // min(sizes)
