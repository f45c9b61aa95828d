"""The parts of a side's time, which add up to it to the nanosecond, and the way from one to
another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

# What a part is: the time of modules of one kind; of layers fused over several kinds; of a row that
# is no module's; what nothing is known of; in which the device waits for launches; what is left.
MODULES, FUSED, ROW, UNRESOLVED, WAITING, GAPS = KINDS = (
    "modules",
    "fused",
    "row",
    "unresolved",
    "waiting",
    "gaps",
)
OTHER = "other"  # of a waterfall alone: the smallest steps together


@dataclass(frozen=True)
class Part:
    """`modules`: the paths that the kind stands for, in the order of the model. `low`, `high`: of
    the 95 % interval in ns; None where it is not known. `of`: the kinds that fused layers serve."""

    name: str
    kind: str
    ns: int
    low: int | None = None
    high: int | None = None
    modules: Sequence[str] = ()
    of: Sequence[str] = ()


@dataclass(frozen=True)
class Leaf:
    """Time that serves exactly these modules (several: of fused layers); of none, by its label.
    `part`: the name of its part."""

    modules: Sequence[str]
    label: str | None
    part: str
    ns: int


@dataclass(frozen=True)
class Partition:
    """`of`: what `total` is, "latency", "traced" (the latency of the profiled run) or "operations"
    (their time alone). `parts` add up to it. `leaves`: what operations take of it. `device`:
    whether operations run on one."""

    of: str
    device: bool
    total: int
    low: int | None
    high: int | None
    parts: Sequence[Part]
    leaves: Sequence[Leaf]


@dataclass(frozen=True)
class Step:
    """One step of a waterfall: `ns` more (or less) than before. `inner`: what the step "other" is
    made of."""

    name: str
    kind: str
    ns: int
    low: int | None
    high: int | None
    modules: Sequence[str] = ()
    inner: Sequence[Step] = ()

    @property
    def sure(self) -> bool:
        """Whether its interval leaves zero out."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


@dataclass(frozen=True)
class Waterfall:
    """From `start` to `end` over `steps`, which add up to the difference exactly."""

    start: int
    end: int
    steps: Sequence[Step] = field(default_factory=tuple)
