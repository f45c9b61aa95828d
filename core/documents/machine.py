"""The machine of a measurement, and its GPU."""

from __future__ import annotations

from msgspec import Struct, field

from .document import Document
from .forms import Amount, Count, Share


class MachineState(Struct, kw_only=True):
    """The machine at one time."""

    cpu: str | None = None
    cpus: Count | None = None
    cpus_usable: Count | None = None
    governor: str | None = None
    mhz: Amount | None = None
    load_1min: Amount | None = None
    machine: str | None = None
    memory_bytes: Count | None = None
    system: str | None = None
    kernel: str | None = None


class Machine(Struct, kw_only=True):
    """The machine before and after a measurement."""

    before: MachineState | None = None
    after: MachineState | None = None


class OfMachine(Document, kw_only=True):
    """Of any file of a measurement: on which machine it was."""

    machine: Machine | None = None


class Sampled(Struct, kw_only=True):
    """What was sampled of a GPU while it worked."""

    median: Amount | None = None


class Gpu(Struct, kw_only=True):
    """A GPU while it worked."""

    samples: Count | None = None
    sm_mhz: Sampled = field(default_factory=Sampled)
    memory_mhz: Sampled = field(default_factory=Sampled)
    power_mw: Sampled = field(default_factory=Sampled)
    celsius: Sampled = field(default_factory=Sampled)
    throttled: dict[str, Share] | None = None


class Device(Struct, kw_only=True):
    """A GPU as its driver describes it."""

    name: str | None = None
    cuda_driver: str | None = None
    capability_major: Count | None = None
    capability_minor: Count | None = None
    multiprocessors: Count | None = None
    clock_khz: Count | None = None
    memory_clock_khz: Count | None = None
    memory_bus_bits: Count | None = None
    l2_bytes: Count | None = None
