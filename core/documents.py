"""The small JSON files of a run directory: one `msgspec.Struct` for each.

Only what is read is described; the stages that write these files are the source. Unknown is null in
every file of ours, and older files lack newer keys: a key with a default may be absent or null, and
keys that nobody reads are not looked at. Elements of a list are never null: a missing sample is no
sample.
"""

from __future__ import annotations

import re
import reprlib
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct, field

from .errors import InputError
from .files import read_json

T = TypeVar("T")

# What Arrow, numpy and the formats of tools hold.
LARGEST = 2**63 - 1
# Of times, bytes or nanoseconds.
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Number = (
    Annotated[int, Meta(ge=-LARGEST, le=LARGEST)] | Annotated[float, Meta(ge=-LARGEST, le=LARGEST)]
)
Amount = Annotated[int, Meta(ge=0, le=LARGEST)] | Annotated[float, Meta(ge=0, le=LARGEST)]
Share = Annotated[int, Meta(ge=0, le=1)] | Annotated[float, Meta(ge=0, le=1)]


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


class Machine(MachineState, kw_only=True):
    """The machine before and after a measurement; older files have one state."""

    before: MachineState | None = None
    after: MachineState | None = None


class Sampled(Struct, kw_only=True):
    """What was sampled of a GPU while it worked."""

    median: Amount | None = None


class Gpu(Struct, kw_only=True):
    """A GPU while it worked."""

    samples: Count | None = None
    sm_mhz: Sampled | None = None
    memory_mhz: Sampled | None = None
    power_mw: Sampled | None = None
    celsius: Sampled | None = None
    throttled: dict[str, Share | None] | None = None


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


class MeasuredFacts(Struct, kw_only=True):
    """What the worker of an engine says of how it measured."""

    gpu: Gpu | None = None
    device: Device | None = None
    providers: list[str] | None = None
    threads: Count | None = None
    throughput_per_second: Amount | None = None
    cuda_graph: bool | None = None
    queued: bool | None = None
    warmup_runs: Count | None = None
    runs_before: Count | None = None
    profiling_start_ns: Count | None = None
    clock_readings: list[tuple[Count, Count]] | None = None


class Process(Struct, kw_only=True):
    """How many of the samples one process took."""

    n: Count
    queued_n: Count | None = None


class Samples(Struct, kw_only=True):
    """The summary of samples: their number."""

    n: Count | None = None


class Measured(Struct, kw_only=True):
    """A latency.json, or what lies beside a capture of an engine."""

    precision: str | None = None
    backend: str | None = None
    parameters: Count | None = None
    batch: Count | None = None
    sequence: Count | None = None
    source: str | None = None
    profile: str | None = None
    command: list[str] | None = None
    latency_ns: list[Count] | None = None
    queued_ns: list[Count] | None = None
    phases_ns: dict[str, list[Count] | None] | None = None
    processes: list[Process] | None = None
    summary: Samples | None = None
    target: Amount | None = None
    machine: Machine | None = None
    facts: MeasuredFacts | None = None

    def __post_init__(self) -> None:
        told = None if self.summary is None else self.summary.n
        if self.latency_ns is not None and told is not None and len(self.latency_ns) != told:
            raise ValueError(f"latency_ns has {len(self.latency_ns)} samples, its summary {told}")
        processes = self.processes or ()
        _fit("latency_ns", self.latency_ns, [p.n for p in processes])
        _fit("queued_ns", self.queued_ns, [p.queued_n for p in processes])


def _fit(name: str, samples: list[int] | None, sizes: list[int | None] | list[int]) -> None:
    """ValueError where the processes did not take as many samples as there are."""
    known = [n for n in sizes if n is not None]
    if samples and sizes and (len(known) < len(sizes) or sum(known) != len(samples)):
        told = " + ".join("?" if n is None else str(n) for n in sizes)
        raise ValueError(f"{name} has {len(samples)} samples, its processes {told}")


