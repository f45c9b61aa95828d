"""Which reader takes a file: by its content, never by its name.

A new kind is one module in this package and one line in `READERS`. The order is that of asking:
exact signatures first, then JSON by its shape, then text by its header.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from layerline.core.errors import InputError

from .base import Artefact, Head, Reader, read_head

READERS = (
    "nsys_sqlite",
    "nsys_parquet",
    "ncu_rep",
    "memory_snapshot",
    "trt_layers",
    "trt_profile",
    "onnxruntime_profile",
    "torch_trace",
    "nsys_stats",
    "ncu_csv",
)


def load(name: str) -> Reader:
    """Import one reader by its module's name."""
    return cast(Reader, importlib.import_module(f"{__package__}.{name}"))


def readers() -> Iterator[Reader]:
    """All readers, in the order in which they are asked."""
    for name in READERS:
        try:
            yield load(name)
        except ModuleNotFoundError as e:
            if e.name != f"{__package__}.{name}":
                raise


def identify(path: Path) -> Reader:
    """The reader for a file or directory; InputError says what an unknown one looks like."""
    return identify_head(read_head(path))


def identify_head(head: Head) -> Reader:
    """As `identify`, for a head that was read already."""
    for reader in readers():
        if reader.sniff(head):
            return reader
    kinds = ", ".join(reader.KIND for reader in readers())
    raise InputError("is of no known kind", file=head.path, fix=f"known are {kinds}")


def read(path: Path) -> Artefact:
    """Read a file or directory of any known kind."""
    return identify(path).read(path)
