"""Which lines of Python make the host wait (waits.json)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from .document import Document
from .forms import Count


class Frame(Struct, kw_only=True):
    """A function of Python on a stack: where it begins, and the line that was running."""

    file: str
    begins: Count
    function: str
    line: Count


class SynchronisingCalls(Struct, kw_only=True):
    """An operator that makes the host wait, called from one place; the innermost frame first."""

    operator: str
    phase: str
    module: str | None = None
    count: Count
    stack: list[Frame] = []


class Synchronising(Document, kw_only=True):
    """From which lines of Python one training step makes the host wait."""

    FIX: ClassVar[str] = "train again with --stacks"

    step: Count | None = None
    rows: list[SynchronisingCalls] = []
