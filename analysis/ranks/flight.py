"""What Flight Recorder dumps of several ranks say together: which communication did not end, who
did not come to it, and whether the ranks called different ones."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.errors import InputError
from ...core.ranks.identity import spelled

if TYPE_CHECKING:
    from ...core.ranks.flight_recorder import Dump, Entry

_DONE = "completed"
_Place = tuple[str, bool, int]  # group, point to point, number


def lines(dumps: Sequence[Dump]) -> Iterator[str]:
    """One line for each thing that is wrong, the first in each group; one line where none is.

    InputError for dumps of one rank, or without a rank."""
    by_rank: dict[int, Dump] = {}
    for dump in dumps:
        if dump.rank is None:
            raise InputError(
                "has no rank in its name", file=dump.source, fix="name it NAME_3 for rank 3"
            )
        if dump.rank in by_rank:
            raise InputError(
                f"is of rank {dump.rank}, and so is {by_rank[dump.rank].source}", file=dump.source
            )
        by_rank[dump.rank] = dump
    groups = {name: ranks for dump in dumps for name, ranks in dump.groups.items()}
    places: dict[_Place, dict[int, Entry]] = defaultdict(dict)
    for rank, dump in by_rank.items():
        for entry in dump.entries:
            places[entry.group, entry.point_to_point, entry.number][rank] = entry
    told = list(_wrong(places, groups, by_rank))
    yield from told or [
        f"{sum(len(d.entries) for d in dumps):,} communications of {len(dumps)} ranks: all of them "
        "ended"
    ]


def _wrong(
    places: Mapping[_Place, Mapping[int, Entry]],
    groups: Mapping[str, tuple[int, ...]],
    by_rank: Mapping[int, Dump],
) -> Iterator[str]:
    seen: set[tuple[str, bool]] = set()
    for (group, p2p, number), entries in sorted(places.items()):
        if (group, p2p) in seen:
            continue
        names = Counter(e.name for e in entries.values())
        what = f"group {group}, {'send or receive' if p2p else 'collective'} {number}"
        if len(names) > 1 and not p2p:
            seen.add((group, p2p))
            told = "; ".join(
                f"{name} on ranks {spelled([r for r, e in entries.items() if e.name == name])}"
                for name in names
            )
            yield f"{what}: the ranks call different ones: {told}{_where(entries)}"
            continue
        open_ = {r: e for r, e in entries.items() if e.state != _DONE}
        if not open_:
            continue
        seen.add((group, p2p))
        name = next(iter(names))
        members = groups.get(group, tuple(by_rank))
        # A rank whose oldest entry is later has forgotten this one.
        away = [] if p2p else [r for r in members if r in by_rank and r not in entries]
        absent = [r for r in away if by_rank[r].reached(group) < number]
        undumped = [r for r in members if r not in by_rank]
        states = ", ".join(
            f"{state} on ranks {spelled([r for r, e in entries.items() if e.state == state])}"
            for state in dict.fromkeys(e.state for e in entries.values())
        )
        line = f"{what} ({name}) did not end: {states}"
        if absent:
            reached = ", ".join(f"{r} is at {by_rank[r].reached(group)}" for r in absent[:8])
            line += f"; ranks {spelled(absent)} did not come to it (rank {reached})"
        if undumped:
            line += f"; ranks {spelled(undumped)} left no dump"
        yield line + _where(open_)


def _where(entries: Mapping[int, Entry]) -> str:
    frames = Counter(e.frame for e in entries.values() if e.frame)
    return f"; called at {frames.most_common(1)[0][0]}" if frames else ""
