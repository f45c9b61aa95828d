"""Which module scrubs a file, by its content; and what cannot be scrubbed, with the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ...core.errors import InputError
from ..readers.base import Head
from ..readers.ncu import report
from . import arrow, json_text, lines, nsys_sqlite, pickles
from .scrubber import Scrubber

Rewrite = Callable[[Path, Path | None, Scrubber], None]

# torch's tensorboard handler names its files after the host.
_TORCH_NAME = re.compile(r"(.{1,200}?)_\d+\.\d{10,}\.pt\.trace\.json")


def of_file(head: Head) -> Rewrite | None:
    """The function for a file; null for binary data of other kinds. InputError for reports."""
    data = head.data
    if data.startswith(b"SQLite format 3\0") and head.compression is None:
        return nsys_sqlite.rewrite
    refuse_reports(head)
    if data[:1] == b"\x80" and data[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return pickles.rewrite
    if data.startswith((b"PAR1", b"ARROW1")) and head.compression is None:
        return arrow.rewrite
    text = head.stripped.lstrip("\ufeff")
    if b"\0" in data and not text.isprintable() and head.text.count("\0"):
        return None
    if not text or not _is_text(text):
        return None
    return json_text.rewrite if text.startswith(("{", "[")) else lines.rewrite


def _is_text(text: str) -> bool:
    odd = sum(1 for c in text[:4096] if not c.isprintable() and c not in "\r\n\t\f\b\x1b")
    return odd <= len(text[:4096]) // 100


def refuse_reports(head: Head) -> None:
    """InputError for reports in NVIDIA's own formats, which cannot be rewritten."""
    name = head.path.name.lower()
    if head.data.startswith(b"NVIDIA Tegra Profiler Report") or name.endswith(
        (".nsys-rep", ".qdrep", ".qdstrm")
    ):
        raise InputError(
            "is an Nsight Systems report, which cannot be scrubbed",
            file=head.path,
            fix=f"export to sqlite first: nsys export --type sqlite {head.path.name}",
        )
    if report.sniff(head) or name.endswith(".ncu-rep"):
        raise InputError(
            "is an Nsight Compute report, which cannot be scrubbed",
            file=head.path,
            fix=f"write its table instead: ncu --import {head.path.name} --csv --page raw > "
            f"FILE.csv, or layerline read {head.path.name} -o FILE.csv",
        )


def learn_from_name(path: Path, scrubber: Scrubber) -> None:
    """The host that a file of torch's tensorboard handler is named after."""
    match = _TORCH_NAME.match(path.name)
    if match is not None:
        scrubber.learned.learn("host", match[1])
