"""The comparison: everything a report shows. Numbers are made by analysis, never by a renderer.

`analysis.comparison.build` makes it from the tables, once; the renderers (html, markdown, csv,
summary) only format it. All times are integer nanoseconds; unknown is None and shown as "unknown"
or "–", never as 0. Every string may come from a file and is escaped where it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...core.accuracy.limits import Verdict
from ...core.documents import ModuleError
from ...core.stats import UNMEASURED, Estimate
from .counters import Counted
from .layer import Floor
from .partition import Partition
from .waiting import Waiting

# Of summary.json, and of the data of the page.
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Level:
    """One of the two levels of a series: its median, and its share of the samples."""

    ns: int
    share: float


@dataclass(frozen=True)
class Steadiness:
    """Whether a series stays where it is (`analysis.checks.steadiness`).

    `effective`: how many independent samples its `n` are worth. `width`: half of the interval over
    the median; `target`: what was asked for, None where nothing was. `drift`: median of the second
    half over that of the first, None where there is none. `levels`: two, or none. `faults`: in
    words, for a sentence. `settled` None: too few samples to tell.
    """

    n: int
    effective: int
    width: float | None
    target: float | None
    drift: float | None
    levels: Sequence[Level]
    p10_ns: int
    p90_ns: int
    faults: Sequence[str]
    settled: bool | None


@dataclass(frozen=True)
class Wording:
    """A sentence and its figures: `form` has {} for each of `figures`, a share or a name."""

    form: str
    figures: Sequence[float | str]


@dataclass(frozen=True)
class Check:
    """One check that can fail. `residual_ns` is what is left after all `terms`.

    name: "i" each operation counted once; "ii" span against latency; "iii" traced against
    unprofiled; "sources" the kernel time of two tools; "clocks" whether two clocks could be joined;
    "precision" what ran against what was asked for (terms: kernel time). `terms`: name and ns, in
    the order in which they are shown. `ok` None: could not be checked (`text` says why).
    """

    name: str
    terms: Sequence[tuple[str, int]]
    residual_ns: int | None
    residual_share: float | None
    tolerance: float | None
    ok: bool | None
    text: str  # one sentence
    wording: Wording | None = None  # of the text, where several sides may differ in a share alone


@dataclass(frozen=True)
class HostSide:
    """What the host did per iteration of a capture (`analysis.host.calls`) by `tool`.

    `values`: ns, and counts for launches, operations and gaps; None where the capture lacks it,
    with the reason in `missing`. Shares are of time in which the device waits for the host;
    unprofiled_source: "queued" or "busy". `confirmed`: the capture agrees with what was measured
    without it; None: it cannot tell.
    """

    iterations: int
    values: Mapping[str, Estimate | None]
    missing: Mapping[str, str]
    traced_share: float | None
    unprofiled_share: float | None
    unprofiled_source: str | None
    launch_bound: bool | None
    confirmed: bool | None
    tool: str = "nsys"  # or "torch.profiler"


@dataclass(frozen=True, kw_only=True)
class SideKey:
    """What a side is of. No two sides of a comparison have the same."""

    task: str  # "engine" or "eager"
    precision: str  # asked for
    backend: str  # "onnxruntime", "tensorrt", "torch"
    phase: str
    rank: int | None = None  # None: there is one process
    run: str | None = None  # "A" or "B" where two runs are compared

    @property
    def key(self) -> str:
        """``engine/fp16.onnxruntime/inference``, ``eager/fp32/backward``; of the second of two runs
        ``eager/fp32/backward/B``."""
        of = f"{self.precision}.{self.backend}" if self.task == "engine" else self.precision
        rank = "" if self.rank is None else f"/rank{self.rank:04d}"
        run = "" if self.run is None else f"/{self.run}"
        return f"{self.task}/{of}/{self.phase}{rank}{run}"

    @property
    def stem(self) -> str:
        """How its captures are called: ``fp16.onnxruntime``, ``eager.fp32``, ``train.fp32``."""
        if self.task == "engine":
            return f"{self.precision}.{self.backend}"
        return f"{'eager' if self.phase == 'inference' else 'train'}.{self.precision}"


@dataclass(frozen=True, kw_only=True)
class Side(SideKey):
    """One column of the comparison, e.g. the fp16 engine, or the eager backward."""

    label: str  # "ONNX Runtime fp16", "eager fp32 backward"
    source: str  # the capture's file
    precision_run: Mapping[str, float] = field(default_factory=dict)  # share of time by precision
    latency: Estimate = UNMEASURED  # unprofiled, end to end (eager phases: of the phase)
    traced: Estimate = UNMEASURED  # the same in the profiled run
    coverage: float | None = None  # share of operation time resolved to modules, 0..1
    operation_ns: int | None = None  # median per iteration of the sum of operation self times
    unresolved_ns: int | None = None  # of that, what has no module
    checks: Sequence[Check] = ()
    # max_abs, max_rel, cosine, top1, reference, weights, random_weights
    parity: Mapping[str, Any] | None = None
    # Whether an engine's outputs are those of eager; None: they were not compared.
    outputs: Verdict | None = None
    # Error by module path, where it was measured.
    errors: Mapping[str, ModuleError] = field(default_factory=dict)
    queued: Estimate = UNMEASURED  # device engines: of inferences queued before they began
    launch_bound: float | None = None  # 1 - queued / latency
    # throughput_per_second, cuda_graph, clocks, power, ...
    device: Mapping[str, Any] = field(default_factory=dict)
    host: HostSide | None = None  # of a capture by nsys, else of the trace by torch.profiler
    waiting: Waiting | None = None  # eager inference and whole training steps
    warned: Sequence[str] = ()  # what nsys says that its capture lost, and its errors
    # How far apart the medians of two builds were, over the first's; None: not built again.
    rebuild_noise: float | None = None
    steadiness: Steadiness | None = None  # of the latency
    traced_steadiness: Steadiness | None = None
    queued_steadiness: Steadiness | None = None
    # Of a training step: share of operation time by phase, mean of the shares in each iteration.
    phase_shares: Mapping[str, float] | None = None
    # Of an unprofiled training step: what is trained, and the share of its time by phase, mean of
    # the shares in each step, the longest first; what lies in no phase is "other".
    trains: str | None = None
    time_shares: Mapping[str, float] | None = None

    @property
    def wrong(self) -> bool:
        """Whether it computes something else than eager: then its times are no result."""
        return self.outputs is not None and self.outputs.wrong

    @property
    def unchecked(self) -> bool:
        """Whether this is an engine whose outputs were not held against eager's."""
        return self.task == "engine" and self.outputs is None


