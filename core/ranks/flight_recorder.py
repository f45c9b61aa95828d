"""Dumps of PyTorch's Flight Recorder: the last collectives of a rank, and which did not end.

A pickle, one file a rank: ``{"version", "pg_config": {id: {"ranks": "[0, 1]"}}, "entries":
[{"process_group": (id, description), "collective_seq_id", "p2p_seq_id", "is_p2p", "profiling_name",
"state", "input_sizes", "frames": [{"name", "filename", "line"}, …]}]}`` (torch/csrc/distributed/
c10d/FlightRecorder.hpp, version 2.10; older ones have pg_name, pg_id, seq_id and sizes). Only plain
values are taken from it; a pickle that names anything else is refused.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError
from ..files import at_most, open_regular

MOST_BYTES = 1 << 28
# Whatever a pickle that is cut, or none at all, brings up.
_ERRORS = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, LookupError,
    OverflowError, MemoryError, OSError, struct.error, AssertionError,
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """A communication of a rank. `number`: in its group, of collectives and of sends apart;
    `state`: scheduled, started or completed; `frame`: ``/home/me/own.py:20``, where the user's code
    called it; None: not told."""

    group: str
    number: int
    point_to_point: bool
    name: str
    state: str
    frame: str | None

    @property
    def words(self) -> str:
        """``all_reduce number 5 (own.py:20)``."""
        place = f" ({Path(self.frame).name})" if self.frame else ""
        return f"{self.name.rpartition(':')[2]} number {self.number}{place}"


@dataclass(frozen=True)
class Dump:
    """One rank's dump; `rank`: by the file's name; `groups`: the ranks of each group, where they
    are told."""

    source: str
    rank: int | None
    entries: tuple[Entry, ...]
    groups: Mapping[str, tuple[int, ...]]

    def reached(self, group: str) -> int:
        """The number of the last collective that it entered in a group; 0 for none."""
        mine = (e.number for e in self.entries if e.group == group and not e.point_to_point)
        return max(mine, default=0)


class _Plain(pickle._Unpickler):
    """Python's own: the one in C allocates by numbers that a file names."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(
            f"it names {module}.{name}, and no code of a file is ever imported or run"
        )


def is_dump(head: bytes) -> bool:
    """Whether a file that begins so looks like a dump; nothing is run or imported."""
    return head[:1] == b"\x80" and b"entries" in head and b"pg_config" in head


def read(path: Path) -> Dump:
    """The dump in a file. InputError where it is none."""
    try:
        with open_regular(path) as file:
            data = at_most(file, MOST_BYTES)
        if data is None:
            raise InputError(f"is larger than {MOST_BYTES >> 20} MiB", file=path)
        value: Any = _Plain(io.BytesIO(data)).load()
        entries = tuple(e for raw in value["entries"] if (e := _entry(raw)) is not None)
        groups = dict(_groups(value["pg_config"]))
    except _ERRORS as e:
        raise InputError(f"is no Flight Recorder dump ({e})", file=path) from None
    number = re.findall(r"\d+", path.name)  # torch writes PREFIX and the rank
    return Dump(path.name, int(number[-1]) if number else None, entries, groups)


def _entry(raw: Mapping[str, Any]) -> Entry | None:
    group = raw.get("process_group", raw.get("pg", raw.get("pg_name", raw.get("pg_id"))))
    if isinstance(group, (tuple, list)):
        group = group[0] if group else ""
    is_p2p = bool(raw.get("is_p2p")) or (
        not raw.get("collective_seq_id") and bool(raw.get("p2p_seq_id"))
    )
    number = raw.get("p2p_seq_id" if is_p2p else "collective_seq_id", raw.get("seq_id"))
    if not isinstance(number, int):
        return None
    return Entry(
        group=str(group),
        number=number,
        point_to_point=is_p2p,
        name=str(raw.get("profiling_name", "unknown")),
        state=str(raw.get("state", "unknown")),
        frame=_frame(raw.get("frames") or ()),
    )


def _frame(frames: Any) -> str | None:
    """The innermost frame of the user's code."""
    for frame in frames:
        if not is_library(str(frame["filename"])):
            return f"{frame['filename']}:{frame['line']}"
    return None


def is_library(filename: str) -> bool:
    """Whether a frame is of an installed package, the standard library or no file."""
    return bool(
        re.search(
            r"/site-packages/|/dist-packages/|/lib/python3|/torch/(distributed|nn)/|^<", filename
        )
    )


def _groups(told: Mapping[Any, Any]) -> list[tuple[str, tuple[int, ...]]]:
    found = []
    for name, about in told.items():
        ranks = tuple(int(r) for r in re.findall(r"\d+", str(about["ranks"])))
        # gloo's default group stands under an empty name, and is "0" in the entries.
        found.append((str(name) or "0", ranks))
    return found
