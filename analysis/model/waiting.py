"""Where a step waits: the host for the device, and the device for the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.stats import Estimate


@dataclass(frozen=True)
class Wait:
    """One cause for which the host waits for the device, per iteration.

    `cause`: the operator that the program called (``aten::item``), else the call into the runtime.
    `call`: what waited; None in a capture without a device, where nothing waits and the operator
    would wait on one: then `time` is None. `function`: of Python, with the file and the line where
    it begins, as the profiler tells; `lines`: exact lines, where they were recorded. `count`: mean
    per iteration. `share`: of the step.
    """

    cause: str
    call: str | None
    function: str | None
    lines: Sequence[str]
    module: str | None
    phase: str
    count: float
    time: Estimate | None
    share: float | None


@dataclass(frozen=True)
class Stretch:
    """A run of operations during which the device keeps waiting for the next launch, in ns.

    `first`, `last`: the modules at its ends, None where no operation has one.
    """

    iteration: int
    phase: str
    first: str | None
    last: str | None
    operations: int
    time: int
    idle: int


@dataclass(frozen=True)
class Waiting:
    """`stacks`: whether the capture has Python's functions. `idle`: of the device, per iteration,
    by the phase in which the host was meanwhile; empty without a device. `stretches`: the longest,
    of the iteration with the median idle time."""

    on_device: bool
    stacks: bool
    waits: Sequence[Wait]
    idle: Mapping[str, Estimate]
    stretches: Sequence[Stretch]
    iterations: int
