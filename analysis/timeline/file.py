"""Groups to a file that ui.perfetto.dev opens."""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

from ...core.files import replacing
from .tracks import Group, Track
from .writer import Writer


def write(path: Path, groups: Sequence[Group]) -> None:
    """Write a timeline, whole or not at all; compressed where `path` ends in ``.gz``.

    All groups are aligned: the first measured operation of each is at the same moment, which is
    the length of the longest preparation (launches, host operators) before any of them.
    """
    base = max((g.before() for g in groups), default=0)
    with replacing(path) as temporary:
        if path.suffix == ".gz":
            # No time of writing: the same timeline is the same file.
            with (
                temporary.open("wb") as raw,
                gzip.GzipFile("", "wb", compresslevel=5, fileobj=raw, mtime=0) as packed,
            ):
                to_stream(cast(IO[bytes], packed), groups, base)
        else:
            with temporary.open("wb") as stream:
                to_stream(stream, groups, base)


def to_stream(stream: IO[bytes], groups: Sequence[Group], base: int) -> None:
    """Write the packets; `base` is when, in the trace's time, each group's `zero` is."""
    writer = Writer(stream)
    for number, group in enumerate(groups, 1):
        about = "; ".join(f"{k} {v}" for k, v in group.facts.items())
        process = writer.process(number, group.label, number, about)
        shift = base - group.zero
        writer.instant(process, "about this side", group.facts, base)
        for rank, track in enumerate(group.tracks):
            _track(writer, track, process, rank, shift)
    writer.close()


def _track(writer: Writer, track: Track, parent: int, rank: int, shift: int) -> None:
    if track.slices is not None:
        # Lanes are tracks of the same name and parent: the interface draws them as one.
        for lane in track.lanes:
            uuid = writer.track(track, parent, rank)
            writer.lane(uuid, track.slices, lane, shift)
    elif track.values is not None:
        values = track.values
        uuid = writer.track(track, parent, rank, counter=values.unit)
        writer.counter(uuid, (values.time + shift).tolist(), values.value.tolist())
    else:
        uuid = writer.track(track, parent, rank)
        for below, child in enumerate(track.below):
            _track(writer, child, uuid, below, shift)


def lines(group: Group) -> list[str]:
    """What was written of a side, for people, one line each."""
    facts = group.facts
    which = f"iteration {facts['iteration']}" if "iteration" in facts else "the whole capture"
    kinds = [k.removesuffix("_count") for k in facts if k.endswith("_count")]
    drawn = ", ".join(f"{facts[f'{k}_count']} {k} ({_time(facts, k)})" for k in kinds)
    head = f"{group.label}: {which} of {facts['iterations_in_capture']}: {drawn or 'nothing'}"
    return [head, *(f"{group.label}: {note}" for note in group.notes)]


def _time(facts: Mapping[str, Any], kind: str) -> str:
    own = " self time" if f"{kind}_inclusive_ns" in facts else ""
    return f"{facts[f'{kind}_ns']} ns{own}"
