"""The least work of layers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Floor:
    """The least that nodes ask for: FLOP and DRAM bytes, None where a shape or operator is unknown.

    `matmul`: the part of `flop` in matrix products, `dtype`: what these are computed in. `ns`: at a
    device's peaks, None without one; `limit`: what it is of, "FLOP" or "bytes"; `times`: the
    measured median over it.
    """

    flop: float | None
    bytes: float | None
    matmul: float | None = None
    dtype: str | None = None
    ns: float | None = None
    times: float | None = None
    limit: str | None = None
