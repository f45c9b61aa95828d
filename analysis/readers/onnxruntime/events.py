"""The events of an ONNX Runtime profile, one by one, also of a file that is damaged."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import msgspec

from ....core.errors import InputError
from ..bounded import json_start

READ = 1 << 20  # characters at a time
MOST_DAMAGE = 10_000  # entries that are none of the profiler's
MAX_EVENT_CHARS = 4 * READ
MAX_REPEATED = 64 * READ  # characters that are looked at again after damage
_BETWEEN = re.compile("[ \\t\\r\\n,[\ufeff]*")


class Args(msgspec.Struct, gc=False):
    op_name: Any = None
    provider: Any = None
    stream: Any = None
    parent_name: Any = None


class Event(msgspec.Struct, gc=False):
    """What is used of an event; the shapes and types of its tensors are skipped by the parser."""

    name: Any
    cat: Any = None
    ts: Any = None
    dur: Any = None
    pid: Any = None
    tid: Any = None
    args: Args | None = None


@dataclass
class Damage:
    """What could not be read: events left out, and characters after the last whole one.

    InputError where it is so much that the file is something else, or made to take for ever.
    """

    path: Path
    events: int = 0
    repeated: int = 0
    cut: bool = False
    unclosed: bool = False

    def add(self, characters: int = 0) -> None:
        """One more entry that is no event, after `characters` that have to be read again."""
        self.events += 1
        self.repeated += characters
        if self.events > MOST_DAMAGE or self.repeated > MAX_REPEATED:
            what = f"is no profile of ONNX Runtime ({self.events:,} entries are no events)"
            raise InputError(what, file=self.path, fix="is it damaged?")


def events_of(stream: IO[str], damage: Damage) -> Iterator[Event]:
    """The events one by one, however the file is laid out; memory is bounded by one event."""
    decoder, quick = json.JSONDecoder(), msgspec.json.Decoder(Event)
    text, at, ended = "", 0, False
    begun: int | None = None
    while True:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        if at < len(text) and text[at] == "]":
            return
        if at < len(text):
            # ONNX Runtime writes an event on each line: where a line is one, nothing is left to
            # be told apart. Any other layout, and what is no event, is for the slower parser.
            end = text.find("\n", at)
            if end >= 0:
                with contextlib.suppress(msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                    parsed = quick.decode(text[at:end].rstrip(" \t\r,"))
                    at = end
                    yield parsed
                    continue
            try:
                event, at = decoder.raw_decode(text, at)
            except RecursionError:
                raise InputError("is nested too deeply", file=damage.path) from None
            except json.JSONDecodeError as e:
                next_event = text.find("\n{", at + 1)
                if next_event >= 0:  # ONNX Runtime writes one event on each line
                    damage.add(max(e.pos - next_event, 0))
                    at = next_event
                    continue
                if ended or len(text) - at > MAX_EVENT_CHARS:
                    damage.cut = True
                    return
            except ValueError as e:  # an integer of thousands of digits
                raise InputError(f"is not usable JSON ({e})", file=damage.path) from None
            else:
                if isinstance(event, dict) and "name" in event:
                    yield _event(event)
                else:
                    damage.add()
                continue
        if ended:
            damage.unclosed = True
            return
        more = stream.read(READ)
        text, at, ended = text[at:] + more, 0, not more
        if begun is None:
            begun = at = json_start(text)


def _event(members: dict[str, Any]) -> Event:
    """The event with these members, of which any may be of an unexpected type."""
    args = members.get("args")
    args = args if isinstance(args, dict) else {}
    used = {name: members.get(name) for name in Event.__struct_fields__}
    used["args"] = Args(**{name: args.get(name) for name in Args.__struct_fields__})
    return Event(**used)
