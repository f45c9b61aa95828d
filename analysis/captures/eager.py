"""An eager capture to its sides of the comparison, with their checks.

An inference capture is one side; a training capture is one for forward, backward and
recomputation each, one for the optimizer, whose time is divided by module as an estimate, and one
for the whole step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.documents import Eager, Measured, OptimizerBytes
from ...core.errors import InputError
from ...core.tables import DEVICE_KINDS, OUTSIDE_OPERATORS
from ..attribution.optimizer import by_bytes
from ..checks import closure, phases_on_device, raw_totals
from ..checks import latency as latency_
from ..checks import precision as precision_
from ..checks.closure import counted, lost
from ..costs.iterations import SUMMED, labels, sums
from ..costs.measured import MeasuredSide
from ..host import capture, torch_calls, waiting
from ..host.idle import pieces
from ..host.waits import Placed, lines_of
from ..model.comparison import Check, HostSide, Side
from ..model.waiting import Waiting
from ..readers.base import Artefact
from ..readers.nsys.host import Host
from ..readers.torch.events import Events
from ..rundir.problems import Problems
from .captured import Captured, Series, measured
from .files import EagerFiles

# Phases of training that have modules; the others are rows of the step.
COLUMNS = ("forward", "recompute", "backward")
# Sides that are no part of another, and how their labels end.
WHOLE = {"inference": "", "step": " training step"}
COUNTING = "parameters"  # the plug-in that works in the optimizer's phase of every timed step
ESTIMATED = " (estimate by bytes)"
# PyTorch's names of precisions.
DTYPES = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class _Eager:
    """One eager capture as read: operations, without the rows of time outside them, and the wall
    and outside time of phases and steps by iteration.

    On a device also: `before`, the time of a phase until its first launch; `events`, what CUDA
    events around it measured in this capture; `windows`, the time that it has on the device;
    `nsys`, the operations of a capture by nsys, why it cannot be read, or null for none."""

    path: Path
    precision: str
    how: str
    trains: str | None
    ops: pa.Table
    wall: Mapping[str, Mapping[int, int]]
    outside: Mapping[str, Mapping[int, int]]
    before: Mapping[str, Mapping[int, int]]
    events: Mapping[str, Mapping[int, int]]
    windows: phases_on_device.Windows
    steps: Mapping[int, int]
    drawn: Events
    on_device: bool
    counted: Check
    nsys: Artefact | Check | None
    pieces: Mapping[str, Sequence[int]]
    host: Host | None
    waiting: Waiting | None
    precision_run: Mapping[str, float]
    optimizer: Sequence[OptimizerBytes]
    compiled: Sequence[str]


def eager(files: EagerFiles, problems: Problems) -> Captured:
    """Inference or training in one precision. Of training a side per phase with modules, and the
    step."""
    read, latency = _read(files, problems), files.latency or Measured()
    phases = ["inference"]
    if files.task != "eager":
        present = set(pc.unique(read.ops["phase"]).to_pylist())
        phases = [*(p for p in COLUMNS if p in present), "step"]
        if read.optimizer and "optimizer" in present:
            phases.insert(-1, "optimizer")
    return Captured(files, [_side(read, p, latency) for p in phases], read.ops, read.drawn)


def _read(files: EagerFiles, problems: Problems) -> _Eager:
    from ..attribution.autograd import credit
    from ..attribution.eager import of_events
    from ..readers.torch.events import DRAWN, read_events
    from ..readers.torch.nesting import nest

    path, precision, meta = files.trace, files.precision, files.meta or Eager()
    events = read_events(path)
    nesting = nest(events)
    credited = credit(events, nesting)
    found = of_events(events, {"precision": precision}, nesting, credited, meta.compiled_graphs)
    ops = found.main
    # Time outside operators is reported beside operations, not among them.
    ops = ops.filter(pc.fill_null(pc.not_equal(ops["name"], OUTSIDE_OPERATORS), True))
    wall: dict[str, dict[int, int]] = {}
    outside: dict[str, dict[int, int]] = {}
    before: dict[str, dict[int, int]] = {}
    for p in found.facts.get("phases", ()):
        if p["iteration"] is not None:
            for table, ns in ((wall, p["duration_ns"]), (outside, p["outside_ns"])):
                phase = table.setdefault(p["phase"], {})
                phase[p["iteration"]] = phase.get(p["iteration"], 0) + ns
            if p["before_launch_ns"] is not None:
                before.setdefault(p["phase"], {}).setdefault(p["iteration"], p["before_launch_ns"])
    raw = raw_totals.torch_trace(path) if raw_totals.small(path) else None
    kinds = set(pc.unique(ops["kind"]).to_pylist())
    on_device = bool(kinds & set(DEVICE_KINDS))
    steps = raw.steps if raw else {s["iteration"]: s["duration_ns"] for s in found.facts["steps"]}
    places = found.facts["phases"], found.facts["steps"], found.facts["launched_ns"]
    placed = Placed(credited.module, credited.phase, credited.iteration)
    summed = ops.select([*SUMMED, "layer", "rule"])
    phases = pc.unique(ops["phase"]).to_pylist()
    parts = [summed.filter(pc.equal(summed["phase"], p)) for p in phases]
    by_nsys = _nsys(files, problems) if on_device else None
    return _Eager(
        path=path,
        precision=precision,
        how="compiled" if meta.compiled else "eager",
        trains=meta.trained or (files.model.model if files.model else None),
        ops=ops,
        wall=wall,
        outside=outside,
        before=before,
        events={p: dict(enumerate(ns)) for p, ns in meta.traced_phases_ns.items()},
        windows=phases_on_device.windows(ops, *places) if on_device else {},
        steps=steps,
        drawn=events.only(DRAWN),
        on_device=on_device,
        counted=closure.counted_once(counted(ops), raw.sums if raw else None, lost(parts)),
        nsys=by_nsys,
        pieces=_pieces((by_nsys if isinstance(by_nsys, Artefact) else found).facts["phases"]),
        host=_host(files, events, by_nsys) if on_device else None,
        waiting=waiting.of(
            events,
            nesting,
            placed,
            found.facts,
            steps,
            None if files.synchronising is None else lines_of(files.synchronising),
        ),
        precision_run=_precision_run(meta),
        optimizer=meta.optimizer_bytes,
        compiled=_compiled(meta),
    )


def _compiled(meta: Eager) -> list[str]:
    """What torch.compile did with the model that a user may not expect."""
    said = [f"torch.compile breaks the graph at {b.place} ({b.why})" for b in meta.graph_breaks]
    for again in meta.recompiles:
        why = f" ({again.why})" if again.why else ""
        said.append(f"graph {again.graph} was compiled because an earlier one did not fit{why}")
    unknown = dict.fromkeys(g.why for g in meta.compiled_graphs if g.why)
    return [*said, *(f"kernels are unresolved: {why}" for why in unknown)]


def _pieces(phases: Sequence[Mapping[str, Any]]) -> dict[str, list[int]]:
    """When the parts of each phase begin on the host: of micro-batches, around recomputation."""
    begins: dict[str, list[int]] = {}
    for phase in phases:
        begins.setdefault(phase["phase"], []).extend(start for start, _end in pieces(phase))
    return begins


def _nsys(files: EagerFiles, problems: Problems) -> Artefact | Check | None:
    from ..attribution import eager_nsys
    from ..checks import tracer_agreement

    if files.sqlite is None:
        return None
    try:
        if files.foreign is not None:
            raise files.foreign
        return eager_nsys.read(files.sqlite, {"precision": files.precision})
    except InputError as e:
        problems.keep(e, f"{files.task} {files.precision} by nsys")
        return closure.unchecked(tracer_agreement.CHECK, e.line())


def _host(files: EagerFiles, events: Events, by_nsys: Artefact | Check | None) -> Host | None:
    """The host's calls: of the capture by nsys, else of the trace itself."""
    if not isinstance(by_nsys, Artefact) or files.sqlite is None:
        return torch_calls.host(events)
    return capture.read(files.sqlite, () if files.nsys is None else files.nsys.command)


