"""A measurement of an engine: its latencies, and how a capture of it was taken."""

from __future__ import annotations

from msgspec import Struct, field

from .document import Document
from .forms import Amount, Count
from .machine import Device, Gpu, Machine


class MeasuredFacts(Struct, kw_only=True):
    """What the worker of an engine says of how it measured."""

    gpu: Gpu = field(default_factory=Gpu)
    device: Device = field(default_factory=Device)
    providers: list[str] | None = None
    threads: Count | None = None
    throughput_per_second: Amount | None = None
    device_bytes: Count | None = None
    context_bytes: Count | None = None
    cuda_graph: bool | None = None
    queued: bool | None = None
    warmup_runs: Count | None = None
    runs_before: Count | None = None
    profiling_start_ns: Count | None = None
    clock_readings: list[tuple[Count, Count]] = []


class Process(Struct, kw_only=True):
    """How many of the samples one process took."""

    n: Count
    queued_n: Count | None = None


class Samples(Struct, kw_only=True):
    """The summary of samples: their number."""

    n: Count | None = None


class Measured(Document, kw_only=True):
    """A latency.json, or what lies beside a capture of an engine.

    `beside`: the plug-ins of training that were at work in the steps that it times."""

    source: str | None = None
    profile: str | None = None
    command: list[str] = []
    latency_ns: list[Count] = []
    warmup_ns: list[Count] = []
    queued_ns: list[Count] = []
    phases_ns: dict[str, list[Count]] = {}
    outside_ns: dict[str, list[int]] = {}
    processes: list[Process] = []
    summary: Samples = field(default_factory=Samples)
    target: Amount | None = None
    beside: list[str] = []
    machine: Machine | None = None
    facts: MeasuredFacts = field(default_factory=MeasuredFacts)

    def __post_init__(self) -> None:
        n = self.summary.n
        if self.latency_ns and n is not None and len(self.latency_ns) != n:
            raise ValueError(f"latency_ns has {len(self.latency_ns)} samples, its summary {n}")
        _fit("latency_ns", self.latency_ns, [p.n for p in self.processes])
        _fit("queued_ns", self.queued_ns, [p.queued_n for p in self.processes])

    def sizes(self) -> list[int]:
        """How many samples of `latency_ns` each process took; empty where one took all."""
        return [p.n for p in self.processes]

    def queued_sizes(self) -> list[int]:
        """The same of `queued_ns`."""
        return [p.queued_n or 0 for p in self.processes]


def _fit(name: str, samples: list[int], sizes: list[int | None] | list[int]) -> None:
    """ValueError where the processes did not take as many samples as there are."""
    known = [n for n in sizes if n is not None]
    if samples and sizes and (len(known) < len(sizes) or sum(known) != len(samples)):
        each = " + ".join("?" if n is None else str(n) for n in sizes)
        raise ValueError(f"{name} has {len(samples)} samples, its processes {each}")


class OnnxRuntimeProfile(Measured, kw_only=True):
    """The meta file of a profile by ONNX Runtime."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.facts.warmup_runs is None:
            raise ValueError("facts.warmup_runs is missing: which runs were warm-up is not known")


class Trace(Measured, kw_only=True):
    """The meta file of an engine's capture under nsys."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.facts.clock_readings and self.facts.runs_before is None:
            raise ValueError("facts.runs_before is missing: which run is which is not known")
