"""Reading the pickle of a snapshot, of a gigabyte and more, without Python's unpickler.

The opcodes that make plain values are run here, by hand and within bounds; no other is known, so
nothing of a file is imported or called. Dicts and lists are built, but for the events of
`device_traces`: millions of them, all of a few byte patterns. The first event of a pattern is run
opcode by opcode; from its bytes a regular expression is made, which then takes each event of that
pattern in one match and leaves seven numbers in `trace.Trace`.

Source of the opcodes: CPython's Lib/pickletools.py. torch dumps with Python's pickler (protocol 4
and 5: MEMOIZE), its C++ side with protocol 2 (BINPUT).
"""

from __future__ import annotations

import gc
import struct
from pathlib import Path
from typing import Any, NoReturn

from ....core.errors import InputError
from .patterns import Pattern, learn
from .trace import MAX_EVENTS, Shared, Trace, too_many

MAX_OPCODES = 100_000_000  # that are run one by one
MAX_TEXTS = 4_000_000
MAX_CONTAINERS = 10_000_000
# Tuples: a few, and one for so many bytes (an event's pool).
MAX_TUPLES, BYTES_OF_TUPLE = 10_000, 40
MAX_STACK = 300_000  # values that wait to be put into a container
MAX_PATTERNS = 24
_INTEGER_BYTES = 16

_FIXED = {
    ord("N"): None, 0x88: True, 0x89: False, ord(")"): (),
}  # fmt: skip
_LENGTHS = {0x8C: 1, ord("X"): 4, 0x8D: 8}  # texts
_BYTES = {0x43: 1, 0x42: 4, 0x8E: 8, 0x96: 8, 0x55: 1, 0x54: 4}
_BYTEARRAY, _OLD_TEXTS = 0x96, (0x55, 0x54)  # texts of Python 2
_TUPLES = {0x85: 1, 0x86: 2, 0x87: 3}
_FRAME, _PROTO = 0x95, 0x80


class Traces(list[Any]):
    """The value of `device_traces`: a list of `Trace`."""


def load(data: bytes, path: Path) -> Any:
    """The value of a pickle of dicts, lists, tuples, numbers and text, built whole. Errors as of
    `Reader.read`."""
    return Reader(data, path, whole=True).read()