@dataclass(frozen=True)
class Cost:
    """What a module costs on one side: in [own, upper] per iteration. Both have the same samples.

    `share`: of the upper median in the side's operation_ns; None where the cost is no part of it.
    """

    own: Estimate
    upper: Estimate
    share: float | None

    @property
    def shared(self) -> int | None:
        """What has to be added to `own` to get the upper median, in ns; 0 where it is exact."""
        if self.own.median is None or self.upper.median is None:
            return None
        return self.upper.median - self.own.median


@dataclass(frozen=True)
class ModuleRow:
    """One row of the tree. `kind`: module, block (leaves linked by shared layers, exact), or
    row (a cost of its own that is no module's: gradient accumulation, optimizer, loss, ...)."""

    id: str
    parent: str | None
    name: str  # last part of the path; "" is the model
    path: str
    module_class: str | None
    kind: str
    depth: int
    members: Sequence[str]  # module paths of a block, else none
    costs: Mapping[str, Cost]  # side key -> cost; a missing key: nothing measured there
    layers: Sequence[str]  # ids of engine layers wholly or partly inside, leaves and blocks only


@dataclass(frozen=True)
class LayerRow:
    """One engine layer."""

    id: str
    side: str  # side key
    layer: str  # raw name
    kind: str
    rule: str
    nodes: Sequence[str]
    modules: Sequence[str]
    calls: int
    kernels: int | None
    time: Estimate
    share: float | None
    precision_in: str | None
    precision_out: str | None
    compute_precision: str | None
    tactic: str | None
    floor: Floor | None = None  # None: no shapes, no nodes, or it only moves data


@dataclass(frozen=True)
class Node:
    """One ONNX node with its fate in one engine: executed, fused, folded or missing."""

    side: str
    name: str
    op: str
    module: str | None
    status: str
    layer: str | None


@dataclass(frozen=True)
class Place:
    """A kind of module that takes less (or more) time on one side than on the other, per iteration.

    `ns`: the difference of the medians, None where shared layers leave only bounds. `low_ns` and
    `high_ns`: where the difference lies when each median lies in its own interval, whatever part
    of shared layers is the kind's; None where a side has no interval.
    """

    name: str
    ns: int | None
    at_least_ns: int  # of the medians, whatever part of shared layers is the kind's
    low_ns: int | None
    high_ns: int | None


