"""The small JSON files of a run directory: one `msgspec.Struct` for each.

Only what is read is described; the stages that write these files are the source. Null is unknown in
every file of ours, and older files lack newer keys: a null counts as a key that is not there, and
keys that nobody reads are not looked at. Elements of a list are never null: a missing sample is no
sample.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from msgspec import Meta, Struct, field

from .files import read_json
from .forms import LARGEST, Amount, Count, Number, Share, check


class Document(Struct, kw_only=True):
    """A whole file. `FIX`: what to do where it is of another form."""

    FIX: ClassVar[str] = "measure again (layerline profile)"


D = TypeVar("D", bound=Document)


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
    """A latency.json, or what lies beside a capture of an engine."""

    source: str | None = None
    profile: str | None = None
    command: list[str] = []
    latency_ns: list[Count] = []
    queued_ns: list[Count] = []
    phases_ns: dict[str, list[Count]] = {}
    outside_ns: dict[str, list[int]] = {}
    processes: list[Process] = []
    summary: Samples = field(default_factory=Samples)
    target: Amount | None = None
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


class OptimizerBytes(Struct, kw_only=True):
    """What an optimizer reads and writes of the parameters of one module: with their gradients and
    its state. Several modules: a parameter that they share."""

    modules: list[str]
    bytes: Annotated[int, Meta(gt=0, le=LARGEST)]


class Break(Struct, kw_only=True):
    """A line of Python at which torch.compile breaks the graph, and why."""

    place: str
    why: str | None = None


class Recompile(Struct, kw_only=True):
    """A graph that was compiled because an earlier one of its code did not fit, and the guard that
    failed."""

    graph: str
    why: str | None = None


class CompiledKernel(Struct, kw_only=True):
    """A kernel or extern call of a graph, ``NAME:PLACE``: its modules, or the row that it is of;
    neither where nobody knows."""

    name: str
    modules: list[str] = []
    row: str | None = None


class CompiledGraph(Struct, kw_only=True):
    """A graph that torch.compile compiled: its key in the trace, its number there (`region`), and
    its kernels as they run. `why`: why some have no module."""

    key: str
    region: str
    phase: str
    kernels: list[CompiledKernel]
    why: str | None = None


class Eager(Document, kw_only=True):
    """The meta file of a capture of the model in PyTorch, by its profiler or by nsys."""

    trace: str | None = None
    model: str | None = None
    workload: str | None = None
    compiled: bool | None = None
    command: list[str] = []
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
    modules: dict[str, str | None] = {}
    traced_phases_ns: dict[str, list[Count]] = {}
    optimizer: str | None = None
    optimizer_implementation: str | None = None
    optimizer_bytes: list[OptimizerBytes] = []
    compiled_graphs: list[CompiledGraph] = []
    graph_breaks: list[Break] = []
    recompiles: list[Recompile] = []
    machine: Machine | None = None

    @property
    def trained(self) -> str | None:
        """``gpt2-medium``, ``gpt2 tiny``: what a workload trains; None where it is of none."""
        if self.model is None or self.workload is None or self.model.startswith(self.workload):
            return self.model
        return f"{self.workload} {self.model}"


class OfMachine(Document, kw_only=True):
    """Of any file of a measurement: on which machine it was."""

    machine: Machine | None = None


class NcuPiece(Struct, kw_only=True):
    """One piece of an ncu capture in pieces."""

    name: str | None = None


class Ncu(Document, kw_only=True):
    """The meta file of an ncu capture."""

    clock_control: str | None = None
    inputs: dict[str, str] = {}
    reports: list[str] = []
    pieces: list[NcuPiece] | None = None
    launches: Count | None = None
    replayed: Count | None = None
    planned: Count | None = None


class Agreement(Struct, kw_only=True):
    """How far outputs are from those of the reference. `constant`: the one value of all entries,
    where the reference has several; `nonfinite`, `reference_nonfinite`: how many entries are NaN
    or infinite on one side alone, and in the reference; `positions`: of top-1."""

    max_abs: Amount | None = None
    max_rel: Amount | None = None
    cosine: Number | None = None
    top1: Share | None = None
    nonfinite: Count | None = None
    reference_nonfinite: Count | None = None
    constant: Number | None = None
    positions: Count | None = None


class AccuracyLimits(Struct, kw_only=True):
    """What agreement was asked for."""

    cosine: Number | None = None
    top1: Share | None = None


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


class Accuracy(Agreement, Document, kw_only=True):
    """How far an engine's outputs are from those of the reference: the worst of all, and each."""

    reference: str | None = None
    outputs: dict[str, Agreement] = {}
    limits: AccuracyLimits = field(default_factory=AccuracyLimits)


