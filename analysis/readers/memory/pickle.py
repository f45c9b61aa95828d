"""Loading a pickle of plain values from an untrusted file.

`find_class` refuses every global, but before it is asked a pickle can make the C unpickler
reserve a memo of four billion entries, nest a million tuples whose hash overflows the stack, or
hold a hundred million empty lists. So the opcodes are read first, without being run: only those
that make plain values, in bounded numbers. Source of the opcodes: CPython's Lib/pickletools.py.
"""

from __future__ import annotations

import gc
import io
import pickle
import re
from pathlib import Path
from typing import Any, NoReturn

from ....core.errors import InputError

MAX_CONTAINERS = 10_000_000
MAX_TEXTS = 4_000_000  # texts and long integers; a snapshot writes each text once
MAX_TUPLES = 10_000  # bounds their nesting
MAX_INTEGER_BYTES = 16

# Opcodes without an argument, or with one of fixed length that needs no look; matched in runs.
_RUN = re.compile(
    rb"(?:[\x94\x88\x89N(aesudl0-2\]})]|[Kqh].|M..|[Jj].{4}|G.{8}|\x95.{8}|\x80.)++", re.DOTALL
)
_CONTAINERS = (b"]", b"}", b")", b"(")
# Opcodes followed by a length of so many bytes and then the value.
_SIZED = {
    0x8C: 1,  # SHORT_BINUNICODE
    0x58: 4,  # BINUNICODE
    0x8D: 8,  # BINUNICODE8
    0x43: 1,  # SHORT_BINBYTES
    0x42: 4,  # BINBYTES
    0x8E: 8,  # BINBYTES8
    0x96: 8,  # BYTEARRAY8
    0x55: 1,  # SHORT_BINSTRING
    0x54: 4,  # BINSTRING
    0x8A: 1,  # LONG1
    0x8B: 4,  # LONG4
}
_INTEGERS = (0x8A, 0x8B)
_TUPLES = b"t\x85\x86\x87"
_LONG_BINPUT = ord("r")
_STOP = ord(".")
# These name something to import or call: the unpickler refuses them, by name where it can.
_CALLS = b"cioRbPQ\x81\x82\x83\x84\x92\x93"


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, path: Path) -> None:
        super().__init__(io.BytesIO(data), encoding="latin-1")
        self._path = path

    def find_class(self, module: str, name: str) -> NoReturn:
        raise _refused(f"names {module}.{name}", self._path)

    def persistent_load(self, pid: Any) -> NoReturn:
        raise _refused(f"names the persistent object {str(pid)[:60]!r}", self._path)


def _refused(what: str, path: Path) -> InputError:
    return InputError(
        f"is a pickle that {what}; no code of a file is ever imported or run", file=path
    )


def load(data: bytes, path: Path) -> Any:
    """The value of a pickle that consists of dicts, lists, tuples, numbers and text.

    InputError names the first global that the pickle asks for, and says what else is wrong.
    """
    check(data, path)
    collecting = gc.isenabled()
    gc.disable()  # many containers and no garbage: collections would take most of the time
    try:
        return _Unpickler(data, path).load()
    except (
        pickle.UnpicklingError,
        EOFError,
        ValueError,
        TypeError,
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        MemoryError,
    ) as e:
        what = " ".join(str(e).split()) or type(e).__name__
        raise InputError(f"is a pickle that cannot be loaded ({what[:200]})", file=path) from None
    finally:
        if collecting:
            gc.enable()


def check(data: bytes, path: Path) -> None:
    """Read the opcodes up to the end, or up to the first that would import or call something."""
    at, containers, tuples, texts = 0, 0, 0, 0
    while at < len(data):
        run = _RUN.match(data, at)
        if run is not None:
            containers += sum(data.count(c, at, run.end()) for c in _CONTAINERS)
            at = run.end()
            if containers > MAX_CONTAINERS:
                raise InputError(f"is a pickle of over {MAX_CONTAINERS:,} containers", file=path)
            continue
        code = data[at]
        if code == _STOP or code in _CALLS:
            return
        if code in _SIZED:
            width = _SIZED[code]
            size = int.from_bytes(data[at + 1 : at + 1 + width], "little")
            if code in _INTEGERS and size > MAX_INTEGER_BYTES:
                raise InputError("is a pickle with an integer that no snapshot has", file=path)
            at += 1 + width + size
            texts += 1
            if texts > MAX_TEXTS:
                raise InputError(f"is a pickle of over {MAX_TEXTS:,} texts", file=path)
        elif code in _TUPLES:
            tuples += 1
            at += 1
            if tuples > MAX_TUPLES:
                raise InputError("is a pickle with more tuples than any snapshot", file=path)
        elif code == _LONG_BINPUT:
            if int.from_bytes(data[at + 1 : at + 5], "little") > len(data):
                raise InputError("is a pickle with a memo out of bounds", file=path)
            at += 5
        else:
            raise InputError(
                f"is no pickle of plain values (opcode {code:#04x} at byte {at})", file=path
            )
    raise InputError("is a pickle that is cut short", file=path, fix="dump it again")
