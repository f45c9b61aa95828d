"""The view: everything a report shows, as plain JSON. Numbers are made by analysis, never here.

`analysis.comparison.build` makes it from the tables; the renderers (html, markdown, csv, summary)
only format it. All times are integer nanoseconds; unknown is null and shown as "unknown" or "–",
never as 0. Every string may come from a file and is escaped where it is shown.
"""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from .counters import Counted

# Of summary.json, and of the data of the page.
SCHEMA_VERSION = 1


class Estimate(TypedDict):
    """A median with its interval and count; low and high null where n is too small."""

    median: int | None
    low: int | None
    high: int | None
    n: int


class Level(TypedDict):
    """One of the two levels of a series: its median, and its share of the samples."""

    ns: int
    share: float


class Steadiness(TypedDict):
    """Whether a series stays where it is (`analysis.checks.steadiness`).

    `effective`: how many independent samples its `n` are worth. `width`: half of the interval over
    the median; `target`: what was asked for, null where nothing was. `drift`: median of the second
    half over that of the first, null where there is none. `levels`: two, or none. `faults`: in
    words, for a sentence. `settled` null: too few samples to tell.
    """

    n: int
    effective: int
    width: float | None
    target: float | None
    drift: float | None
    levels: list[Level]
    p10_ns: int
    p90_ns: int
    faults: list[str]
    settled: bool | None


class Side(TypedDict):
    """One column of the comparison, e.g. the fp16 engine, or the eager backward.

    `key` is unique, e.g. ``engine/fp16.onnxruntime/inference`` or ``eager/fp32/backward``.
    """

    key: str
    side: str  # "engine" or "eager"
    label: str  # "ONNX Runtime fp16", "eager fp32 backward"
    precision: str  # asked for
    precision_run: dict[str, float]  # compute precision -> share of time, e.g. {"fp32": 1.0}
    phase: str
    backend: str  # "onnxruntime", "tensorrt", "torch"
    source: str  # the capture's file
    latency: Estimate  # unprofiled, end to end (eager phases: of the phase)
    traced: Estimate  # the same in the profiled run
    coverage: float | None  # share of operation time resolved to modules, 0..1
    operation_ns: int | None  # median per iteration of the sum of operation self times
    unresolved_ns: int | None  # of that, what has no module
    closure: list[Closure]
    parity: dict[str, Any] | None  # max_abs, max_rel, cosine, top1, reference, random_weights
    queued: NotRequired[Estimate]  # device engines: of inferences queued before they began
    launch_bound: NotRequired[float | None]  # 1 - queued / latency
    device: NotRequired[dict[str, Any]]  # throughput_per_second, cuda_graph, clocks, power, ...
    host: NotRequired[HostSide | None]  # of a capture by nsys
    warned: NotRequired[list[str]]  # what nsys says that its capture lost, and its errors
    rebuild_noise: NotRequired[float | None]  # between two builds, over the first's median
    steadiness: NotRequired[Steadiness | None]  # of the latency
    traced_steadiness: NotRequired[Steadiness | None]
    queued_steadiness: NotRequired[Steadiness | None]
    # Of a training step: share of operation time by phase, mean of the shares in each iteration.
    phase_shares: NotRequired[dict[str, float]]


class HostSide(TypedDict):
    """What the host did per iteration of a capture by nsys (`analysis.host.calls`).

    `values`: ns, and counts for launches, operations and gaps; null where the capture lacks it,
    with the reason in `missing`. Shares are of time in which the device waits for the host;
    unprofiled_source: "queued" or "busy". `confirmed`: the capture agrees with what was measured
    without it; null: it cannot tell.
    """

    iterations: int
    values: dict[str, Estimate | None]
    missing: dict[str, str]
    traced_share: float | None
    unprofiled_share: float | None
    unprofiled_source: str | None
    launch_bound: bool | None
    confirmed: bool | None
    text: str


class Closure(TypedDict):
    """One check that can fail. `residual_ns` is what is left after all `terms`.

    check: "i" each operation counted once; "ii" span against latency; "iii" traced against
    unprofiled; "sources" the kernel time that two tools tell; "precision" what ran against what
    was asked for (terms: kernel time). `ok` null:
    could not be checked (`text` says why).
    """

    check: str
    terms: list[dict[str, Any]]  # [{"name", "ns"}], in the order they are shown
    residual_ns: int | None
    residual_share: float | None
    tolerance: float | None
    ok: bool | None
    text: str  # one sentence


class Cost(TypedDict):
    """What a module costs on one side: in [own, own + shared] per iteration (medians)."""

    own: int | None
    own_low: int | None
    own_high: int | None
    shared: int | None
    share: float | None  # of the side's operation_ns, of own + shared
    # The interval of own + shared; null: unknown.
    upper_low: NotRequired[int | None]
    upper_high: NotRequired[int | None]


