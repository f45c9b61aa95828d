"""Columns of a timeline are encoded at once, and as single values would be."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.timeline import wire

INTEGERS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=12)


def decoded(data: bytes) -> tuple[int, int]:
    """The varint at the beginning of `data`, and how long it is: as the format's guide has it."""
    value = 0
    for n, byte in enumerate(data):
        value |= (byte & 127) << (7 * n)
        if byte < 128:
            return value, n + 1
    raise AssertionError("no varint ends here")


@settings(deadline=None)
@given(INTEGERS)
def test_a_column_of_varints_is_read_back(values: list[int]) -> None:
    made = wire.varints(np.array(values, dtype=np.int64), b"\x40")
    assert [m[:1] for m in made] == [b"\x40"] * len(values)
    found = [decoded(m[1:]) for m in made]
    assert [v for v, _ in found] == [v % 2**64 for v in values]  # two's complement
    assert [n for _, n in found] == [len(m) - 1 for m in made]


@settings(deadline=None)
@given(INTEGERS, st.binary(max_size=300))
def test_a_column_of_messages_has_the_bytes_of_single_ones(values: list[int], key: bytes) -> None:
    made = wire.embedded(4, key, 2, np.array(values, dtype=np.int64))
    assert made == [wire.data(4, key + wire.integer(2, v)) for v in values]