class ModuleError(Struct, kw_only=True):
    """How far one module's output is from eager's. Errors are relative: the norm of the difference
    over that of eager's; null is unknown, and where values are NaN or infinite (`nonfinite`).
    `export`: of the ONNX file, in ONNX Runtime on the CPU (of inductor: of the captured graph, in
    PyTorch); `alone`: of the module built alone, on
    eager's inputs. `tensor`: the ONNX tensor that is its output."""

    module: str
    module_class: str | None = None
    tensor: str | None = None
    error_in: Amount | None = None
    error_out: Amount | None = None
    nonfinite: Count | None = None
    export: Amount | None = None
    export_nonfinite: Count | None = None
    alone: Amount | None = None
    alone_nonfinite: Count | None = None
    first_wrong: bool = False
    how: str = ""


class ModuleErrors(Document, kw_only=True):
    """Where an engine goes wrong. `limit`: the error above which an output is wrong; `remarks`:
    what bends the evidence. `whole`: the ONNX file's errors were measured too."""

    FIX: ClassVar[str] = "layerline accuracy makes it again"

    precision: str | None = None
    backend: str | None = None
    limit: Amount | None = None
    whole: bool = True
    modules: list[ModuleError] = []
    remarks: list[str] = []


class Frame(Struct, kw_only=True):
    """A function of Python on a stack: where it begins, and the line that was running."""

    file: str
    begins: Count
    function: str
    line: Count


class SynchronisingCalls(Struct, kw_only=True):
    """An operator that makes the host wait, called from one place; the innermost frame first."""

    operator: str
    phase: str
    module: str | None = None
    count: Count
    stack: list[Frame] = []


class Synchronising(Document, kw_only=True):
    """From which lines of Python one training step makes the host wait."""

    FIX: ClassVar[str] = "train again with --stacks"

    step: Count | None = None
    rows: list[SynchronisingCalls] = []


class Rebuild(Document, kw_only=True):
    """How much two builds of one engine differ in latency."""

    relative_difference: Amount | None = None


class Refused(Document, kw_only=True):
    """Why ncu counted nothing."""

    why: str | None = None
    fix: str | None = None


class PlannedModules(Struct, kw_only=True):
    """The precision plan that an engine was built with."""

    file: str | None = None
    modules_fp32: list[str] = []


class BuildOptions(Struct, kw_only=True):
    """What an engine was built with."""

    threads: Count | None = None
    optimization_level: str | int | None = None
    precision_plan: PlannedModules = field(default_factory=PlannedModules)


class Build(Document, kw_only=True):
    """How an engine was built; `on_cpu`: the operators of its nodes on the CPU, by node. Of a
    package of inductor: what it runs on, what it takes and gives, and what torch.compile does
    otherwise: graph breaks, and compiling again in two further calls (null: it fails, or nobody
    knows)."""

    FIX: ClassVar[str] = "build the engine again (layerline engines)"

    source: str | None = None
    providers: list[str] | None = None
    on_cpu: dict[str, str] = {}
    runs_on: str | None = None
    inputs: list[str] = []
    outputs: list[str] = []
    graph_breaks: list[Break] = []
    recompiles: Count | None = None
    options: BuildOptions = field(default_factory=BuildOptions)


class Layer(Struct, kw_only=True):
    """One layer of an engine."""

    name: str
    op: str | None = None
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


class Layers(Document, kw_only=True):
    """What an engine is made of."""

    FIX: ClassVar[str] = Build.FIX

    layers: list[Layer]
    nodes: list[NodeFate] = []