class ModuleRow(TypedDict):
    """One row of the tree. `kind`: module, block (leaves linked by shared layers, exact), or
    row (a cost of its own that is no module's: gradient accumulation, optimizer, loss, ...)."""

    id: str
    parent: str | None
    name: str  # last part of the path; "" is the model
    path: str
    module_class: str | None
    kind: str
    depth: int
    members: list[str]  # module paths of a block, else []
    costs: dict[str, Cost]  # side key -> cost; a missing key: nothing measured there
    layers: list[str]  # ids of engine layers wholly or partly inside, leaves and blocks only


class Floor(TypedDict):
    """The least that a layer's nodes ask for; ns at the device's peaks, null where one is unknown.

    times: the measured median over ns. limit: what ns is of, "FLOP" or "bytes".
    """

    flop: float | None
    bytes: float | None
    ns: float | None
    times: float | None
    limit: str | None


class LayerRow(TypedDict):
    """One engine layer."""

    id: str
    side: str  # side key
    layer: str  # raw name
    kind: str
    rule: str
    nodes: list[str]
    modules: list[str]
    calls: int
    kernels: int | None
    time: Estimate
    share: float | None
    precision_in: str | None
    precision_out: str | None
    compute_precision: str | None
    tactic: str | None
    floor: NotRequired[Floor | None]  # null: no shapes, no nodes, or it only moves data


class Node(TypedDict):
    """One ONNX node with its fate in one engine: executed, fused, folded or missing."""

    side: str
    name: str
    op: str
    module: str | None
    status: str
    layer: str | None


class Place(TypedDict):
    """A kind of module that takes less (or more) time on one side than on the other, per iteration.

    `ns`: the difference of the medians, null where shared layers leave only bounds. `low_ns` and
    `high_ns`: where the difference lies when each median lies in its own interval, whatever part
    of shared layers is the kind's; null where a side has no interval.
    """

    name: str
    ns: int | None
    at_least_ns: int  # of the medians, whatever part of shared layers is the kind's
    low_ns: int | None
    high_ns: int | None


class Ratio(TypedDict):
    """How many times as fast `under` is as `over`, both keys of sides; low, high null: unknown.

    `lead`: the comparison that answers first. `saves`, `loses`: where `under` takes less and more
    for sure, the most first; `undecided`: of how many kinds it is not sure.
    """

    over: str
    under: str
    ratio: float
    low: float | None
    high: float | None
    lead: NotRequired[bool]
    saves: NotRequired[list[Place]]
    loses: NotRequired[list[Place]]
    undecided: NotRequired[int]


class Kind(TypedDict):
    """Modules of one kind (every ``attn``) added up: the same costs, exact or as bounds."""

    name: str  # "transformer.h.*.attn"
    module_class: str | None
    count: int
    costs: dict[str, Cost]


class SweepPoint(TypedDict):
    """One engine at one batch. Rates are per second; null where unknown."""

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


class SweepBest(TypedDict):
    """The batch of an engine with the most tokens per second, of `of` that were measured.

    alike: batches not distinguishable from it; last: whether it is the largest measured."""

    key: str
    label: str
    batch: int
    tokens_per_second: float | None
    tokens_low: float | None
    tokens_high: float | None
    of: int
    alike: list[int]
    last: bool


class Sweep(TypedDict):
    """The whole sweep."""

    points: list[SweepPoint]
    best: list[SweepBest]
    skipped: list[dict[str, Any]]  # [{"what", "why", "fix"}]
    remarks: list[str]  # where a point is not what the run itself measured


class View(TypedDict):
    """The whole report."""

    schema_version: int
    title: str  # "gpt2, 1×128"
    generated: str  # ISO time
    headline: list[dict[str, Any]]  # [{"text", "tone": good|bad|neutral}]: the answer first
    sides: list[Side]
    ratios: list[Ratio]
    modules: list[ModuleRow]  # preorder
    kinds: list[Kind]
    layers: list[LayerRow]
    nodes: list[Node]
    unresolved: list[dict[str, Any]]  # [{"side", "name", "ns", "share", "why"}]
    comparability: list[dict[str, Any]]  # [{"what", "engine", "eager", "effect", "sides"}]
    # [{"what", "why", "fix"}]: missing and not asked for; with "file" too: one that is unusable.
    skipped: list[dict[str, Any]]
    manifest: dict[str, Any]  # run.json
    sweep: NotRequired[Sweep]  # other batch sizes; absent: not measured
    counters: NotRequired[Counted]  # by ncu; absent: no side runs kernels
    timeline: NotRequired[str]  # file beside the report, for ui.perfetto.dev