class Reader:
    """One pass over a pickle. `whole`: events are built, too, as dicts in lists."""

    def __init__(self, data: bytes, path: Path, whole: bool = False) -> None:
        self._data, self._path, self._whole = data, path, whole
        self._shared = Shared()
        self._memo: list[Any] = []
        self._patterns: list[Pattern] = []
        self._containers = self._tuples = 0

    def read(self) -> Any:
        """The value, with a `Trace` for each list of `device_traces`. InputError for what is no
        pickle of plain values, or beyond the bounds."""
        collecting = gc.isenabled()
        gc.disable()  # many containers and no garbage: collections would take most of the time
        try:
            return self._run()
        except (IndexError, struct.error):
            raise self._wrong(
                "is a pickle that is cut short, or damaged", "dump it again"
            ) from None
        except (ValueError, TypeError, OverflowError, RecursionError, UnicodeError) as e:
            what = " ".join(str(e).split())[:200] or type(e).__name__
            raise self._wrong(f"is a pickle that cannot be loaded ({what})") from None
        finally:
            if collecting:
                gc.enable()

    def _wrong(self, what: str, fix: str | None = None) -> InputError:
        return InputError(what, file=self._path, fix=fix)

    def _refuse(self, what: str) -> NoReturn:
        raise self._wrong(f"is a pickle that {what}; no code of a file is ever imported or run")

    def _contain(self) -> None:
        self._containers += 1
        if self._containers > MAX_CONTAINERS:
            raise self._wrong(f"is a pickle of over {MAX_CONTAINERS:,} containers")

    def _tuple(self, items: list[Any]) -> tuple[Any, ...]:
        self._tuples += 1
        if self._tuples > MAX_TUPLES + len(self._data) // BYTES_OF_TUPLE:
            raise self._wrong("is a pickle with more tuples than any snapshot")
        return tuple(items)

    def _put(self, index: int, value: Any) -> None:
        if index == len(self._memo):
            self._memo.append(value)
        elif index < len(self._memo):
            self._memo[index] = value
        else:
            raise self._wrong("is a pickle with a memo out of order")

    def _run(self) -> Any:
        data, memo, end = self._data, self._memo, len(self._data)
        stack: list[Any] = []
        below: list[list[Any]] = []  # the stacks under each open mark
        trace: Trace | None = None  # whose events are being put together
        at, steps, texts, began = 0, 0, 0, -1
        while at < end:
            steps += 1
            if steps > MAX_OPCODES or len(stack) > MAX_STACK or len(below) > MAX_STACK:
                raise self._wrong("is a pickle of more values than any snapshot has")
            op = data[at]
            at += 1
            if op == 0x68:  # h BINGET
                stack.append(memo[data[at]])
                at += 1
            elif op == 0x6A:  # j LONG_BINGET
                stack.append(memo[_unsigned(data, at, 4)])
                at += 4
            elif op == 0x94:  # MEMOIZE
                memo.append(stack[-1])
            elif op == 0x71:  # q BINPUT
                self._put(data[at], stack[-1])
                at += 1
            elif op == 0x72:  # r LONG_BINPUT
                self._put(_unsigned(data, at, 4), stack[-1])
                at += 4
            elif op == 0x7D:  # } EMPTY_DICT
                if trace is not None and not stack:
                    began = at - 1
                self._contain()
                stack.append({})
            elif op == 0x28:  # ( MARK
                below.append(stack)
                trace = stack[-1] if stack and isinstance(stack[-1], Trace) else None
                stack = []
                if trace is not None:
                    at = self._events(trace, at)
            elif op == 0x4B:  # K
                stack.append(data[at])
                at += 1
            elif op == 0x4D:  # M
                stack.append(_unsigned(data, at, 2))
                at += 2
            elif op == 0x4A:  # J
                stack.append(int.from_bytes(_take(data, at, 4), "little", signed=True))
                at += 4
            elif op == 0x8A or op == 0x8B:  # LONG1, LONG4
                width = 1 if op == 0x8A else 4
                size = _unsigned(data, at, width)
                if size > _INTEGER_BYTES:
                    raise self._wrong("is a pickle with an integer that no snapshot has")
                at += width
                stack.append(int.from_bytes(_take(data, at, size), "little", signed=True))
                at += size
            elif op in _LENGTHS:
                width = _LENGTHS[op]
                size = _unsigned(data, at, width)
                at += width
                texts += 1
                if texts > MAX_TEXTS:
                    raise self._wrong(f"is a pickle of over {MAX_TEXTS:,} texts")
                stack.append(_take(data, at, size).decode("utf-8", "surrogatepass"))
                at += size
            elif op == 0x75:  # u SETITEMS
                items, stack = stack, below.pop()
                if len(items) % 2:
                    raise ValueError("a key has no value")
                self._set(stack[-1], zip(items[::2], items[1::2], strict=True))
                trace = _owner(below)
                if trace is not None and len(stack) == 1:
                    trace.add(stack.pop())
                    self._learn(data[began:at])
                    at = self._events(trace, at)
            elif op == 0x73:  # s SETITEM
                value, key = stack.pop(), stack.pop()
                self._set(stack[-1], ((key, value),))
            elif op == 0x5D:  # ] EMPTY_LIST
                self._contain()
                stack.append(self._list(stack, below))
            elif op == 0x65:  # e APPENDS
                items, stack = stack, below.pop()
                _extend(stack[-1], items)
                trace = _owner(below)
            elif op == 0x61:  # a APPEND
                value = stack.pop()
                _extend(stack[-1], (value,))
            elif op in _FIXED:
                stack.append(_FIXED[op])
            elif op == 0x47:  # G BINFLOAT
                stack.append(struct.unpack(">d", _take(data, at, 8))[0])
                at += 8
            elif op in _TUPLES:
                count = _TUPLES[op]
                if len(stack) < count:
                    raise IndexError
                stack[-count:] = [self._tuple(stack[-count:])]
            elif op == 0x74:  # t TUPLE
                items, stack = stack, below.pop()
                stack.append(self._tuple(items))
                trace = _owner(below)
            elif op == _FRAME:
                at += 8
            elif op == _PROTO:
                at += 1
            elif op == 0x2E:  # . STOP
                return stack.pop()
            elif op == 0x30:  # 0 POP
                stack.pop()
            elif op == 0x32:  # 2 DUP
                stack.append(stack[-1])
            elif op in _BYTES:
                size = _unsigned(data, at, _BYTES[op])
                at += _BYTES[op]
                content: Any = _take(data, at, size)
                if op in _OLD_TEXTS:
                    content = content.decode("latin-1")
                stack.append(bytearray(content) if op == _BYTEARRAY else content)
                at += size
            else:
                self._unknown(op, at, stack)
        raise IndexError

    def _unknown(self, op: int, at: int, stack: list[Any]) -> NoReturn:
        """Refuse an opcode, by the name of what it asks for where it has one."""
        if op in (0x63, 0x69):  # c GLOBAL, i INST
            names = self._data[at : at + 400].split(b"\n")[:2]
            self._refuse(f"names {'.'.join(n.decode('latin-1') for n in names)[:200]}")
        if op == 0x93 and len(stack) > 1:  # STACK_GLOBAL
            self._refuse(f"names {str(stack[-2])[:100]}.{str(stack[-1])[:100]}")
        if op in b"oRbPQ\x81\x82\x83\x84\x92":
            self._refuse("asks for an object to be made")
        raise self._wrong(f"is no pickle of plain values (opcode {op:#04x} at byte {at - 1})")

    def _set(self, target: Any, items: Any) -> None:
        if not isinstance(target, dict):
            raise TypeError("items of what is no dict")
        for key, value in items:
            if isinstance(key, tuple):  # may be nested so deeply that its hash never ends
                raise self._wrong("is a pickle with keys that no snapshot has")
            target[key] = value

    def _list(self, stack: list[Any], below: list[list[Any]]) -> Any:
        """A new list: one of traces where `device_traces` is its key, a trace inside of that."""
        if self._whole:
            return []
        if stack and stack[-1] == "device_traces":
            return Traces()
        above = stack[-1] if stack else below[-1][-1] if below and below[-1] else None
        if isinstance(above, Trace) and not stack:
            return []
        if isinstance(above, Trace):
            above = below[-1][-1] if below and below[-1] else None
        return Trace(self._shared) if isinstance(above, Traces) else []

    # --- events by their pattern ------------------------------------------------------------------

    def _learn(self, span: bytes) -> None:
        if len(self._patterns) < MAX_PATTERNS:
            pattern = learn(span, self._memo)
            if pattern is not None and all(p.source != pattern.source for p in self._patterns):
                self._patterns.insert(0, pattern)

    def _events(self, trace: Trace, at: int) -> int:
        """Take events as long as they are of a known pattern; gives where that ends."""
        taken = True
        while taken:
            taken = False
            for number, pattern in enumerate(self._patterns):
                further = pattern.take(self._data, at, trace, self._memo)
                if further > at:
                    at, taken = further, True
                    if number:  # the next one is tried with it first
                        self._patterns.insert(0, self._patterns.pop(number))
                    break
            if len(trace) > MAX_EVENTS:
                raise too_many(self._path, len(trace), MAX_EVENTS)
        return at


def _owner(below: list[list[Any]]) -> Trace | None:
    top = below[-1][-1] if below and below[-1] else None
    return top if isinstance(top, Trace) else None


def _extend(target: Any, items: Any) -> None:
    if isinstance(target, Trace):
        for item in items:
            target.add(item)
    elif isinstance(target, list):
        target.extend(items)
    else:
        raise TypeError("items of what is no list")


def _take(data: bytes, at: int, size: int) -> bytes:
    if at + size > len(data):
        raise IndexError
    return data[at : at + size]


def _unsigned(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(_take(data, at, width), "little")
