"""Memory snapshots of PyTorch: loaded without running anything, written as a plain pickle."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ..readers.base import read_head
from ..readers.bounded import read_bytes
from ..readers.memory import snapshot, stream
from . import fields
from .scrubber import Scrubber


def rewrite(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """Learn from the snapshot (`out` None), or write its copy.

    InputError for a pickle that asks to import anything, is damaged, or nested without end.
    """
    value = stream.load(read_bytes(path, snapshot.LIMIT), path)
    try:
        value = _Walk(scrubber).value(value, "", "a list")
        if out is not None:
            data = pickle.dumps(value, protocol=4)
            packed = read_head(path).compression == "gzip"
            out.write_bytes(gzip.compress(data, mtime=0) if packed else data)
    except RecursionError:
        raise InputError("is a pickle nested too deeply for a snapshot", file=path) from None


class _Walk:
    """Rewrites the strings of plain values; what is shared, or refers to itself, stays so."""

    def __init__(self, scrubber: Scrubber) -> None:
        self.scrubber = scrubber
        self.done: dict[int, Any] = {}

    def value(self, item: Any, key: str, place: str) -> Any:
        if isinstance(item, str):
            return self.scrubber.cell(item, place, fields.kind_of(key), key)
        if isinstance(item, bytes | bytearray):
            self.scrubber.remove(place, "binary data", 1 if item else 0)
            return type(item)()
        if not isinstance(item, dict | list | tuple):
            return item
        if id(item) in self.done:
            return self.done[id(item)]
        if isinstance(item, tuple):
            changed: Any = tuple(self.value(inner, key, place) for inner in item)
            self.done[id(item)] = changed
            return changed
        changed = self.done[id(item)] = type(item)()
        if isinstance(item, list):
            changed.extend(self.value(inner, key, place) for inner in item)
            return changed
        for name, inner in item.items():
            text = name if isinstance(name, str) else key
            changed[self.value(name, "", "a key")] = self.value(inner, text, text)
        return changed
