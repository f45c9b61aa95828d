"""What a step of a run says of itself."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from .document import Document
from .forms import Amount, Count


class RecordedFile(Struct, kw_only=True):
    """A file as a step left or took it."""

    sha256: str | None = None
    size: Count | None = None
    mtime_ns: Count | None = None


Skipped = dict[str, str | None]


class StepFacts(Struct, kw_only=True):
    """What a step says of its work."""

    skipped: Skipped | list[Skipped] | None = None


class Version(Document, kw_only=True):
    """manifests/version.json: of which form a run directory is."""

    FIX: ClassVar[str] = "copy that file from where the run is from, or choose another RUN"

    schema_version: Count


class Manifest(Document, kw_only=True):
    """manifests/STAGE/STEP.json."""

    FIX: ClassVar[str] = "run its step again"

    step: str | None = None
    started: str | None = None
    seconds: Amount | None = None
    command: list[str] | None = None
    options: dict[str, Any] | None = None
    versions: dict[str, str | None] | None = None
    facts: StepFacts | None = None
    inputs: dict[str, RecordedFile | None] | None = None
    outputs: dict[str, RecordedFile | None] | None = None