def _host_block(
    read: _Eager, latency: Sequence[int], phase: str | None = None, queued: Sequence[int] = ()
) -> HostSide | None:
    """What the host did in a phase, or in the whole step."""
    ops = read.nsys.main if isinstance(read.nsys, Artefact) else read.ops
    begins = read.pieces.get(phase, ()) if phase else ()
    return capture.block(read.host, _of_phase(ops, phase), latency, queued, begins)


def _of_phase(ops: pa.Table, phase: str | None) -> pa.Table:
    return ops if phase is None else ops.filter(pc.equal(ops["phase"], phase))


def _sources(read: _Eager, ops: pa.Table, phase: str | None = None) -> list[Check]:
    """Whether nsys tells the same kernel time; nothing where it was not asked."""
    from ..checks import tracer_agreement

    if read.nsys is None:
        return []
    if not isinstance(read.nsys, Artefact):
        return [read.nsys]
    return [tracer_agreement.agreement(ops, _of_phase(read.nsys.main, phase))]


def _ran(read: _Eager, ops: pa.Table, label: str) -> tuple[Mapping[str, float], list[Check]]:
    """Shares of precisions and their check: by the kernels where there are any, else from the
    settings that were on. PyTorch promises no precision of a kernel, so none is an error."""
    ran = precision_.kernel_time(ops)
    checked = precision_.check(read.precision, ran, claims=False, label=label)
    shares = ran.share if ran and ran.known else read.precision_run
    return shares, [checked] if checked else []


def _precision_run(meta: Eager) -> dict[str, float]:
    """Eager fp32 without TF32 and autocast computes fp32 in full, and so does each one precision
    of weights; a mixture is not known from the facts."""
    if meta.autocast is not False or meta.tf32 is not False:
        return {}
    weights = [DTYPES.get(w, w) for w in meta.weights or ()]
    return {weights[0]: 1.0} if len(weights) == 1 else {}