class OnnxRuntimeProfile(Measured, kw_only=True):
    """The meta file of a profile by ONNX Runtime."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.facts is None or self.facts.warmup_runs is None:
            raise ValueError("facts.warmup_runs is missing: which runs were warm-up is not known")


class Trace(Measured, kw_only=True):
    """The meta file of an engine's capture under nsys."""

    def __post_init__(self) -> None:
        super().__post_init__()
        facts = self.facts
        if facts is not None and facts.clock_readings and facts.runs_before is None:
            raise ValueError("facts.runs_before is missing: which run is which is not known")


class Eager(Struct, kw_only=True):
    """The meta file of a capture of the model in PyTorch."""

    precision: str | None = None
    task: str | None = None
    training: bool | None = None
    parameters: Count | None = None
    trace: str | None = None
    source: str | None = None
    command: list[str] | None = None
    device: str | None = None
    gpu: str | None = None
    device_name: str | None = None
    cuda_driver: str | None = None
    attention: str | None = None
    sm_mhz: Amount | None = None
    batch: Count | None = None
    sequence: Count | None = None
    threads: Count | None = None
    tf32: bool | None = None
    autocast: bool | None = None
    gradients: bool | None = None
    train_mode: bool | None = None
    dropout: list[Number] | None = None
    weights: list[str] | None = None
    modules: dict[str, str | None] | None = None
    traced_phases_ns: dict[str, list[Count] | None] | None = None
    machine: Machine | None = None


class Ncu(Struct, kw_only=True):
    """The meta file of an ncu capture."""

    clock_control: str | None = None
    inputs: dict[str, str | None] | None = None
    reports: list[str] | None = None


class Accuracy(Struct, kw_only=True):
    """How far an engine's outputs are from those of the reference."""

    max_abs: Amount | None = None
    max_rel: Amount | None = None
    cosine: Number | None = None
    top1: Share | None = None
    reference: str | None = None
    random_weights: bool | None = None


class Rebuild(Struct, kw_only=True):
    """How much two builds of one engine differ in latency."""

    relative_difference: Amount | None = None


class Refused(Struct, kw_only=True):
    """Why ncu counted nothing."""

    why: str | None = None
    fix: str | None = None


class BuildOptions(Struct, kw_only=True):
    """What an engine was built with."""

    threads: Count | None = None


class Build(Struct, kw_only=True):
    """How an engine was built."""

    source: str | None = None
    providers: list[str] | None = None
    on_cpu: dict[str, str | None] | None = None
    options: BuildOptions | None = None


class Layer(Struct, kw_only=True):
    """One layer of an engine."""

    name: str
    op: str | None = None
    module: str | None = None
    occurrence: Count | None = None
    nodes: list[str] | None = None
    modules: list[str] | None = None
    rule: str | None = None
    kind: str | None = None
    compute_precision: str | None = None
    tactic: str | None = None


class NodeFate(Struct, kw_only=True):
    """What became of one node of the exported model."""

    name: str
    op: str | None = None
    module: str | None = None
    status: str | None = None
    layer: str | None = None


class Layers(Struct, kw_only=True):
    """What an engine is made of."""

    layers: list[Layer]
    nodes: list[NodeFate] | None = None


class Module(Struct, kw_only=True):
    """One module of the model."""

    path: str
    class_: str | None = field(name="class", default=None)


class Model(Struct, kw_only=True):
    """The model as it was exported."""

    model: str | None = None
    source: str | None = None
    revision: str | None = None
    class_: str | None = field(name="class", default=None)
    task: str | None = None
    weights: str | None = None
    attention: str | None = None
    batch: Count | None = None
    seq: Count | None = None
    seed: Count | None = None
    parameters: Count | None = None
    config: dict[str, Any] | None = None
    overrides: dict[str, Any] | None = None
    modules: list[Module] | None = None


class SweepSummary(Struct, kw_only=True):
    """The latencies of one point in ns, and their number."""

    n: Count | None = None
    median: Count | None = None
    low: Count | None = None
    high: Count | None = None
    p90: Count | None = None
    p99: Count | None = None