@dataclass(frozen=True)
class Ratio:
    """How many times as fast `under` is as `over`, both keys of sides; low, high None: unknown.

    `lead`: the comparison that answers first. `saves`, `loses`: where `under` takes less and more
    for sure, the most first; `undecided`: of how many kinds it is not sure.
    """

    over: str
    under: str
    ratio: float
    low: float | None
    high: float | None
    lead: bool = False
    saves: Sequence[Place] = ()
    loses: Sequence[Place] = ()
    undecided: int = 0


@dataclass(frozen=True)
class Kind:
    """Modules of one kind (every ``attn``) added up: the same costs, exact or as bounds."""

    name: str  # "transformer.h.*.attn"
    module_class: str | None
    count: int
    costs: Mapping[str, Cost]


@dataclass(frozen=True)
class Unresolved:
    """Operations of one name that have no module, with their median time per iteration."""

    side: str
    name: str
    ns: int | None
    share: float | None
    why: str


@dataclass(frozen=True)
class Difference:
    """What differs between engine and eager besides the engine itself, each in words, with its
    effect on the numbers. `sides`: keys of the sides that it bends."""

    what: str
    engine: str
    eager: str
    effect: str
    sides: Sequence[str]


# What is missing of a run that was copied in part.
IN_PART = "what files that are gone held"


@dataclass(frozen=True)
class Skipped:
    """What is missing and was not asked for; with `file`, what is missing for want of that file,
    which cannot be used."""

    what: str
    why: str
    fix: str | None
    file: str | None = None


@dataclass(frozen=True)
class SweepPoint:
    """One engine at one batch. Rates are per second; None where unknown."""

    key: str  # "fp16.onnxruntime"
    label: str
    precision: str
    backend: str
    batch: int
    sequence: int
    source: str  # the latency.json, from the run's folder
    latency: Estimate
    p90_ns: int | None
    p99_ns: int | None
    sequences_per_second: float | None
    tokens_per_second: float | None
    tokens_low: float | None
    tokens_high: float | None
    queue_tokens_per_second: float | None
    clock: str  # "host" or "device events"
    ended_by: str | None
    target_met: bool | None
    memory_bytes: int | None
    memory_of: str | None  # device_bytes, context_bytes or peak_host_bytes


@dataclass(frozen=True)
class SweepBest:
    """The batch of an engine with the most tokens per second, of `of` that were measured.

    alike: batches not distinguishable from it; last: whether it is the largest measured."""

    key: str
    label: str
    batch: int
    tokens_per_second: float | None
    tokens_low: float | None
    tokens_high: float | None
    of: int
    alike: Sequence[int]
    last: bool


@dataclass(frozen=True)
class Sweep:
    """The whole sweep."""

    points: Sequence[SweepPoint]
    best: Sequence[SweepBest]
    skipped: Sequence[Skipped]
    remarks: Sequence[str] = ()  # where a point is not what the run itself measured


@dataclass(frozen=True)
class Column:
    """What is known of modules beside their times. `precision`: of the capture, None where that
    does not matter; `unit`: "ns", "bytes" or "share"; `values`: by module path."""

    key: str
    title: str
    note: str
    precision: str | None
    unit: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Comparison:
    """The whole report."""

    title: str  # "gpt2, 1×128"
    generated: str  # ISO time
    sides: Sequence[Side]
    ratios: Sequence[Ratio]
    modules: Sequence[ModuleRow]  # preorder
    kinds: Sequence[Kind]
    layers: Sequence[LayerRow]
    nodes: Sequence[Node]
    unresolved: Sequence[Unresolved]
    comparability: Sequence[Difference]
    skipped: Sequence[Skipped]
    manifest: Mapping[str, Any]  # run.json
    sweep: Sweep | None = None  # other batch sizes; None: not measured
    counters: Counted | None = None  # by ncu; None: no side runs kernels
    columns: Sequence[Column] = ()  # of modules, beside their times
    # What each side's time is made of, by its key.
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    # The machine's load over its CPUs when a side was measured, by its key; where it is known.
    load: Mapping[str, float] = field(default_factory=dict)
    # Of two runs: their names, A's and B's. Then `comparability` has a value of each.
    runs: Sequence[str] = ()
