"""Whether an Nsight Compute report is whole.

A report that was cut short (a full disk, a copy that broke off) loads without an error and has
fewer results, so its blocks are counted here. The file is ``NVR\\0``, then a message, then
blocks; each is a message with the size of the payload that follows it. A message is a 32-bit
little-endian size and that many bytes of protobuf; of a block's, field 1 is the number of sources,
2 that of results and 5 the size of the payload in bytes (Nsight Compute,
extras/FileFormat/ProfilerReport.proto). Where a file is built otherwise, nothing is said.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import BinaryIO

from ....core.errors import InputError

_SOURCES, _RESULTS, _PAYLOAD = 1, 2, 5
_VARINT, _BITS64, _BYTES, _BITS32 = 0, 1, 2, 5
_LARGEST_MESSAGE = 1 << 28


def results(path: Path) -> int | None:
    """How many results the blocks of a report say they hold; null where it is built otherwise.

    InputError where the last block is not all there.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(4)
        if _message(file, size) is None:
            return None
        found = None
        while file.tell() < size:
            start = file.tell()
            fields = _message(file, size)
            if fields is None or _SOURCES not in fields:
                return None if found is None else _cut(path, start, size)
            found = (found or 0) + fields.get(_RESULTS, 0)
            end = file.tell() + fields.get(_PAYLOAD, 0)
            if end > size:
                return _cut(path, start, size)
            file.seek(end)
        return found


def _cut(path: Path, start: int, size: int) -> int:
    raise InputError(
        f"is cut short: {size} bytes, and the block at byte {start} is not all there",
        file=path,
        fix="copy it again, or capture again",
    )


def _message(file: BinaryIO, size: int) -> dict[int, int] | None:
    """The integer fields of the message that begins here, null where there is none."""
    head = file.read(4)
    if len(head) < 4:
        return None
    (length,) = struct.unpack("<I", head)
    if length > min(_LARGEST_MESSAGE, size - file.tell()):
        file.seek(0, os.SEEK_END)
        return None
    return _integers(file.read(length))


def _integers(data: bytes) -> dict[int, int] | None:
    found: dict[int, int] = {}
    at = 0
    try:
        while at < len(data):
            tag, at = _varint(data, at)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                found[number], at = _varint(data, at)
            elif kind == _BYTES:
                length, at = _varint(data, at)
                at += length
            elif kind in (_BITS32, _BITS64):
                at += 4 if kind == _BITS32 else 8
            else:
                return None
    except IndexError:
        return None
    return found if at == len(data) else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
