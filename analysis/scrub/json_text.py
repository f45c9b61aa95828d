"""JSON of any kind: its strings are rewritten in place, everything else stays byte for byte.

Traces are read a few megabytes at a time and never parsed whole, so numbers keep their digits,
and what no strict parser takes (NaN, several documents, a missing end) passes through.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ...core.errors import InputError
from ..readers.bounded import MIB
from . import fields
from .scrubber import Scrubber
from .text import rewrite_text

_CHUNK = 4 * MIB
_MOST = 64 * MIB  # characters of one string
_DEEPEST = 10_000
_KNOWN = 500_000

# A string with the colon that makes it a key, a string that the chunk cuts off, or a bracket.
_TOKEN = re.compile(
    r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|("[^"\\]*(?:\\.[^"\\]*)*\\?\Z)|[\[\]{}]', re.DOTALL
)
_PLAIN = re.compile(r"[\s:,\-+.0-9eE]*(?:true|false|null|NaN|-?Infinity|nan|inf)?\s*\Z")
_OUTSIDE = "text outside of JSON"  # that of a log, as a rule
# Metadata events of a trace whose args hold a name of a process or thread.
_METADATA = {"process_name": "process", "process_labels": "process", "thread_name": "thread"}
_HARMLESS_THREAD = re.compile(r"thread \d+ \((?:python[\d.]*|pt_\w+)\)\Z|stream \d+ ?\Z")
# A frame of Python in a trace: path(line): function.
_FRAME = re.compile(r"((?:[A-Za-z]:)?[\\/][^()\n]{1,1000})(?=\(\d+\): )")


@dataclass
class _Level:
    """An open object or list: the key that leads to it, the key at hand, what it is about."""

    parent: str
    key: str
    about: str | None = None
    child_name: str | None = None  # of an object in it, `args`, that came before
    environment: bool = False


def rewrite(path: Path, out: Path | None, scrubber: Scrubber) -> None:
    """Learn from the file (`out` None), or write its copy, compressed as the file is.

    InputError for a string of over 64 Mi characters, nesting without end, damaged compression.
    """
    rewrite_text(path, out, _Walk(path, scrubber).pieces)


class _Walk:
    def __init__(self, path: Path, scrubber: Scrubber) -> None:
        self.path, self.scrubber = path, scrubber
        self.levels = [_Level("", "")]
        self.same: set[tuple[str, str, str]] = set()  # strings that are known to stay

    def pieces(self, stream: IO[str]) -> Iterator[str]:
        """The file's text, rewritten, piece by piece."""
        rest = ""
        while True:
            more = stream.read(_CHUNK)
            rest += more
            done, parts = self._chunk(rest, not more)
            yield "".join(parts)
            rest = rest[done:]
            if not more:
                return
            if len(rest) > _MOST:
                raise InputError(
                    "has a string of over 64 MiB, which no capture has", file=self.path
                )

    def _chunk(self, text: str, last: bool) -> tuple[int, list[str]]:
        """Rewrite as much of `text` as is whole: how many characters, and what they become."""
        at = done = 0  # read up to here; given up to here
        solid = len(text.rstrip())
        parts: list[str] = []
        for match in _TOKEN.finditer(text):
            start = match.start()
            group = match.lastindex
            if not last and group is not None and (group == 3 or match.end() >= solid):
                break  # the string, or whether it is a key, is only known with what follows
            if start - at > 2 and not _PLAIN.match(text, at, start):
                parts += (text[done:at], self.scrubber.cell(text[at:start], _OUTSIDE))
                done = start
            if group is None:
                self._bracket(text[start])
                at = start + 1
                continue
            token = match[3] if group == 3 else match[1]
            new = self._string(token, group == 2)
            at = match.end()
            if new is not token:
                parts += (text[done:start], new)
                done = start + len(token)
        if last:
            if not _PLAIN.match(text, at):
                parts += (text[done:at], self.scrubber.cell(text[at:], _OUTSIDE))
                done = len(text)
            at = len(text)
        parts.append(text[done:at])
        return at, parts

    def _bracket(self, token: str) -> None:
        level = self.levels[-1]
        if token in "{[":
            if len(self.levels) >= _DEEPEST:
                raise InputError("is JSON nested too deeply for any known kind", file=self.path)
            inner = _Level(level.key, level.key if token == "[" else "")
            inner.environment = level.environment or fields.kind_of(level.key) == "environment"
            self.levels.append(inner)
        elif token in "}]" and len(self.levels) > 1:
            self.levels.pop()

    def _string(self, token: str, is_key: bool) -> str:
        level = self.levels[-1]
        known = ("key" if is_key else level.parent, "" if is_key else level.key, token)
        if known in self.same:
            if is_key:
                level.key = _decoded(token) or ""
            return token
        value = _decoded(token)
        if value is None:
            inside = token[1:-1] if token[-1:] == '"' and len(token) > 1 else token[1:]
            changed = self.scrubber.cell(inside, "damaged string")
            return token.replace(inside, changed) if inside else token
        if is_key:
            level.key = value
            new = value if level.environment else self.scrubber.cell(value, "a key")
        else:
            new = self._value(value)
        if new != value:
            return json.dumps(new, ensure_ascii=False)
        stays = not level.environment and (level.key != "name" or is_key)
        if stays and len(token) < 1000 and len(self.same) < _KNOWN:
            self.same.add(known)
        return token

    def _value(self, value: str) -> str:
        level, scrubber = self.levels[-1], self.scrubber
        place = f"{level.parent}.{level.key}" if level.parent else level.key or "a list"
        if level.environment:
            return scrubber.variable(level.key, value, place)
        if level.key == "name":
            if level.parent == "args":
                return self._name_in_args(value, place)
            level.about = _METADATA.get(value)
            if level.about:
                if level.child_name is not None and scrubber.learning:
                    scrubber.remembered.add((level.about, level.child_name))
                return value
            if _FRAME.match(value):
                return self._frames(value, place)
        kind = fields.kind_of(level.key)
        if kind is None and fields.kind_of(level.parent) == "command":
            kind = "command"
        if (kind is None and "\n" in value) or level.key in ("Call stack", "callstack"):
            return self._frames(value, place)
        return scrubber.cell(value, place, kind, level.key)

    def _name_in_args(self, value: str, place: str) -> str:
        outer, scrubber = self.levels[-2], self.scrubber
        kind = None
        if scrubber.learning:
            if outer.about:
                scrubber.remembered.add((outer.about, value))
            else:
                outer.child_name = value
        elif ("process", value) in scrubber.remembered:
            kind = "process"
        elif ("thread", value) in scrubber.remembered and not _HARMLESS_THREAD.match(value):
            kind = "thread"
        return scrubber.cell(value, place, kind)

    def _frames(self, value: str, place: str) -> str:
        """Frames of Python: each path by itself, so that its directory goes."""
        cell = self.scrubber.cell
        if self.scrubber.learning:
            return cell(value, place)
        return cell(_FRAME.sub(lambda m: cell(m[1], place, "path"), value), place)


def _decoded(token: str) -> str | None:
    if token[-1:] != '"' or len(token) < 2:
        return None
    if "\\" not in token:
        return token[1:-1]
    try:
        value: str = json.loads(token, strict=False)
    except ValueError:
        return None
    return value
