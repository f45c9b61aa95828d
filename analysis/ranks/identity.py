"""Whose captures these are: ranks that contradict one another are refused, missing ones named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from ...core.capture_names import CaptureName
from ...core.errors import InputError
from ...core.ranks.identity import spelled
from ..model.ranks import Group, Identity

# Ranks of a job begin and end together; clocks of hosts differ by less.
APART_NS = 600 * 10**9

_IN_NAME = re.compile(r"(?:^|[^a-z])rank[-_.=]?(\d{1,6})(?!\d)", re.I)


class Contradiction(InputError):
    """What a capture says of its rank or job cannot be: nothing is told without it being solved."""


def rank_in_name(name: str) -> int | None:
    """The rank that a file's name says: ours, or rank-3, rank_3, rank3; None where it says none
    or several."""
    own = CaptureName.parse(name)
    if own is not None and own.rank is not None:
        return own.rank
    found = {int(m[1]) for m in _IN_NAME.finditer(PurePath(name).name)}
    return found.pop() if len(found) == 1 else None


def of_trace(source: str, head: Mapping[str, Any], *, device: bool) -> Identity:
    """Whose a profiler trace is, by its `distributedInfo` and its name.

    Contradiction where the two name different ranks."""
    told = head.get("distributedInfo")
    told = told if isinstance(told, Mapping) else {}
    rank, world = _number(told.get("rank")), _number(told.get("world_size"))
    named = rank_in_name(source)
    if rank is not None and named is not None and rank != named:
        raise Contradiction(
            f"is named rank {named}, but holds rank {rank}",
            file=source,
            fix="give it its own name back, or take the rank out of it",
        )
    if rank is not None and world is not None and rank >= world:
        raise Contradiction(
            f"holds rank {rank} of {world} ranks", file=source, fix="export it again"
        )
    groups = told.get("pg_config")
    host = head.get("host_name")
    return Identity(
        source=source,
        tool="torch.profiler",
        rank=named if rank is None else rank,
        world=world,
        backend=str(told["backend"]) if "backend" in told else None,
        host=host if isinstance(host, str) else None,
        device=device,
        groups=tuple(_groups(groups)) if isinstance(groups, list) else (),
    )


def _groups(told: Sequence[Any]) -> list[Group]:
    groups = []
    for one in told:
        if not isinstance(one, Mapping) or "pg_name" not in one:
            continue
        ranks = one.get("ranks")
        known = isinstance(ranks, list) and all(_number(r) is not None for r in ranks) and ranks
        about = str(one.get("pg_desc") or "")
        members = tuple(ranks) if isinstance(ranks, list) and known else None
        groups.append(Group(str(one["pg_name"]), about, members))
    return groups


def _number(value: Any) -> int | None:
    ok = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return value if ok else None


def settled(identities: Sequence[Identity]) -> tuple[list[int], int | None]:
    """The ranks that are missing, and how many ranks the job has (None: not known).

    InputError for a file without a rank, two of one rank, and files of different jobs.
    """
    first = identities[0]
    seen: dict[int, str] = {}
    for one in identities:
        if one.rank is None:
            raise InputError(
                "does not say of which rank it is (no distributedInfo, no rank in its name)",
                file=one.source,
                fix="name the files NAME.rank0.json, NAME.rank1.json and so on",
            )
        if one.rank in seen:
            raise InputError(
                f"is of rank {one.rank}, and so is {seen[one.rank]}",
                file=one.source,
                fix="give one file of each rank",
            )
        seen[one.rank] = one.source
        _same_job(first, one)
    worlds = {one.world for one in identities if one.world is not None}
    world = worlds.pop() if worlds else None
    missing = [r for r in range(world) if r not in seen] if world is not None else []
    return missing, world


def _same_job(first: Identity, one: Identity) -> None:
    for what, mine, other in (
        ("ranks in all", one.world, first.world),
        ("as backend", one.backend, first.backend),
    ):
        if mine is not None and other is not None and mine != other:
            raise InputError(
                f"is of another job: it has {mine} {what}, {first.source} has {other}",
                file=one.source,
                fix="give the captures of one job",
            )
    known = {g.name: g.ranks for g in first.groups if g.ranks is not None}
    for group in one.groups:
        ranks = known.get(group.name)
        # Hosts number the groups that they are not in differently; one's own are the same for all.
        mine = group.ranks is not None and {first.rank, one.rank} <= set(group.ranks)
        if ranks is not None and mine and ranks != group.ranks:
            raise InputError(
                f"is of another job: its group {group.name} is of ranks "
                f"{spelled(group.ranks or ())}, that of {first.source} of {spelled(ranks)}",
                file=one.source,
                fix="give the captures of one job",
            )


def same_time(windows: Mapping[str, tuple[int, int]]) -> None:
    """InputError where captures (first and last moment, by file) are further apart than ranks of
    one job can be."""
    latest = max(windows, key=lambda s: windows[s][0])
    earliest = min(windows, key=lambda s: windows[s][1])
    apart = windows[latest][0] - windows[earliest][1]
    if apart > APART_NS:
        raise InputError(
            f"begins {apart / 6e10:.0f} min after {earliest} has ended: they are of different runs",
            file=latest,
            fix="give captures that were taken at the same time",
        )
