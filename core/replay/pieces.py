"""A long ncu capture in pieces: what each piece takes, and whether all of them fit.

A piece is one run of the program: some launches (``--launch-skip``, ``--launch-count``) and some
metrics. The manifest says for every piece what it took, its file with its hash, and the sequence
of kernels in it; pieces are put together by the manifest, never by the files' names. Nothing here
starts a process or reads a report.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from ..documents import forms
from ..documents.forms import Amount, Count
from ..errors import CheckFailed, InputError
from ..files import read_json, sha256

SCHEMA_VERSION = 1
DONE, FAILED = "done", "failed"
_AGAIN = "copy the folder again, or run the same `layerline ncu` again: what is done is kept"
# A kernel as a sequence shows it: function, grid, block.
Kernel = tuple[str, tuple[Count, ...] | None, tuple[Count, ...] | None]


@dataclass(frozen=True)
class Cut:
    """At most so many launches and so many metrics in one run of the program; None is all."""

    launches: Count | None
    metrics: Count | None


@dataclass(frozen=True)
class Piece:
    """One run of the program. `skip` launches, then `count` (None: all that follow)."""

    skip: Count
    count: Count | None
    part: Count  # of the metrics, from 0
    metrics: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """For people, and for its file."""
        return f"launches-{self.skip}.part-{self.part}"


class Taken(msgspec.Struct, forbid_unknown_fields=True):
    """A piece as the manifest has it. `kernels` is None where no report could be read;
    `page_sha256` is of the raw page beside the report, empty where it is not known."""

    piece: Piece
    status: str
    capture: str  # the key of the capture that it belongs to
    file: str
    sha256: str
    launches: Count
    kernels: list[Kernel] | None = None
    error: str = ""
    seconds: Amount | None = None  # of the whole run of the program
    profiled_seconds: Amount | None = None  # of it, between profiler start and stop
    page_sha256: str = ""

    def __post_init__(self) -> None:
        if self.file in ("", "..") or Path(self.file).name != self.file:
            raise ValueError(f"file is {self.file!r}, not the name of a file in this folder")

    @property
    def page(self) -> str:
        """The name of the raw page that ncu printed of its report."""
        return str(Path(self.file).with_suffix(".csv"))


@dataclass
class Manifest:
    """All pieces of one capture. `key`: hash of the engine, the options and the cut. `expected`:
    the kernels of one iteration by nsys, None where they are not known."""

    key: str
    cut: Cut
    expected: list[Kernel] | None
    taken: list[Taken] = field(default_factory=list)

    def find(self, piece: Piece) -> Taken | None:
        """What became of a piece."""
        return next((t for t in self.taken if t.piece == piece), None)

    def put(self, taken: Taken) -> None:
        """Record what became of a piece."""
        self.taken = [t for t in self.taken if t.piece != taken.piece] + [taken]
        self.taken.sort(key=lambda t: (t.piece.part, t.piece.skip))


def parts(metrics: Sequence[str], most: int | None) -> list[tuple[str, ...]]:
    """The metrics in groups of at most `most`; one empty group where there are none."""
    size = most or max(len(metrics), 1)
    return [tuple(metrics[i : i + size]) for i in range(0, len(metrics), size)] or [()]


def last(piece: Piece, taken: int, expected: int | None) -> bool:
    """Whether a piece was the last of its part: it took fewer than asked, or reached the end."""
    if piece.count is None or taken < piece.count:
        return True
    return expected is not None and piece.skip + taken >= expected


def load(path: Path) -> Manifest:
    """Read a manifest. InputError where it is none."""
    again = "remove it and capture again"
    try:
        data = read_json(path)
    except InputError as e:
        raise InputError(e.what, file=path, fix=again) from None
    forms.check(data, _Version, path, again, _NO_MANIFEST)
    if (version := data["schema_version"]) != SCHEMA_VERSION:
        raise InputError(
            f"has schema version {version}, and {SCHEMA_VERSION} is known",
            file=path,
            fix="read it with the Layerline that wrote it, or capture again",
        )
    return forms.check(data, Manifest, path, again, _NO_MANIFEST)


_NO_MANIFEST = "is no manifest of pieces"


class _Version(msgspec.Struct):
    schema_version: Count


def as_json(manifest: Manifest) -> dict[str, Any]:
    """For `core.files.write_json`."""
    return {"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(manifest)}


def check(manifest: Manifest, folder: Path) -> None:
    """See that the pieces are whole, of this capture, and agree on the sequence of kernels.

    A piece is its report or, where reports were left behind, the page that ncu printed of it.
    CheckFailed names the piece and what is wrong: it failed, its file is missing or another one,
    it belongs to another capture, launches are missing between two pieces, or its kernels are
    not those of the nsys capture or of another part of the metrics.
    """
    if not manifest.taken:
        raise CheckFailed("no piece was captured", file=folder, fix=_AGAIN)
    for t in manifest.taken:
        where = folder / (t.file or t.piece.name)
        if t.status != DONE:
            raise CheckFailed(f"this piece failed: {t.error}", file=where, fix=_AGAIN)
        if t.capture != manifest.key:
            raise CheckFailed("this piece is of another capture", file=where, fix=_AGAIN)
        if not t.launches:
            continue  # the end of the launches fell on the end of a piece
        page = folder / t.page
        if not where.is_file() and not page.is_file():
            raise CheckFailed("this piece is missing", file=where, fix=_AGAIN)
        if not where.is_file():
            continue  # a page alone may have been scrubbed: analysis says so
        if path := changed(t, folder):
            raise CheckFailed("this is not the piece that was captured", file=path, fix=_AGAIN)
    check_sequences(manifest, folder)


def changed(taken: Taken, folder: Path) -> Path | None:
    """The report or the page of a piece that is not the one that was captured."""
    for name, digest in ((taken.file, taken.sha256), (taken.page, taken.page_sha256)):
        if digest and (folder / name).is_file() and sha256(folder / name) != digest:
            return folder / name
    return None


def check_sequences(manifest: Manifest, folder: Path) -> None:
    """See that launches follow each other without a gap, and that the kernels are those of the nsys
    capture and of every part of the metrics, as far as they are known. CheckFailed else."""
    numbers = sorted({t.piece.part for t in manifest.taken})
    if numbers != list(range(len(numbers))):
        raise CheckFailed(f"parts {numbers} of the metrics are not all", file=folder, fix=_AGAIN)
    sequences = [_sequence(manifest, n, folder) for n in numbers]
    for number, (count, kernels) in enumerate(sequences):
        if count != sequences[0][0]:
            raise CheckFailed(
                f"part {number} of the metrics has {count} launches, part 0 {sequences[0][0]}",
                file=folder,
                fix="the program did not do the same work again; capture again",
            )
        for other, name in ((sequences[0][1], "part 0"), (manifest.expected, "the nsys capture")):
            _agree(kernels, other, f"part {number}", name, folder)


def _sequence(manifest: Manifest, part: int, folder: Path) -> tuple[int, list[Kernel] | None]:
    at, kernels, known = 0, [], True
    chosen = [t for t in manifest.taken if t.piece.part == part]
    for t in sorted(chosen, key=lambda t: t.piece.skip):
        if t.piece.skip != at:
            first, last_one = sorted((at, t.piece.skip))
            wrong = "are missing" if at < t.piece.skip else "are in two pieces"
            raise CheckFailed(
                f"launches {first} to {last_one - 1} of part {part} {wrong}",
                file=folder,
                fix=_AGAIN,
            )
        at += t.launches
        known = known and t.kernels is not None
        kernels += t.kernels or []
    return at, kernels if known else None


def _agree(
    ours: list[Kernel] | None, theirs: list[Kernel] | None, part: str, name: str, folder: Path
) -> None:
    if ours is not None and theirs is not None and ours != theirs:
        pairs = enumerate(zip(ours, theirs, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(ours), len(theirs)))
        a, b = (x[at][0] if at < len(x) else "nothing" for x in (ours, theirs))
        raise CheckFailed(
            f"the sequences of kernels disagree: launch {at} is {a} in {part} and {b} in {name}",
            file=folder,
            fix="the program did not do the same work again; capture again",
        )
