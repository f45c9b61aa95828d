"""Dumps of PyTorch's Flight Recorder: the last collectives of a rank, and which did not end.

A pickle {version, entries, pg_config, ...} (torch/csrc/distributed/c10d/FlightRecorder.hpp, from
version 2.1 on); entries are {pg_name or pg, collective_seq_id, p2p_seq_id, profiling_name, state,
sizes, frames ...}. It is read by an unpickler that refuses whatever is no plain value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from .base import read_head
from .bounded import read_bytes
from .memory import stream

MOST_BYTES = 1 << 30


@dataclass(frozen=True)
class Entry:
    """A communication of the rank. `number`: in its group, of collectives and of sends apart;
    `state`: scheduled, started or completed; `frame`: where it was called; None: not told."""

    group: str
    number: int
    point_to_point: bool
    name: str
    state: str
    sizes: str
    frame: str | None


@dataclass(frozen=True)
class Dump:
    """One rank's dump; `groups`: the ranks of each group, where they are told."""

    source: str
    rank: int | None
    entries: tuple[Entry, ...]
    groups: Mapping[str, tuple[int, ...]]


def is_dump(path: Path) -> bool:
    """Whether a file looks like a dump; nothing is run or imported."""
    if path.is_dir():
        return False
    head = read_head(path).data
    return head[:1] == b"\x80" and b"entries" in head and b"pg_config" in head


def read(path: Path) -> Dump:
    """The dump in a file. InputError where it is none."""
    value = stream.load(read_bytes(path, MOST_BYTES), path)
    if not isinstance(value, dict) or not isinstance(value.get("entries"), list):
        raise InputError("is a pickle, but no Flight Recorder dump", file=path)
    entries = tuple(e for raw in value["entries"] if (e := _entry(raw)) is not None)
    return Dump(path.name, _rank(path.name), entries, _groups(value.get("pg_config")))


def _entry(raw: Any) -> Entry | None:
    if not isinstance(raw, dict):
        return None
    group = raw.get("process_group", raw.get("pg", raw.get("pg_name", raw.get("pg_id"))))
    if isinstance(group, (tuple, list)):
        group = group[0] if group else ""
    is_p2p = bool(raw.get("is_p2p")) or (
        not raw.get("collective_seq_id") and bool(raw.get("p2p_seq_id"))
    )
    number = raw.get("p2p_seq_id" if is_p2p else "collective_seq_id", raw.get("seq_id"))
    if not isinstance(number, int):
        return None
    frames = raw.get("frames")
    return Entry(
        group=str(group),
        number=number,
        point_to_point=is_p2p,
        name=str(raw.get("profiling_name", "unknown")),
        state=str(raw.get("state", "unknown")),
        sizes=str(raw.get("input_sizes", raw.get("sizes", ""))),
        frame=_frame(frames) if isinstance(frames, list) else None,
    )


def _frame(frames: list[Any]) -> str | None:
    """The first frame outside of torch."""
    for frame in frames:
        if isinstance(frame, dict) and "/torch/" not in str(frame.get("filename", "")):
            return f"{frame.get('filename')}:{frame.get('line')}"
    return None


def _groups(told: Any) -> dict[str, tuple[int, ...]]:
    if not isinstance(told, dict):
        return {}
    groups = {}
    for name, about in told.items():
        ranks = about.get("ranks") if isinstance(about, dict) else None
        if isinstance(ranks, str):
            ranks = [int(r) for r in re.findall(r"\d+", ranks)]
        if isinstance(ranks, list) and all(isinstance(r, int) for r in ranks):
            groups[str(name)] = tuple(ranks)
    return groups


def _rank(name: str) -> int | None:
    """The rank in a dump's name: torch writes PREFIX and the rank (nccl_trace_rank_3)."""
    found = re.findall(r"\d+", name)
    return int(found[-1]) if found else None
