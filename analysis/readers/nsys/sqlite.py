"""`nsys export --type sqlite` (and the .sqlite that `nsys stats` leaves beside a report)."""

from __future__ import annotations

from pathlib import Path

from ....core.errors import InputError
from ..base import Artefact, Head
from . import ops, schema
from .sqlite_source import SqliteSource

KIND = "nsys-sqlite"
DESCRIPTION = "Nsight Systems capture exported to SQLite"

_MAGIC = b"SQLite format 3\x00"


def sniff(head: Head) -> bool:
    """Any SQLite file: no other kind is one, and `read` says what it is not."""
    return head.compression is None and head.data.startswith(_MAGIC)


def source(path: Path) -> SqliteSource:
    """Open an export; InputError where it is none. To be closed (a context manager)."""
    found = SqliteSource(path)
    if not schema.is_nsys(found.tables):
        found.close()
        raise InputError(
            "is an SQLite file, but no export of nsys (no CUPTI or NVTX table)",
            file=path,
            fix="make one with: nsys export --type sqlite REPORT.nsys-rep",
        )
    return found


def read(path: Path) -> Artefact:
    """The operations of a capture, each with its launch's ranges (table `ops`)."""
    with source(path) as opened:
        return ops.artefact(KIND, opened)
