"""What every reader shares: the head of a file, which tells its kind, and what a reader makes.

A reader is a module with `KIND`, `DESCRIPTION`, `sniff(head)` and `read(path)` (see `Reader`).
Files are untrusted: they are read through `bounded`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from ...core.errors import InputError
from ...core.files import open_regular
from .bounded import compression_of, decode, json_start, open_bytes

HEAD_BYTES = 64 * 1024
MAX_ENTRIES = 10_000  # names of a directory that are looked at


@dataclass(frozen=True)
class Artefact:
    """What a reader makes of a file.

    `tables` in order of importance; there is at least one, and the first is `main`. `facts` are
    JSON values about the whole file (versions, counts, what it is of). `notes` are sentences for
    the user: what was left out and why, what looks wrong.
    """

    kind: str
    tables: dict[str, pa.Table]
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.tables:
            raise ValueError("an artefact has at least one table")

    @property
    def main(self) -> pa.Table:
        """The table that `layerline read -o` writes: the first."""
        return next(iter(self.tables.values()))


@dataclass(frozen=True)
class Head:
    """The beginning of a file, enough to tell its kind.

    `data`: the first 64 KiB, decompressed where the file is compressed. `size`: bytes on disk,
    None for a directory. `entries`: sorted names in a directory, else empty.
    """

    path: Path
    data: bytes
    size: int | None = None
    is_dir: bool = False
    entries: tuple[str, ...] = ()
    compression: str | None = None

    @cached_property
    def text(self) -> str:
        """`data` as text (see `decode`), without a byte order mark; never fails."""
        return decode(self.data)

    @cached_property
    def stripped(self) -> str:
        """`text` without leading white space."""
        return self.text.lstrip()

    @cached_property
    def json(self) -> str:
        """`text` from where a JSON document begins; see `bounded.json_start`."""
        return self.text[json_start(self.text) :]


class Reader(Protocol):
    """A reader module. `sniff` looks at the content only, is cheap and never raises."""

    KIND: str
    DESCRIPTION: str

    @staticmethod
    def sniff(head: Head) -> bool:
        """Whether `read` should take this file."""

    @staticmethod
    def read(path: Path) -> Artefact:
        """The file's tables; LayerlineError, and nothing else, where it cannot be read."""


def read_head(path: Path) -> Head:
    """The head of a file or directory.

    InputError for what is missing, unreadable, empty, or neither a file nor a directory.
    """
    if os.path.isdir(path):  # noqa: PTH112 (Path.is_dir raises where a folder cannot be entered)
        return Head(path, b"", None, True, _entries(path))
    with open_regular(path) as raw:
        size = os.fstat(raw.fileno()).st_size
        try:
            compression = compression_of(raw.read(8))
        except OSError as e:
            raise InputError(f"cannot be read ({e.strerror or e})", file=path) from None
    with open_bytes(path) as stream:
        data = stream.read(HEAD_BYTES)
    if not data:
        raise InputError("is empty", file=path, fix="was the capture cut short?")
    return Head(path, data, size, compression=compression)


def int64(value: Any) -> int | None:
    """`value` where it is an integer of at most 64 bits, else None."""
    ok = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    return value if ok else None


def _entries(path: Path) -> tuple[str, ...]:
    names = []
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                names.append(entry.name)
                if len(names) >= MAX_ENTRIES:
                    break
    except OSError as e:
        raise InputError(f"cannot be listed ({e.strerror})", file=path) from None
    return tuple(sorted(names))
