"""The events of one device as columns: seven numbers an event, however many there are."""

from __future__ import annotations

from array import array
from typing import Any

from ....core.errors import InputError
from ..base import int64
from ..bounded import valid_text

# As torch names them (torch/csrc/cuda/Module.cpp); others are kept by name.
UNKNOWN = -(2**63)  # of a number that an event has not
MAX_EVENTS = 20_000_000
# The fields that are read, and what an event of running out of memory has for its address.
NUMBERS = ("address", "size", "stream", "time_us")
FIELDS = {"action": "action", "addr": "address", "device_free": "address", "size": "size",
          "stream": "stream", "time_us": "time_us", "frames": "frames",
          "user_metadata": "metadata"}  # fmt: skip


class Stack:
    """The frames of an event, where the list itself was not built."""

    __slots__ = ("code",)

    def __init__(self, code: int) -> None:
        self.code = code


class Texts:
    """Texts that repeat: each once, and its number."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, text: str | None) -> int:
        """The number of a text; -1 for None."""
        if text is None:
            return -1
        found = self._codes.setdefault(text, len(self.values))
        if found == len(self.values):
            self.values.append(text)
        return found


class Shared:
    """What the events of all devices share."""

    def __init__(self) -> None:
        self.actions, self.stacks, self.metadata = Texts(), Texts(), Texts()
        self._lists: dict[int, tuple[list[Any], int]] = {}

    def stack(self, frames: Any) -> int:
        """The number of a list of frames; -1 without any. A list that comes again is known by its
        identity, so it is kept."""
        if isinstance(frames, Stack):
            return frames.code
        if not isinstance(frames, list):
            return -1
        known = self._lists.get(id(frames))
        if known is None:
            known = self._lists[id(frames)] = (frames, self.stacks.code(frame_text(frames)))
        return known[1]


class Trace:
    """The events of a device, in their order."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.action, self.stack, self.metadata = array("i"), array("i"), array("i")
        self.address, self.size = array("q"), array("q")
        self.stream, self.time_us = array("q"), array("q")

    def __len__(self) -> int:
        return len(self.action)

    def add(self, event: Any) -> None:
        """One event, a dict; ValueError for anything else."""
        if not isinstance(event, dict):
            raise ValueError("device_traces that are no list of objects")
        known = {FIELDS[k]: v for k, v in event.items() if isinstance(k, str) and k in FIELDS}
        self.action.append(self.shared.actions.code(text(known.get("action"))))
        for name in NUMBERS:
            value = int64(known.get(name))
            getattr(self, name).append(UNKNOWN if value is None else value)
        self.stack.append(self.shared.stack(known.get("frames")))
        self.metadata.append(self.shared.metadata.code(text(known.get("metadata")) or None))


def too_many(path: Any, rows: int, most: int) -> InputError:
    """A snapshot of more rows than are read."""
    return InputError(
        f"holds {rows:,} blocks and events, {most:,} are read",
        file=path,
        fix="record fewer: _record_memory_history(max_entries=...)",
    )


def text(value: Any) -> str | None:
    """A text that any table can hold; None for what is none."""
    return valid_text(value) if isinstance(value, str) else None


def frame_text(frames: Any) -> str | None:
    """One line per frame, innermost first: ``name (file:line)``."""
    if not isinstance(frames, list):
        return None
    lines = []
    for frame in frames:
        if isinstance(frame, dict):
            name, file = text(frame.get("name")) or "?", text(frame.get("filename"))
            line = int64(frame.get("line"))
            where = f" ({file}:{line})" if file and file != "??" and line else ""
            lines.append(f"{name}{where}")
    return "\n".join(lines) or None