class SweepPoint(Struct, kw_only=True):
    """One engine at one batch."""

    backend: str
    precision: str
    batch: Count
    sequence: Count
    source: str | None = None
    clock: str | None = None
    ended_by: str | None = None
    summary: SweepSummary | None = None
    throughput_per_second: Amount | None = None
    relative_width: Amount | None = None
    target: Amount | None = None
    memory: dict[str, Amount | None] | None = None


class Sweep(Struct, kw_only=True):
    """A run's engines at other batches."""

    points: list[SweepPoint]
    skipped: list[dict[str, str | None]] | None = None


class SummaryFigures(Struct, kw_only=True):
    """One side of a run in its summary."""

    key: str
    latency_median_ns: Amount | None = None
    latency_low_ns: Amount | None = None
    latency_high_ns: Amount | None = None
    rebuild_noise: Amount | None = None


class SummaryCost(Struct, kw_only=True):
    """What one module costs on one side."""

    own_ns: Amount | None = None
    own_low_ns: Amount | None = None
    own_high_ns: Amount | None = None
    shared_ns: Amount | None = None


class Summary(Struct, kw_only=True):
    """report/summary.json, as far as two runs are compared by it."""

    engines: dict[str, SummaryFigures | None] | None = None
    eager: dict[str, SummaryFigures | None] | None = None
    modules: dict[str, dict[str, SummaryCost | None] | None] | None = None
    facts: dict[str, Any] | None = None


class LayerTimes(Struct, kw_only=True):
    """captures/*.profile.json of TensorRT: the times of its layers in every iteration."""

    layers: list[str]
    iterations: list[list[Count]]

    def __post_init__(self) -> None:
        if any(len(times) != len(self.layers) for times in self.iterations):
            raise ValueError("an iteration has another number of layers")


class RecordedFile(Struct, kw_only=True):
    """A file as a step left or took it."""

    sha256: str | None = None
    size: Count | None = None
    mtime_ns: Count | None = None


Skipped = dict[str, str | None]


class StepFacts(Struct, kw_only=True):
    """What a step says of its work."""

    skipped: Skipped | list[Skipped] | None = None
    machine: Machine | None = None


class Manifest(Struct, kw_only=True):
    """manifests/STAGE/STEP.json."""

    step: str | None = None
    started: str | None = None
    seconds: Amount | None = None
    command: list[str] | None = None
    options: dict[str, Any] | None = None
    versions: dict[str, str | None] | None = None
    facts: StepFacts | None = None
    inputs: dict[str, RecordedFile | None] | None = None
    outputs: dict[str, RecordedFile | None] | None = None


class PlannedLaunch(Struct, kw_only=True):
    """One launch of an ncu plan; `representative` is the index of the one that stands for it."""

    index: Count
    key: Count
    kernel: str
    representative: Count | None
    function: str | None
    layer: str | None
    grid: list[Count] | None
    block: list[Count] | None
    place: str | None = None
    registers: Count | None = None
    static_shared: Count | None = None
    dynamic_shared: Count | None = None
    duration_ns: Count | None = None
    measured: bool | None = None


# A launch's number in a report, which is a key and so text.
LaunchNumber = Annotated[str, Meta(pattern=r"^\d+$")]


class NcuPlan(Struct, kw_only=True):
    """captures/*.ncu.plan.json: the launches, and by report and number which of them it holds."""

    launches: list[PlannedLaunch]
    reports: dict[str, dict[LaunchNumber, Count] | None]
    chosen: list[Count] | None = None

    def __post_init__(self) -> None:
        """Launches must not share a number, nor be represented by one that is not there or that is
        other work: their counters would be counted twice, or be another's."""
        keys: dict[int, int] = {}
        for x in self.launches:
            if x.index in keys:
                raise ValueError(f"launch {x.index} is there twice")
            keys[x.index] = x.key
        for x in self.launches:
            of = x.representative
            if of is not None and keys.get(of) != x.key:
                raise ValueError(f"launch {x.index} is no work of launch {of}, which represents it")
        for name, numbers in self.reports.items():
            held = list((numbers or {}).values())
            if wrong := set(held) - keys.keys():
                raise ValueError(f"{name} holds launch {min(wrong)}, which is not in it")
            if len(set(held)) < len(held):
                raise ValueError(f"two launches of {name} are one of it")


