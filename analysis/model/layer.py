"""What is known of an engine's layers: their times, and the least work of their nodes."""

from __future__ import annotations

from dataclasses import dataclass

from ...core.stats import Stat

MOVEMENT = "movement"


@dataclass(frozen=True)
class Times:
    """`iterations`: how many a capture holds; `total`: ns of all layers in one. Null is unknown.
    `own_reports`: medians are over the iterations in which a layer ran, not over all of them.
    `engines`: of a capture of several, the time of each one's layers in one enqueue."""

    iterations: int | None
    total: Stat | None
    own_reports: bool = False
    engines: tuple[Stat | None, ...] = ()


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
