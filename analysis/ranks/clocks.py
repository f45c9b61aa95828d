"""One clock for all ranks: how far each rank's own is ahead, and how sure that is.

All ranks of a synchronising collective end together. Within a group the offset of a rank is the
median, over its matched collectives, of its end less the mean of all ends; the median absolute
deviation of what remains is the uncertainty. Groups that share ranks are chained, the surest
first; a chain's uncertainty is the sum of its links'. Ranks that no collective joins are compared
by what they send each other: a message arrives after it was sent, so messages in both directions
bound the offset from both sides (the bounds of NTP, RFC 5905), and half of the room between them
is the uncertainty.

Processes of one host share a clock: their offset is 0, unless the ends of their collectives say
otherwise, as they do for hosts of one name; the uncertainty is the median distance of the ends.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...core.intervals import Ints
from ..model.ranks import SYNCHRONISING, Clock
from .matching import Matched


@dataclass(frozen=True)
class _Link:
    """Offsets of ranks relative to one another, with the uncertainty of each."""

    offsets: Mapping[int, float]
    uncertainty: Mapping[int, float]
    by: str

    @property
    def width(self) -> float:
        return max(self.uncertainty.values(), default=0.0)


# Ends of one collective may be this far apart on one clock, as a thread may wait to be run.
SAME_CLOCK_NS = 1_000_000
LEAST_SPREAD = 3  # collectives that tell how far their ends scatter
# Fewer collectives do not tell that hosts of one name are not one.
LEAST = 4


def align(
    rows: pa.Table,
    matched: Matched,
    ranks: Sequence[int],
    hosts: Mapping[int, str | None] | None = None,
    reports: Mapping[int, str | None] | None = None,
) -> dict[int, Clock]:
    """The clock of each rank; the mean of the ranks of a part is that part's clock's zero. `hosts`:
    the host of each rank, `reports`: the one report of several ranks, whose clock is one; None
    where that is not known."""
    links = _of_reports(reports or {}) + _of_groups(rows, matched, hosts or {})
    links.sort(key=lambda link: link.width)
    clocks, parts = _chained(links, ranks)
    if len(set(parts.values())) > 1:
        links += sorted(_of_messages(rows, matched), key=lambda link: link.width)
        clocks, parts = _chained(links, ranks)
    return _centred(clocks, parts, ranks)


def _of_reports(reports: Mapping[int, str | None]) -> list[_Link]:
    members: dict[str, list[int]] = defaultdict(list)
    for rank, report in reports.items():
        if report is not None:
            members[report].append(rank)
    return [
        _Link(dict.fromkeys(ranks, 0.0), dict.fromkeys(ranks, 0.0), "one report, one clock")
        for ranks in members.values()
        if len(ranks) > 1
    ]


def _of_groups(rows: pa.Table, matched: Matched, hosts: Mapping[int, str | None]) -> list[_Link]:
    rank, end = rows["rank"].to_numpy(), rows["end"].to_numpy(zero_copy_only=False)
    operation = rows["operation"].to_pylist()
    synchronising = np.array([o in SYNCHRONISING for o in operation], dtype=bool)
    chosen = np.flatnonzero(
        synchronising & (matched.instance >= 0) & np.array(matched.complete, dtype=bool)
    )
    by_group: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    groups = rows["group"].to_pylist()
    for i in chosen.tolist():
        by_group[groups[i]][int(matched.instance[i])].append(i)
    links = []
    for key, instances in by_group.items():
        of_ranks: dict[tuple[int, ...], list[list[int]]] = defaultdict(list)
        for members in instances.values():
            ordered = sorted(members, key=lambda i: int(rank[i]))
            of_ranks[tuple(int(rank[i]) for i in ordered)].append(ordered)
        for members_, every in of_ranks.items():
            if len(members_) < 2:
                continue
            ends = end[np.array(every)].astype(np.int64)
            first = int(ends.min())
            host = {hosts.get(r) for r in members_}
            same = host.pop() if len(host) == 1 else None
            links.append(_link(members_, (ends - first).astype(np.float64), key, same))
    return links


def _link(
    ranks: tuple[int, ...], ends: npt.NDArray[np.float64], group: str, host: str | None
) -> _Link:
    """The link of a group: `ends` has a row for each collective, a column for each rank."""
    ahead = ends - ends.mean(axis=1, keepdims=True)
    offset = np.median(ahead, axis=0)
    spread = np.median(np.abs(ahead - offset), axis=0)
    if len(ends) < LEAST_SPREAD:
        spread = np.full(len(ranks), np.inf)  # nothing says how sure it is
    by = f"the ends of {len(ends)} collectives of group {group}"
    apart = np.abs(offset) > np.maximum(SAME_CLOCK_NS, 5 * spread)
    if host is not None and not (len(ends) >= LEAST and apart.any()):
        offset = np.zeros(len(ranks))
        spread = np.median(np.abs(ahead), axis=0)
        by = f"one host, and {by}"
    return _Link(
        dict(zip(ranks, offset.tolist(), strict=True)),
        dict(zip(ranks, spread.tolist(), strict=True)),
        by,
    )


def _of_messages(rows: pa.Table, matched: Matched) -> list[_Link]:
    """Links of pairs of ranks that send to each other."""
    columns = {n: rows[n].to_pylist() for n in ("rank", "operation", "start", "end")}
    sent: dict[int, int] = {}
    received: dict[int, int] = {}
    for i, number in enumerate(matched.instance.tolist()):
        if number >= 0 and columns["operation"][i] == "send":
            sent[number] = i
        elif number >= 0 and columns["operation"][i] == "recv":
            received[number] = i
    least: dict[tuple[int, int], int] = {}
    for number, i in sent.items():
        if number not in received:
            continue
        j = received[number]
        way = (columns["rank"][i], columns["rank"][j])
        took = columns["end"][j] - columns["start"][i]
        least[way] = min(least.get(way, took), took)
    links = []
    for (a, b), there in least.items():
        if a < b and (b, a) in least:
            back = least[b, a]
            ahead, room = (there - back) / 2, max(there + back, 0) / 2
            links.append(_Link({a: 0.0, b: ahead}, {a: 0.0, b: room}, "messages both ways"))
    return links


Known = dict[int, tuple[float, float, str]]


def _chained(links: Sequence[_Link], ranks: Sequence[int]) -> tuple[Known, dict[int, int]]:
    """Offset, uncertainty and source of each rank, and the number of its part."""
    known: Known = {}
    parts: dict[int, int] = {}
    part = 0
    for first in ranks:
        if first in known:
            continue
        known[first], parts[first] = (0.0, 0.0, ""), part
        while (link := _next(links, known, parts, part, ranks)) is not None:
            anchor = min(
                (r for r in link.offsets if parts.get(r) == part), key=lambda r: known[r][1]
            )
            base, width, _ = known[anchor]
            for r, offset in link.offsets.items():
                if r in ranks and r not in known:
                    ahead = base + offset - link.offsets[anchor]
                    known[r], parts[r] = (ahead, width + link.uncertainty[r], link.by), part
            if not known[first][2]:
                known[first] = (0.0, link.uncertainty[first], link.by)
        part += 1
    return known, parts


def _next(
    links: Sequence[_Link],
    known: Known,
    parts: Mapping[int, int],
    part: int,
    ranks: Sequence[int],
) -> _Link | None:
    """The surest link from this part to a rank that is not known yet."""
    for link in links:
        joined = any(parts.get(r) == part for r in link.offsets)
        if joined and any(r in ranks and r not in known for r in link.offsets):
            return link
    return None


def _centred(known: Known, parts: Mapping[int, int], ranks: Sequence[int]) -> dict[int, Clock]:
    clocks = {}
    for part in sorted(set(parts.values())):
        mine = [r for r in ranks if parts[r] == part]
        middle = sum(known[r][0] for r in mine) / len(mine)
        for r in mine:
            offset, width, by = known[r]
            alone = len(mine) == 1
            clocks[r] = Clock(
                0 if alone else round(offset - middle),
                None if alone or math.isinf(width) else round(width),
                None if alone else part,
                "" if alone else by,
            )
    return clocks


def aligned(values: Any, rank: Ints, clocks: Mapping[int, Clock]) -> Ints:
    """Moments of ranks on the clock of all."""
    offsets = {r: c.offset for r, c in clocks.items()}
    shift = np.array([offsets.get(int(r), 0) for r in rank], dtype=np.int64)
    moments: Ints = np.asarray(values, dtype=np.int64) - shift
    return moments
