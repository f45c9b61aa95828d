"""What lies beside the memory of training steps (memory.json)."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from .document import Document
from .forms import Amount, Count
from .model import Module


class MemoryMarks(Struct, kw_only=True):
    """From which moment on a step, a phase and a module were the current ones. `module`: a number
    of `Memory.modules`; -1: of no module."""

    time_ns: list[Count]
    step: list[Count]
    phase: list[str]
    module: list[int]

    def __post_init__(self) -> None:
        if len({len(self.time_ns), len(self.step), len(self.phase), len(self.module)}) > 1:
            raise ValueError("time_ns, step, phase and module are of different lengths")


class MemoryTensor(Struct, kw_only=True):
    """A tensor that lay at an address when a mark was the current one. `kind`: parameter, buffer,
    gradient, optimizer state, input, output (of a module)."""

    kind: str
    name: str
    address: Count
    bytes: Count
    mark: Count
    device: str | None = None


class MemoryStep(Struct, kw_only=True):
    """A step that was recorded, with the allocator's own peaks of it."""

    number: Count
    begin_mark: Count
    end_mark: Count
    duration_ns: Count | None = None
    allocated_peak_bytes: Count | None = None
    reserved_peak_bytes: Count | None = None
    counted_peak_bytes: Count | None = None


class MemorySegment(Struct, kw_only=True):
    """A segment when recording began; `blocks`: address, bytes, those asked for, whether in use."""

    address: Count
    bytes: Count
    pool: str | None = None
    expandable: bool | None = None
    blocks: list[tuple[Count, Count, Count, bool]] = []


class MemoryStart(Struct, kw_only=True):
    """How memory lay when recording began; no segments where that is not known."""

    segments: list[MemorySegment] = []


class MemoryOptimizer(Struct, kw_only=True):
    """The optimizer and how it works."""

    class_: str | None = field(name="class", default=None)
    fused: bool | None = None
    foreach: bool | None = None


class Memory(Document, kw_only=True):
    """What lies beside the memory of training steps."""

    FIX: ClassVar[str] = "record it again (layerline train --profile memory)"

    how: str | None = None
    unseen: list[str] = []
    device: str | None = None
    device_name: str | None = None
    device_bytes: Count | None = None
    torch: str | None = None
    most_events: Count | None = None
    precision: str | None = None
    accumulate: Count | None = None
    optimizer: MemoryOptimizer = field(default_factory=MemoryOptimizer)
    batch: Count | None = None
    sequence: Count | None = None
    recomputed_blocks: list[str] = []
    dump_seconds: Amount | None = None
    steps: list[MemoryStep] = []
    modules: list[Module] = []
    marks: MemoryMarks
    tensors: list[MemoryTensor] = []
    start: MemoryStart = field(default_factory=MemoryStart)

    def __post_init__(self) -> None:
        if any(not -1 <= n < len(self.modules) for n in self.marks.module):
            raise ValueError("marks are of modules that are not listed")
        if any(t.bytes > 1 << 50 for t in self.tensors):
            raise ValueError("a tensor is larger than any memory")
