"""An ncu capture, or why there is none."""

from __future__ import annotations

from msgspec import Struct

from .document import Document
from .forms import Count


class NcuPiece(Struct, kw_only=True):
    """One piece of an ncu capture in pieces."""

    name: str | None = None


class Ncu(Document, kw_only=True):
    """The meta file of an ncu capture."""

    clock_control: str | None = None
    inputs: dict[str, str] = {}
    reports: list[str] = []
    pieces: list[NcuPiece] | None = None
    launches: Count | None = None
    replayed: Count | None = None
    planned: Count | None = None


# What ncu says where the driver lets it read no counters.
PERMISSION = "ERR_NVGPUCTRPERM"


class Refused(Document, kw_only=True):
    """Why ncu counted nothing."""

    why: str | None = None
    fix: str | None = None
