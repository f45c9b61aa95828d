"""PyTorch's Flight Recorder dumps: which collective each rank was in.

A pickle, one file a rank: ``{"version", "pg_config": {id: {"ranks": "[0, 1]"}}, "entries":
[{"process_group": (id, description), "collective_seq_id", "profiling_name", "state", "frames":
[{"name", "filename", "line"}, …], …}]}`` (docs.pytorch.org, Flight Recorder; version 2.10). Only
plain values are taken from the pickle; anything else in it is refused.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ...core.errors import InputError
from ...core.files import listing

NAME = "flight_recorder_rank_"
# Whatever a pickle that is cut, or none at all, or no dump brings up.
PICKLE_ERRORS = (
    pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, LookupError,
    OverflowError, MemoryError, OSError,
)  # fmt: skip


@dataclass(frozen=True)
class Collective:
    """A collective that a rank entered: its number `sequence` in its `group`, whose `ranks` are
    those of the job; `place` is ``own.py:20``, of the caller's code."""

    rank: int
    group: str
    ranks: tuple[int, ...]
    sequence: int
    operation: str
    state: str
    place: str | None

    @property
    def words(self) -> str:
        """``all_reduce number 5 (own.py:20)``."""
        place = f" ({self.place})" if self.place else ""
        return f"{self.operation} number {self.sequence}{place}"


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def read(path: Path) -> list[Collective]:
    """The last collective of each group that a rank's dump tells of. InputError for a file that is
    no dump."""
    number = re.search(r"(\d+)$", path.name)
    try:
        dump: Any = _Plain(io.BytesIO(path.read_bytes())).load()
        groups = {str(k): _ranks(v) for k, v in dump["pg_config"].items()}
        found = [_collective(int(number[1]) if number else -1, e, groups) for e in dump["entries"]]
    except PICKLE_ERRORS as e:
        raise InputError(f"is no Flight Recorder dump ({e})", file=path) from None
    last: dict[str, Collective] = {}
    for one in found:
        if one is not None and (one.group not in last or last[one.group].sequence <= one.sequence):
            last[one.group] = one
    return list(last.values())


def _ranks(group: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", str(group["ranks"])))


def _collective(
    rank: int, entry: dict[str, Any], groups: dict[str, tuple[int, ...]]
) -> Collective | None:
    if entry.get("is_p2p"):
        return None
    group = str(entry["process_group"][0])
    # The default group's configuration stands under an empty name for gloo.
    ranks = groups.get(group) or (groups.get("", ()) if group == "0" else ())
    frames = [f for f in entry.get("frames") or () if not is_library(str(f["filename"]))]
    place = f"{Path(frames[0]['filename']).name}:{frames[0]['line']}" if frames else None
    operation = str(entry["profiling_name"]).rpartition(":")[2]
    sequence = int(entry["collective_seq_id"])
    return Collective(rank, group, ranks, sequence, operation, str(entry["state"]), place)


def is_library(filename: str) -> bool:
    """Whether a frame is of an installed package, the standard library or no file."""
    return bool(re.search(r"/site-packages/|/dist-packages/|/lib/python3|^<", filename))


def read_all(folder: Path) -> tuple[list[Collective], list[str]]:
    """The last collectives of all ranks whose dumps are in a folder; problems with their files."""
    found: list[Collective] = []
    problems = []
    for path in listing(folder):
        if path.name.startswith(NAME):
            try:
                found += read(path)
            except InputError as e:
                problems.append(e.line())
    return found, problems


def waiting(last: Iterable[Collective]) -> tuple[Collective, list[int]] | None:
    """The collective that ranks of a group entered and others did not, with these others; None
    where all came equally far. Of several, the one that misses the fewest ranks."""
    groups: dict[str, list[Collective]] = {}
    for one in last:
        groups.setdefault(one.group, []).append(one)
    found = []
    for of_group in groups.values():
        first = max(of_group, key=lambda one: one.sequence)
        there = {one.rank for one in of_group if one.sequence == first.sequence}
        missing = sorted({*first.ranks, *(one.rank for one in of_group)} - there)
        if missing:
            found.append((first, missing))
    return min(found, key=lambda pair: len(pair[1]), default=None)
