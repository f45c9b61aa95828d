"""Rewriting a file of text; the copy is UTF-8 and compressed as the capture was."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from ..readers.base import read_head
from ..readers.bounded import open_text

Rewritten = Callable[[IO[str]], Iterator[str]]


def rewrite_text(path: Path, out: Path | None, rewritten: Rewritten) -> None:
    """Learn from the file (`out` null), or write its copy: the pieces that `rewritten` makes of its
    text. InputError for damaged compression."""
    with open_text(path) as stream:
        pieces = rewritten(stream)
        if out is None:
            for _ in pieces:
                pass
            return
        with writing(out, path) as target:
            for piece in pieces:
                target.write(piece)


@contextlib.contextmanager
def writing(out: Path, like: Path) -> Iterator[IO[str]]:
    """Open `out` for text, as UTF-8, compressed as the file `like` is.

    A gzip file's header holds no name and no time.
    """
    compression = read_head(like).compression
    with out.open("wb") as raw, contextlib.ExitStack() as stack:
        inner: Any = raw
        if compression == "gzip":
            inner = stack.enter_context(
                gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6)
            )
        elif compression == "bz2":
            inner = stack.enter_context(bz2.BZ2File(raw, "wb"))
        elif compression == "xz":
            inner = stack.enter_context(lzma.LZMAFile(raw, "wb"))
        elif compression == "zstd":
            sink = stack.enter_context(pa.PythonFile(raw, mode="w"))
            inner = stack.enter_context(pa.CompressedOutputStream(sink, "zstd"))
        text = io.TextIOWrapper(
            io.BufferedWriter(inner) if compression == "zstd" else inner,
            encoding="utf-8",
            errors="surrogatepass",
            newline="",
        )
        try:
            yield text
            text.flush()
        finally:
            with contextlib.suppress(ValueError):
                text.detach()