def _side(read: _Eager, phase: str, latency: Measured) -> MeasuredSide:
    """A phase, or the whole step: every phase's operations, those of no module by their row."""
    part = None if phase == "step" else phase
    ops = _of_phase(read.ops, part)
    traced = _traced(read, phase)
    # What was asked for the step holds for its phases: they are medians of the same samples.
    samples = latency.latency_ns if phase in WHOLE else latency.phases_ns.get(phase, ())
    warmup = latency.warmup_ns if phase in WHOLE else ()
    series = Series(samples, target=latency.target, warmup=warmup)
    queued = latency.queued_ns if phase == "inference" else ()
    label = f"{read.how} {read.precision}" + WHOLE.get(phase, f" {phase}")
    label += ESTIMATED if phase == "optimizer" else ""
    shares, audited = _ran(read, ops, label)
    waited = _waited(read, part) if phase != "inference" else None
    cost = latency_.cost([traced[i] for i in sorted(traced)], samples, waited=waited)
    if COUNTING in latency.beside and phase in ("step", "optimizer"):
        why = "the unprofiled steps counted which parameters change, the traced ones did not"
        cost = closure.unchecked("iii", why)
    timed = latency_.host_slowed(cost, _sources(read, ops, part))
    if phase == "inference" and read.on_device and (alone := latency_.alone(ops, latency)):
        timed = [alone if c.name == "iii" else c for c in timed]
    side = Side(
        task="eager",
        precision=read.precision,
        backend="torch",
        phase=phase,
        label=label,
        source=read.path.name,
        precision_run=shares,
        checks=[read.counted, _adding_up(read, phase, ops, traced), *timed, *audited],
        device=_device(read, latency) if phase in WHOLE else {},
        host=_host_block(read, samples, part, queued),
        warned=capture.warned(read.host),
        waiting=read.waiting if phase in WHOLE else None,
        trains=read.trains if phase == "step" else None,
        time_shares=_time_shares(latency) if phase == "step" else None,
    )
    outside = {} if read.on_device else _outside(read, part)
    if phase == "optimizer":
        ops = by_bytes(ops, read.optimizer)
    return measured(side, ops, labels(ops), series, traced, Series(queued), outside_ns=outside)


def _time_shares(latency: Measured) -> dict[str, float] | None:
    """The share of each phase, and of the time in none of them, in the unprofiled steps."""
    steps, phases = latency.latency_ns, latency.phases_ns
    if not phases or not all(steps) or any(len(ns) != len(steps) for ns in phases.values()):
        return None
    shares = {
        name: sum(ns / step for ns, step in zip(of, steps, strict=True)) / len(steps)
        for name, of in phases.items()
    }
    shares["other"] = 1 - sum(shares.values())
    return dict(sorted(shares.items(), key=lambda s: -s[1]))


def _device(read: _Eager, latency: Measured) -> dict[str, Any]:
    about = latency_.device(latency)
    found = {**about, "compiled": read.compiled, "beside": latency.beside}
    return {k: v for k, v in found.items() if v}


def _traced(read: _Eager, phase: str) -> Mapping[int, int]:
    """Latency of the phase in the traced run, measured as the unprofiled one is: on a device by
    events (else by its window there), save for inference, in which the host waits for the end."""
    if phase == "step":
        return read.steps
    if not read.on_device or phase == "inference":
        return read.wall.get(phase, {})
    windows = {i: w.length for i, w in read.windows.get(phase, {}).items()}
    return read.events.get(phase) or windows


def _waited(read: _Eager, phase: str | None) -> int | None:
    """For how long the device had nothing to do in the phase, or in the step; the lower median of
    the profiled ones. None where there is none."""
    idle: dict[int, int] = {}
    for name, of in read.windows.items():
        if phase in (None, name):
            for i, window in of.items():
                idle[i] = idle.get(i, 0) + window.idle
    shown = closure.middle((ns, i) for i, ns in idle.items())
    return None if shown is None else shown[0]


def _adding_up(read: _Eager, phase: str, ops: pa.Table, wall: Mapping[int, int]) -> Check:
    """Check (ii). On a device only inference waits for its operations to end."""
    if phase == "step" and read.on_device:
        return phases_on_device.step_on_device(read.windows, read.steps)
    if phase == "step":
        return closure.phases_against_step(read.steps, read.wall)
    if not read.on_device:
        return closure.operators_against_phase(_operators(ops), wall, phase)
    if phase == "inference":
        before = read.before.get(phase)
        return closure.span_against_latency(closure.spans(ops), wall, before=before)
    windows, events = read.windows.get(phase, {}), read.events.get(phase, {})
    return phases_on_device.phase_against_events(windows, events, phase)


def _operators(ops: pa.Table) -> dict[int, int]:
    made = sums(ops, labels(ops))
    return dict(zip(made.iterations, (int(t) for t in made.total()), strict=True))


def _outside(read: _Eager, phase: str | None) -> Mapping[int, int]:
    """Wall time outside operators by iteration: of a phase, or of all."""
    if phase is not None:
        return read.outside.get(phase, {})
    outside: dict[int, int] = {}
    for by_iteration in read.outside.values():
        for iteration, ns in by_iteration.items():
            outside[iteration] = outside.get(iteration, 0) + ns
    return outside
