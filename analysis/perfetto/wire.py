"""The wire format of protocol buffers, as far as a trace needs it: tags, varints, bytes.

https://protobuf.dev/programming-guides/encoding/. Written here and not with the protobuf library:
analysis needs no other use of it, and a trace of a million slices is made of few distinct parts
that are encoded once and joined.
"""

from __future__ import annotations

import struct

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_SMALL = [bytes([n]) for n in range(128)]


def varint(value: int) -> bytes:
    """An unsigned integer below 2**64."""
    if value < 128:
        return _SMALL[value]
    made = bytearray()
    while value > 127:
        made.append(value & 127 | 128)
        value >>= 7
    made.append(value)
    return bytes(made)


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
