"""Text by lines: ncu's CSV and logs, nsys' statistics, reports, logs of any kind.

ncu prints quotes unescaped inside quoted fields, so its rows cannot be read by an ordinary CSV
reader and are not: the columns that name the process and the host stand before all free text.
A copy of text, lines or JSON, is UTF-8 and compressed as the capture was.
"""

from __future__ import annotations

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

import pyarrow as pa

from ...core.errors import InputError
from ..readers.base import read_head
from ..readers.bounded import MIB, open_text
from . import fields
from .scrubber import Scrubber

_MOST = 64 * MIB  # characters of one line
_HEADER = re.compile(r'"?[A-Za-z][\w .()%/]{0,60}"?(?:,"?[^,"]{0,200}"?){1,}')
_FIELD = r'(?:"((?:[^"]|"")*)"|([^",\n]*))'
_CONNECTED = re.compile(
    r"(==PROF== (?:Connected to|Disconnected from) process \d+ \()([^\r\n]+)(\))"
)


def rewrite(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """Learn from the file (`out` None), or write its copy, compressed as the file is.

    InputError for a line of over 64 Mi characters or damaged compression.
    """
    rewrite_text(path, out, _Walk(path, scrubber).lines)


class _Walk:
    def __init__(self, path: Path, scrubber: Scrubber) -> None:
        self.path, self.scrubber = path, scrubber
        self.row: re.Pattern[str] | None = None
        self.kinds: list[tuple[str, str | None]] = []

    def lines(self, stream: IO[str]) -> Iterator[str]:
        """The lines, rewritten."""
        while line := stream.readline(_MOST):
            if len(line) >= _MOST:
                raise InputError("has a line of over 64 MiB, which no capture has", file=self.path)
            yield self._line(line)

    def _line(self, line: str) -> str:
        if "==PROF==" in line:
            line = _CONNECTED.sub(self._connected, line)
        if self._is_header(line):
            return line
        match = self.row.match(line) if self.row is not None else None
        if match is None:
            return self.scrubber.cell(line, "text")
        parts, at = [], 0
        for number, (name, kind) in enumerate(self.kinds):
            group = 2 * number + (1 if match[2 * number + 1] is not None else 2)
            start, end = match.span(group)
            parts.append(line[at:start])
            value = line[start:end]
            parts.append(self.scrubber.cell(value, name, kind, name) if kind else value)
            at = end
        return "".join(parts) + self.scrubber.cell(line[at:], "a row")

    def _connected(self, match: re.Match[str]) -> str:
        return match[1] + self.scrubber.cell(match[2], "==PROF==", "process") + match[3]

    def _is_header(self, line: str) -> bool:
        """Whether a line names columns, with those to the last that holds a private value."""
        if len(line) > MIB or not _HEADER.match(line):
            return False
        try:
            names = next(csv.reader([line.rstrip("\r\n")], strict=True), [])
        except csv.Error:
            return False
        kinds = [(name, fields.kind_of(name)) for name in names]
        last = max((i for i, (_, kind) in enumerate(kinds) if kind), default=-1)
        if last < 0 or last >= 40 or not any(n in ("ID", "Process ID") for n in names):
            return False
        self.kinds = kinds[: last + 1]
        self.row = re.compile(",".join([_FIELD] * (last + 1)) + r"(?=,|\r?\n|\Z)")
        return True


def rewrite_text(
    path: Path, out: Path | None, rewritten: Callable[[IO[str]], Iterator[str]]
) -> None:
    """Learn from the file (`out` None), or write its copy: the pieces that `rewritten` makes of its
    text. InputError for damaged compression."""
    with open_text(path) as stream:
        pieces = rewritten(stream)
        if out is None:
            for _ in pieces:
                pass
            return
        compression = read_head(path).compression
        with (
            out.open("wb") as raw,
            _COMPRESSORS.get(compression, contextlib.nullcontext)(raw) as packed,
            io.TextIOWrapper(
                packed, encoding="utf-8", errors="surrogatepass", newline=""
            ) as target,
        ):
            target.writelines(pieces)


def _zstd(raw: IO[bytes]) -> IO[bytes]:
    sink = pa.CompressedOutputStream(pa.PythonFile(raw, mode="w"), "zstd")
    return cast(IO[bytes], io.BufferedWriter(sink))


_COMPRESSORS: dict[str | None, Callable[[IO[bytes]], Any]] = {
    # A gzip file's header holds no name and no time.
    "gzip": lambda raw: gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0),
    "bz2": partial(bz2.BZ2File, mode="wb"),
    "xz": partial(lzma.LZMAFile, mode="wb"),
    "zstd": _zstd,
}