_MEASURE, _BUILD_AGAIN, _EXPORT = (
    "measure again (make profile)",
    "build the engine again (make engines)",
    "export the model again",
)
# The first that fits by how its name ends.
_BY_NAME: tuple[tuple[str, Any, str], ...] = (
    (".ncu.meta.json", Ncu, _MEASURE),
    (".onnxruntime.profile.meta.json", OnnxRuntimeProfile, _MEASURE),
    (".onnxruntime-cuda.profile.meta.json", OnnxRuntimeProfile, _MEASURE),
    (".trace.meta.json", Trace, _MEASURE),
    (".profile.meta.json", Measured, _MEASURE),
    (".meta.json", Eager, _MEASURE),
    (".latency.json", Measured, _MEASURE),
    (".accuracy.json", Accuracy, _MEASURE),
    (".rebuild.json", Rebuild, _MEASURE),
    (".refused.json", Refused, _MEASURE),
    (".build.json", Build, _BUILD_AGAIN),
    (".layers.json", Layers, _BUILD_AGAIN),
    ("sweep.json", Sweep, "sweep again"),
    ("model.json", Model, _EXPORT),
)


def read(path: Path) -> dict[str, Any]:
    """A JSON file of a run, of the form that its name asks for. InputError where it is missing,
    no object, or of another form."""
    form, fix = next(
        ((form, fix) for end, form, fix in _BY_NAME if path.name.endswith(end)),
        (dict[str, Any], "make it again"),
    )
    document: dict[str, Any] = read_json(path)
    check(document, form, path, fix)
    return document


def manifest(path: Path) -> dict[str, Any]:
    """A step's manifest. InputError where it is missing or of another form."""
    document: dict[str, Any] = read_json(path)
    check(document, Manifest, path, "run its step again")
    return document


def check(document: Any, form: type[T], file: str | Path | None, fix: str, what: str = "") -> T:
    """The document as a `form`. InputError, naming the file and the place in it, where it is not;
    `what`: what it is not then."""
    try:
        return msgspec.convert(document, form)
    except msgspec.ValidationError as e:
        wrong = _words(str(e), document)
        wrong = f"{what} ({wrong})" if what else wrong
        raise InputError(wrong, file=file, fix=fix) from None


_PLACE = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.S)
_EXPECTED = re.compile(r"Expected `(.*?)(?: \| null)?`(.*?)(?:, got .*)?", re.S)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.S)
_TYPES = {"str": "text", "bool": "true or false", "array": "a list", "object": "an object",
          "int": "a whole number", "float": "a number", "int | float": "a number"}  # fmt: skip


def _words(error: str, document: Any) -> str:
    """What msgspec finds wrong, with the place and what stands there: ``facts.threads is -1, not a
    whole number >= 0``. An error of our own begins with the name of its field."""
    parts = _PLACE.fullmatch(error)
    text, place = (error, "") if parts is None else (parts[1], parts[2] or "")
    if missing := _MISSING.fullmatch(text):
        return f"{place}.{missing[1]}".lstrip(".") + " is missing"
    if not (expected := _EXPECTED.fullmatch(text)):
        return f"{place}{'.' if text[:1].islower() else ': '}{text}" if place else text
    wanted = _TYPES.get(expected[1], expected[1]) + expected[2]
    if "[...]" in place:  # msgspec does not say which key
        return f"{place} is not {wanted}"
    value = document
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
        value = value[int(index)] if index else value[key]
    return f"{place or 'it'} is {reprlib.repr(value)}, not {wanted}"
