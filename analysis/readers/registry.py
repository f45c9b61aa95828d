"""Which reader takes a file: by its content, never by its name.

A new kind is one module in this package and one line in `READERS`. The order is that of asking:
exact signatures first, then JSON by its shape, then text by its header.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

from ...core.errors import InputError
from ...core.files import open_regular
from .base import Artefact, Head, Reader, read_head
from .bounded import MAX_AFTER_JSON, after_json, decode, lines

READERS = (
    "nsys.sqlite",
    "nsys.parquet",
    "ncu.report",
    "memory.snapshot",
    "tensorrt.layers",
    "tensorrt.profile",
    "onnxruntime.profile",
    "torch.trace",
    "parameters.log",
    "nsys.stats",
    "ncu.page",
)
_JSON = ("memory-snapshot", "trt-layers", "trt-profile", "onnxruntime-profile", "torch-trace")


def load(name: str) -> Reader:
    """Import one reader by the name of its module in this package."""
    return cast(Reader, importlib.import_module(f"{__package__}.{name}"))


def readers() -> Iterator[Reader]:
    """All readers, in the order in which they are asked."""
    return map(load, READERS)


def identify(path: Path) -> Reader:
    """The reader for a file or directory; InputError says what an unknown one looks like."""
    _named(path)
    return identify_head(read_head(path))


def identify_head(head: Head) -> Reader:
    """As `identify`, for a head that was read already."""
    for reader in readers():
        if reader.sniff(head):
            return reader
    from .refusals import UNKNOWN_JSON, explain

    error = explain(head, ", ".join(reader.KIND for reader in readers()))
    if error.what.startswith(UNKNOWN_JSON):
        for name, keys in _KEYS:
            if keys.search(head.json):
                return load(name)  # one value is wrong: the reader says which
    raise error


# Keys that no other JSON has, of whatever value.
_KEYS = (
    ("tensorrt.layers", re.compile(r'"Layers"\s*:(?=.*"Bindings"\s*:)|"LayerType"\s*:', re.DOTALL)),
    ("tensorrt.profile", re.compile(r'"(?:timeMs|averageMs|computeMs|latencyMs)"\s*:')),
    ("onnxruntime.profile", re.compile(r'"cat"\s*:\s*"Node"')),
    ("memory.snapshot", re.compile(r'"(?:segment_type|device_traces)"\s*:')),
    ("torch.trace", re.compile(r'"traceEvents"\s*:|"ph"\s*:\s*"X"')),
)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """InputError for whatever keeps a file from being read whole that no reader foresees: it
    vanishes or changes meanwhile, may not be read, is larger than the memory."""
    stamp = _stamp(path)
    try:
        yield
    except MemoryError:
        size = "" if stamp is None else f" ({stamp[1] / 1e9:,.1f} GB)"
        what, fix = f"does not fit in memory{size}", "capture fewer iterations"
        raise InputError(what, file=path, fix=fix) from None
    except (FileNotFoundError, NotADirectoryError):
        raise InputError("vanished while it was read", file=path) from None
    except UnicodeDecodeError as e:  # also from libraries: sqlite3 decodes its own messages
        raise InputError(f"holds text that is not UTF-8 ({e.reason})", file=path) from None
    except PermissionError as e:
        raise InputError(f"cannot be read ({e.strerror})", file=path) from None
    except InputError:
        if _stamp(path) != stamp:
            raise _changed(path) from None
        raise
    if _stamp(path) != stamp:
        raise _changed(path)


def read(path: Path) -> Artefact:
    """Read a file or directory of any known kind.

    InputError where it is of none, or cannot be read (`reading`).
    """
    _named(path)
    before = read_head(path)
    reader = identify_head(before)
    with reading(path):
        artefact = reader.read(path)
    skipped = before.text[: len(before.text) - len(before.json)].strip("\ufeff\x00 \t\r\n,")
    if reader.KIND in _JSON and before.json[:1] in ("{", "[", '"'):
        if skipped:
            artefact.notes.append(f"what stands before the JSON was left out: {skipped[:60]!r}")
        if behind := _behind(path, before):
            artefact.notes.append(f"what stands after the JSON was left out: {behind[:60]!r}")
    return artefact


def _behind(path: Path, head: Head) -> str:
    """The lines after the JSON of a file that is not compressed; empty where there are none, or
    what is there is a piece of JSON, of which the reader speaks."""
    if head.compression is not None or head.size is None:
        return ""
    with open_regular(path) as file:
        file.seek(max(0, head.size - MAX_AFTER_JSON))
        text = decode(file.read(MAX_AFTER_JSON)).rstrip("\x00 \t\r\n,")
    *before, last = lines(text)
    behind: list[str] = []
    while before and after_json(last):
        behind.insert(0, last)
        last = before.pop()
    end = last[max(map(last.rfind, "}]")) + 1 :]
    return "\n".join([end, *behind]).strip(" \t\n,") if after_json(end) else ""


def _named(path: Path) -> None:
    """InputError for a name that is no text: it is in the tables, as the source."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise InputError("has a name that is not UTF-8", file=path, fix="rename it") from None


def _changed(path: Path) -> InputError:
    return InputError("changed while it was read", file=path, fix="read it when its writer is done")


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
