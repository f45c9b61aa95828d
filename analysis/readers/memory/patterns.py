"""The byte patterns of a snapshot's events (see `stream`).

An event is a dict of a few keys, which are references to texts written earlier. Its pattern keeps
the keys' bytes and leaves the values open: integers of any width, references, short texts, and for
frames either a reference to a list or a list of references to frames.
"""

from __future__ import annotations

import re
from typing import Any

from .trace import FIELDS, NUMBERS, UNKNOWN, Stack, Trace

SKIPPED = object()  # in the memo: what was not built, as no field that is read refers to it

_REF = rb"(?:h.|j.{4})"
_INT = rb"(?:K.|M..|J.{4}|\x8a(?:\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8}|\x09.{9}))"
_TEXT = rb"\x8c(?:" + b"|".join(
    re.escape(bytes([n])) + b".{%d}" % n for n in range(64)
) + rb")"  # fmt: skip
_PLAIN = rb"[N\x88\x89)]"
_MEMO = {0x94: rb"\x94", 0x71: rb"(?:q.|r.{4})", 0x72: rb"(?:q.|r.{4})"}
_LARGEST = 2**63


class Pattern:
    """One pattern. `before`, `after`: how many entries of the memo an event makes before and after
    its list of frames, besides its own; where a `user_metadata` is written out, its entry is the
    text, as later events may refer to it."""

    def __init__(self, source: bytes, values: _Values) -> None:
        self.source = source
        self._match = re.compile(source, re.DOTALL).match
        self._groups = values.groups
        self._before, self._after = [SKIPPED] * (1 + values.before), [SKIPPED] * values.after
        self._texts_before, self._texts_after = values.texts
        self._actions: dict[bytes, int] = {}
        self._texts: dict[bytes, int] = {}
        self._stacks: dict[bytes, Stack] = {}

    def take(self, data: bytes, at: int, trace: Trace, memo: list[Any]) -> int:
        """Add the events of this pattern that begin at `at` to the trace; gives where they end."""
        match = self._match
        found = match(data, at)
        if found is None:
            return at
        columns = [(getattr(trace, n).append, self._groups.get(n, 0)) for n in NUMBERS]
        action, metadata = self._groups.get("action", 0), self._groups.get("metadata", 0)
        frames = self._groups.get("frames", 0)
        actions, texts, shared = self._actions, self._texts, trace.shared
        before, after = self._before, self._after
        from_bytes = int.from_bytes
        while found is not None:
            for add, group in columns:
                raw = found[group] if group else b""
                first = raw[0] if raw else 0
                if first == 0x8A:
                    value = from_bytes(raw[2:], "little", signed=True)
                elif first == 0x4B:
                    value = raw[1]
                elif first == 0x4A:
                    value = from_bytes(raw[1:], "little", signed=True)
                else:
                    value = from_bytes(raw[1:], "little") if raw else UNKNOWN
                add(value if -_LARGEST <= value < _LARGEST else UNKNOWN)
            raw = found[action] if action else b""
            code = actions.get(raw)
            if code is None:
                code = actions[raw] = shared.actions.code(_text(raw, memo))
            trace.action.append(code)
            raw = found[metadata] if metadata else b""
            code = texts.get(raw)
            if code is None:
                code = texts[raw] = shared.metadata.code(_text(raw, memo) or None)
            trace.metadata.append(code)
            memo += before
            for back in self._texts_before:
                memo[back] = _text(raw, memo)
            if frames:
                reference = found[frames]
                if reference is not None:
                    trace.stack.append(shared.stack(_referred(reference, memo)))
                else:
                    listed = found[frames + 1] or found[frames + 2] or b""
                    stack = self._stacks.get(listed)
                    if stack is None:
                        every = [_referred(r, memo) for r in re.findall(_REF, listed, re.DOTALL)]
                        stack = self._stacks[listed] = Stack(shared.stack(every))
                    memo.append(stack)
                    trace.stack.append(stack.code)
            else:
                trace.stack.append(-1)
            memo += after
            for back in self._texts_after:
                memo[back] = _text(raw, memo)
            at = found.end()
            found = match(data, at)
        return at


def _referred(reference: bytes, memo: list[Any]) -> Any:
    return memo[int.from_bytes(reference[1:], "little")]


def _text(raw: bytes, memo: list[Any]) -> str | None:
    if raw[:1] in (b"h", b"j"):
        value = _referred(raw, memo)
        return value if isinstance(value, str) else None
    return raw[2:].decode("utf-8", "replace") if raw else None


def learn(span: bytes, memo: list[Any]) -> Pattern | None:
    """The pattern of an event from its bytes; None where it is of no kind that repeats (its keys
    are written out, or a value is of another kind)."""
    head = re.compile(rb"\}(\x94|q.|r.{4})\(", re.DOTALL).match(span)
    if head is None:
        return None
    memoize = _MEMO[head[1][0]]
    values = _Values(memoize)
    parts, at = [rb"\}" + memoize + rb"\("], head.end()
    while span[at : at + 1] != b"u":
        key = re.compile(_REF, re.DOTALL).match(span, at)
        if key is None:
            return None
        name = _text(key[0], memo)
        value = values.of(span, key.end(), FIELDS.get(name or ""))
        if value is None:
            return None
        parts += [re.escape(key[0]), value[0]]
        at = value[1]
    if at != len(span) - 1:
        return None
    source = b"".join([*parts, b"u"])
    return Pattern(source, values)


class _Values:
    """The values of an event, one after the other: what of them is open."""

    def __init__(self, memoize: bytes) -> None:
        self.groups: dict[str, int] = {}
        self._count = 0
        self.before = self.after = 0  # entries of the memo, but for that of the dict
        self._text: tuple[bool, int] | None = None
        listed = rb"\((" + _REF + rb"++)e|(" + _REF + rb")a|"
        self._frames = rb"(?:(" + _REF + rb")|\]" + memoize + rb"(?:" + listed + rb"))"
        # What is taken of a value, what else belongs to it, how many entries of the memo it makes.
        self._kinds = (
            (_INT, b"", 0),
            (_REF, b"", 0),
            (_TEXT, memoize, 1),
            (_PLAIN, b"", 0),
            (_INT + _INT + rb"\x86", memoize, 1),
        )

    @property
    def texts(self) -> tuple[list[int], list[int]]:
        """The entry of a text that is written out, counted from the last of those before the list
        of frames, or of those after it."""
        if self._text is None:
            return [], []
        late, nth = self._text
        entry = [nth - 1 - (self.after if late else self.before)]
        return ([], entry) if late else (entry, [])

    def of(self, span: bytes, at: int, field: str | None) -> tuple[bytes, int] | None:
        """The pattern of the value at `at` and where the value ends."""
        if field == "frames" and "frames" not in self.groups:
            found = re.compile(self._frames, re.DOTALL).match(span, at)
            if found is None:
                return None
            self.groups["frames"] = self._count + 1
            self._count += 3
            return self._frames, found.end()
        for source, rest, memos in self._kinds:
            found = re.compile(source + rest, re.DOTALL).match(span, at)
            if found is None:
                continue
            late = "frames" in self.groups
            self.after, self.before = self.after + memos * late, self.before + memos * (not late)
            if field is None or field in self.groups:
                return source + rest, found.end()
            if (source == _INT) != (field in NUMBERS) or (memos and field != "metadata"):
                return None
            if memos:
                self._text = (late, self.after if late else self.before)
            self._count += 1
            self.groups[field] = self._count
            return b"(" + source + b")" + rest, found.end()
        return None
