"""What is known of each rank of a job: small JSON files beside its log, written by its keeper.

``RUN/job/ID/rank0003.HOST.json`` and ``.log``. A file without `ended_ns` is of a keeper that was
itself killed, or that still runs.
"""

from __future__ import annotations

import signal
from pathlib import Path

import msgspec

from ...core.errors import InputError
from ...core.files import listing, write_text


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One rank. `code` is the program's exit status, minus the signal that ended it; `told`:
    it was ended from outside, because another rank had failed or time was over. `profiled`: a
    profiler watched it. Times are of the host's clock, ns since 1970."""

    rank: int
    ranks: int | None
    local: int | None
    host: str
    process: int
    profiled: bool
    started_ns: int
    ended_ns: int | None = None
    code: int | None = None
    told: bool = False

    @property
    def well(self) -> bool:
        """Whether the program ended as it should."""
        return self.code == 0

    @property
    def words(self) -> str:
        """``rank 3 of 8 (host node-1, process 4711)``."""
        of = "" if self.ranks is None else f" of {self.ranks}"
        return f"rank {self.rank}{of} (host {self.host}, process {self.process})"

    def ending(self) -> str:
        """How it ended."""
        if self.code is None:
            return "left no word: what watched it was killed"
        if self.code < 0:
            try:
                name = signal.Signals(-self.code).name
            except ValueError:
                name = f"signal {-self.code}"
            return f"was killed by {name}"
        return f"ended with status {self.code}"


def stem(rank: int, host: str) -> str:
    """What the files of a rank begin with."""
    return f"rank{rank:04d}.{host}"


def write(folder: Path, outcome: Outcome) -> None:
    """Leave what is known so far."""
    text = msgspec.json.encode(outcome).decode()
    write_text(folder / f"{stem(outcome.rank, outcome.host)}.json", text + "\n")


def log_of(folder: Path, outcome: Outcome) -> Path:
    """What the rank printed."""
    return folder / f"{stem(outcome.rank, outcome.host)}.log"


def read(folder: Path) -> list[Outcome]:
    """All ranks of a job, by number. InputError for a file that is none, and for two of one
    rank."""
    found: dict[int, Outcome] = {}
    for path in listing(folder):
        if not path.name.startswith("rank") or path.suffix != ".json":
            continue
        try:
            outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
        except msgspec.DecodeError as e:
            raise InputError(f"tells of no rank ({e})", file=path) from None
        if outcome.rank in found:
            raise InputError(f"rank {outcome.rank} is there twice", file=path)
        found[outcome.rank] = outcome
    return [found[rank] for rank in sorted(found)]