class Module(Struct, kw_only=True):
    """One module of the model."""

    path: str
    class_: str | None = field(name="class", default=None)
    parameters: Count | None = None  # with those of the modules in it


class Model(Document, kw_only=True):
    """The model as it was exported."""

    FIX: ClassVar[str] = "export the model again"

    model: str | None = None
    source: str | None = None
    location: str | None = None
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
    modules: list[Module] = []

    @property
    def random_weights(self) -> bool | None:
        """Whether the weights are random; None where the file does not say, or they are made by
        the user's function."""
        return None if self.weights in (None, "own") else self.weights == "random"


class ModuleOfNode(Struct, kw_only=True):
    """The module that one node came from."""

    module: str | None = None
    module_class: str | None = None


class Nodes(Document, kw_only=True):
    """nodes.json as far as modules are taken from it; `core.nodes` reads the whole."""

    FIX: ClassVar[str] = Model.FIX

    nodes: list[ModuleOfNode] = []


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


class Version(Document, kw_only=True):
    """manifests/version.json: of which form a run directory is."""

    FIX: ClassVar[str] = "copy that file from where the run is from, or choose another RUN"

    schema_version: Count


class Manifest(Document, kw_only=True):
    """manifests/STAGE/STEP.json."""

    FIX: ClassVar[str] = "run its step again"

    step: str | None = None
    started: str | None = None
    seconds: Amount | None = None
    command: list[str] | None = None
    options: dict[str, Any] | None = None
    versions: dict[str, str | None] | None = None
    facts: StepFacts | None = None
    inputs: dict[str, RecordedFile | None] | None = None
    outputs: dict[str, RecordedFile | None] | None = None


class Parameter(Struct, kw_only=True):
    """A parameter of a model that was trained. `aliases`: further paths of the same tensor;
    `elements`: of the rank's own shard, where it is sharded; `shape`: of the whole; `rows`: of an
    embedding; `optimized`: whether the optimizer was given it."""

    index: Count
    module: str
    parameter: str
    module_class: str | None = None
    dtype: str | None = None
    shape: list[Count] = []
    elements: Count | None = None
    rows: Count | None = None
    sharded: bool | None = None
    trainable: bool | None = None
    optimized: bool | None = None
    aliases: list[str] = []

    @property
    def path(self) -> str:
        """Its whole name: ``transformer.h.0.ln_1.weight``."""
        return f"{self.module}.{self.parameter}".lstrip(".")


class Parameters(Document, kw_only=True):
    """Which parameter is which index, and how changes were counted."""

    FIX: ClassVar[str] = "train again with the plug-in that counts parameters"

    parameters: list[Parameter]
    model: str | None = None
    optimizer: str | None = None
    rank: Count | None = None
    how: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if [p.index for p in self.parameters] != list(range(len(self.parameters))):
            raise ValueError("parameters are not numbered 0, 1, 2 and so on")

    def same_model(self, other: Parameters) -> bool:
        """Whether both are of one model, in whatever precision and however it was sharded."""
        return [(p.path, p.shape) for p in self.parameters] == [
            (p.path, p.shape) for p in other.parameters
        ]


def read(path: Path, form: type[D]) -> D:
    """A JSON file of a run. InputError where it is missing, no object, or of another form."""
    return of_form(read_json(path, fix=form.FIX), form, path)


def checked(path: Path, form: type[Document]) -> dict[str, Any]:
    """The same as it is written, with the keys that are not described."""
    document: dict[str, Any] = read_json(path, fix=form.FIX)
    of_form(document, form, path)
    return document


def of_form(document: Any, form: type[D], path: Path) -> D:
    """A JSON file that was parsed. InputError, naming the file and the place in it, where it is of
    another form."""
    return check(_known(document), form, path, form.FIX)


def _known(value: Any) -> Any:
    """The same without what is null, but for what a model says in files of its own."""
    if isinstance(value, list):
        return [_known(v) for v in value]
    if not isinstance(value, dict):
        return value
    kept = {k: v for k, v in value.items() if v is not None}
    return {k: v if k in ("config", "overrides") else _known(v) for k, v in kept.items()}
