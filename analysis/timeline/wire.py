"""The wire format of protocol buffers, as far as a trace needs it: tags, varints, bytes.

https://protobuf.dev/programming-guides/encoding/. Written here and not with the protobuf library:
analysis needs no other use of it, and a trace of a million slices is made of few distinct parts
that are encoded once and joined.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .tracks import Ints

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_MOST = 10  # bytes of a varint of 64 bits
_SMALL = [bytes([n]) for n in range(128)]


def varint(value: int) -> bytes:
    """An unsigned integer below 2**64."""
    if value < 128:
        return _SMALL[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(field: int, value: int) -> bytes:
    """A field of type uint64, int64, int32, bool or enum; negative numbers as two's complement."""
    return varint(field << 3 | _VARINT) + varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def data(field: int, value: bytes) -> bytes:
    """A field of type bytes, or an embedded message."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def text(field: int, value: str) -> bytes:
    """A field of type string. What UTF-8 cannot hold (lone surrogates) becomes ``?``."""
    return data(field, value.encode("utf-8", errors="replace"))


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def fixed64(field: int, value: int) -> bytes:
    """A field of type fixed64."""
    return varint(field << 3 | _FIXED64) + struct.pack("<Q", value)


def varints(values: Ints, before: bytes = b"") -> list[bytes]:
    """A column of integers as varints, negative ones as two's complement; `before` each of them."""
    left = values.astype(np.uint64)
    length = np.ones(len(left), np.int64)
    rows: Any = np.empty((len(left), _MOST), np.uint8)
    for at in range(_MOST):
        more = left > 127
        length += more
        rows[:, at] = left & 127 | more.astype(np.uint64) << 7
        left >>= np.uint64(7)
    blob, places = rows.tobytes(), range(0, rows.size, _MOST)
    return [before + blob[i : i + n] for i, n in zip(places, length.tolist(), strict=True)]


def embedded(outer: int, key: bytes, field: int, values: Ints) -> list[bytes]:
    """For each integer, a field `outer` with a message of `key` and of the integer as `field`."""
    inner = key + varint(field << 3 | _VARINT)
    lengths = [varint(len(inner) + n) for n in range(_MOST + 1)]
    head = varint(outer << 3 | _BYTES)
    starts = [head + of + inner for of in lengths]
    return [starts[len(value)] + value for value in varints(values)]
