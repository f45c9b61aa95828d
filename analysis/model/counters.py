"""The counters' part of the comparison: what bounds each module, layer and kernel.

Counters are of kernels that ncu replayed, one at a time. Their durations are no latencies and
stand beside none: `share` is that of the side's own capture or unprofiled run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .layer import Floor


@dataclass(frozen=True)
class Spread:
    """How far launches of the same work that were both measured are apart, by amount
    (`counters.representatives`), the largest over duration, bytes and FLOP; `metric` is where."""

    relative: float | None
    metric: str
    launches: int


@dataclass(frozen=True)
class CountedRow:
    """A module (what runs wholly inside it), a layer or a kernel. Amounts are per iteration.

    launches: of the whole capture; `measured` of them have counters of their own, the others were
    given those of a launch that is the same work. bound: tensor, fp32, memory, launch, latency;
    None where a counter that decides is missing (`why`). shares: part of the replayed time that
    each resource needs at its peak. floor: FLOP and DRAM bytes of the ONNX nodes. metrics: means
    over time, in percent, ipc in instructions per cycle and SM. pipes: percent of the peak,
    busiest first.
    """

    id: str
    parent: str | None
    kind: str  # module, layer, kernel
    name: str
    modules: Sequence[str]
    depth: int
    launches: int
    measured: int
    replay_ns: float | None  # ncu's duration, of serialised replays: never a latency
    clock_hz: float | None
    flop: float | None
    bytes: float | None
    intensity: float | None  # FLOP per DRAM byte
    flop_per_second: float | None  # over replay_ns
    shares: Mapping[str, float | None]  # tensor, fp32, memory
    bound: str | None
    why: str
    floor: Floor | None
    metrics: Mapping[str, float | None]  # ipc, issue_busy, sm_busy, occupancy, dram
    pipes: Mapping[str, float]
    spread: Spread | None
    share: float | None  # of the side's time, without ncu
    text: str = ""

    @property
    def times_flop(self) -> float | None:
        """Measured FLOP over the floor's."""
        return _over(self.flop, self.floor.flop if self.floor else None)

    @property
    def times_bytes(self) -> float | None:
        """Measured bytes over the floor's."""
        return _over(self.bytes, self.floor.bytes if self.floor else None)


def _over(amount: float | None, least: float | None) -> float | None:
    return amount / least if amount is not None and least else None


@dataclass(frozen=True)
class CountedSide:
    """The counters of one side. peaks: FLOP/s and byte/s at the clock that ran, where known."""

    key: str
    label: str
    sources: Sequence[str]
    device: str | None
    peaks: Mapping[str, float]
    peaks_source: str | None
    clock_control: str | None
    iterations: int
    launches: int
    measured: int
    uncounted: int  # launches of the capture's plan that have no counters
    uncounted_kernels: Mapping[str, int]  # how many of them by function, most first
    absent: int  # kernels per iteration that the side's own capture has and this one lacks
    missing: Sequence[str]  # metrics without which no bound is known
    rows: Sequence[CountedRow]
    spread: Spread | None
    widest: Spread | None  # of the kind of work whose measured launches are furthest apart


@dataclass(frozen=True)
class Uncounted:
    """A side without counters: why, and how to get them. refused: the driver did."""

    key: str
    label: str
    why: str
    fix: str
    refused: bool


@dataclass(frozen=True)
class Counted:
    """All sides that run kernels."""

    sides: Sequence[CountedSide]
    uncounted: Sequence[Uncounted]
