"""Which planned launch each launch of a report of ncu is.

A plan says which launches ncu was told; what it captured may be these, or others where another
version counts invocations in another way, or where the program ran differently.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CheckFailed
from .plan import Launch, Way, by_function, choose, invocations, kinds


@dataclass(frozen=True)
class Seen:
    """A launch that a report holds: its number there, and what tells it apart."""

    number: int
    function: str
    grid: tuple[int, ...] | None
    block: tuple[int, ...] | None
    layer: str | None


def _by_configuration(launch: Launch) -> tuple[Any, ...]:
    shared = (launch.static_shared or 0) + (launch.dynamic_shared or 0)
    return (launch.function, launch.grid, launch.block, shared)


# What ncu counts invocations by: as it was seen to (`plan` relies on it), and as its manual says.
_WAYS: tuple[Way, ...] = (by_function, _by_configuration)


def _readings(launches: Sequence[Launch], chosen: Sequence[Launch]) -> Iterator[list[Launch]]:
    """What a capture may hold that was told to choose these: in each way to count, of a plan
    that was made for either way; then these as they are."""
    names, indices = {x.function for x in chosen}, {x.index for x in chosen}
    for counted in _WAYS:
        for planned in _WAYS:
            pairs = zip(launches, invocations(launches, planned), strict=True)
            numbers = {n for x, n in pairs if x.index in indices}
            if {x.index for x in choose(launches, names, numbers, planned)} == indices:
                yield choose(launches, names, numbers, counted)
    yield list(chosen)


def planned_of(
    launches: Sequence[Launch], chosen: Sequence[Launch] | None, seen: Sequence[Seen]
) -> dict[int, int]:
    """The index of the planned launch of each launch in a report: number there -> index.

    `chosen` are those that ncu was told; None is every one. Where the report is this sequence, or
    that of the same names and invocation numbers counted in another way, its order tells equal
    launches apart. Where it is another, layers of an engine still do (`match`); launches that only
    their place tells apart do not: CheckFailed.
    """
    if chosen is None:
        return match(launches, seen, every=True)
    layered = _layered(launches, seen)
    captured = [_identity(s, layered) for s in seen]
    for reading in _readings(launches, chosen):
        if [_identity(x, layered) for x in reading] == captured:
            return {s.number: x.index for s, x in zip(seen, reading, strict=True)}
    if any(x.place is not None for x in launches):
        raise CheckFailed(
            f"ncu captured {len(seen)} launches that are not the {len(chosen)} chosen ones",
            fix="capture again with --every",
        )
    return match(launches, seen, every=False)


def _layered(launches: Sequence[Launch], seen: Sequence[Seen]) -> bool:
    return any(s.layer for s in seen) and any(x.layer for x in launches)


def _identity(x: Launch | Seen, layered: bool) -> tuple[Any, ...]:
    return (x.function, x.grid, x.block, x.layer if layered else None)


def match(launches: Sequence[Launch], seen: Sequence[Seen], *, every: bool) -> dict[int, int]:
    """The index of the planned launch of each launch in a report: number there -> index.

    By function name (tools spell template arguments differently), grid, block and layer, equal
    ones in their order; where a report knows no layer, by the others. CheckFailed names the first
    launch that is not of the plan, one that may be either of two kinds of work, and with `every`
    the first planned one that is not in the report.
    """
    identity = functools.partial(_identity, layered=_layered(launches, seen))
    waiting: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for launch in launches:
        waiting[identity(launch)].append(launch.index)
    index_of: dict[int, int] = {}
    used: Counter[tuple[Any, ...]] = Counter()
    for s in seen:
        planned, at = waiting.get(identity(s), []), used[identity(s)]
        if at >= len(planned):
            again = "once more than the nsys capture has it" if planned else "which nsys did not"
            raise CheckFailed(
                f"ncu captured {s.function} with grid {s.grid} in {(s.layer or 'no layer')[:80]} "
                f"(number {s.number}), {again}",
                fix="capture both again, with nothing else changed",
            )
        used[identity(s)] += 1
        index_of[s.number] = planned[at]
    if every:
        _sequence(launches, seen, index_of)
    kind_of = kinds(launches)
    for alike, count in used.items():
        if count < len(waiting[alike]) and len({kind_of[i] for i in waiting[alike]}) > 1:
            raise CheckFailed(
                f"ncu captured {count} of {len(waiting[alike])} launches of {alike[0]} with grid "
                f"{alike[1]}, and which of its kinds of work these are cannot be told",
                fix="capture again with --every",
            )
    return index_of


def _sequence(launches: Sequence[Launch], seen: Sequence[Seen], index_of: dict[int, int]) -> None:
    for position, launch in enumerate(launches):
        if position >= len(seen) or index_of[seen[position].number] != launch.index:
            was = seen[position].function if position < len(seen) else "nothing"
            raise CheckFailed(
                f"launch {position} was {launch.function} under nsys and {was} under ncu",
                fix="capture both again, with nothing else changed",
            )
