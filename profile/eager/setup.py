"""What the eager worker needs before it measures: the model, the device, the precision, a clock.

Only the worker imports this (torch is loaded). Precisions of the eager side:

========= ================================================== ==================================
precision inference                                          training
========= ================================================== ==================================
fp32      float32 weights, TF32 off                          the same
tf32      float32 weights, TF32 on (CUDA only)               the same
fp16      float16 weights (CUDA only)                        float32 weights, autocast to
                                                             float16, gradients scaled
bf16      bfloat16 weights                                   float32 weights, autocast
========= ================================================== ==================================
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ...core import machine
from ...core.files import write_json
from ...core.series import in_order
from ...engines.workers.cuda_driver import bus_id, driver_version
from ...engines.workers.nvml_sampler import Sampler
from ...export import own
from ...export.models import ModelSpec, cast, load_spec, tensors
from ...export.naming import ModuleTree
from ...export.nested import named, outputs
from ...workloads.request import choose_device, set_up
from ...workloads.training import LOW
from . import hooks

# What a latency.json is of, as the capture's meta file has it.
IDENTITY = ("precision", "training", "parameters", "batch", "sequence")


@dataclass
class Subject:
    """A model on its device with one batch of inputs (numpy, on the host; see `ModelSpec`)."""

    model: torch.nn.Module
    spec: ModelSpec
    inputs: dict[str, Any]
    device: torch.device
    precision: str
    training: bool
    facts: dict[str, Any] = field(default_factory=dict)

    def batch(self) -> dict[str, Any]:
        """The inputs as new tensors on the device, floating ones as the weights are."""
        precision = weights_of(self.precision, self.training)
        return tensors(self.inputs, precision, self.device)

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


_built: list[tuple[ModelSpec, torch.nn.Module]] = []


def built(spec: ModelSpec) -> torch.nn.Module:
    """The model in fp32 on the CPU, made once for all jobs of a process; not to be changed."""
    if not _built or _built[0][0] != spec:
        _built[:] = [(spec, spec.build())]
    return _built[0][1]


def ready(job: dict[str, Any]) -> dict[str, Any]:
    """Have the model built, with all that must be imported for it. The GPU is not touched."""
    built(load_spec(Path(job["model"])))
    return {}


def explained(job: dict[str, Any]) -> AbstractContextManager[None]:
    """Around a job: what the user's own code raises is InputError; everything else is as it is."""
    spec = load_spec(Path(job["model"]))
    if spec.own is None:
        return contextlib.nullcontext()
    return own.explained(str(spec.location), "training" if job["task"] == "train" else "it")


def prepare(job: dict[str, Any], training: bool) -> Subject:
    """The model of the run as the exporter describes it, in the precision asked for."""
    precision = job["precision"]
    device = choose_device(job["options"].get("device"))
    seed = int(job["options"].get("seed", 0))
    set_up(precision, seed, job["options"].get("threads"))
    spec = load_spec(Path(job["model"]))
    model = cast(copy.deepcopy(built(spec)), weights_of(precision, training))
    if not training or spec.own is None:  # what the user froze stays frozen
        model.requires_grad_(training)
    model = model.to(device).train(training)
    subject = Subject(model, spec, spec.inputs(), device, precision, training)
    subject.facts = facts_of(subject, seed)
    return subject


def weights_of(precision: str, training: bool) -> str:
    """The precision of the weights: training in a low one is autocast."""
    return precision if precision in LOW and not training else "fp32"


def facts_of(subject: Subject, seed: int) -> dict[str, Any]:
    """`facts`, and what the inputs are."""
    return {
        **facts(subject.model, subject.device, subject.precision, subject.training),
        "seed": seed,
        "inputs": {k: [str(v.dtype), *v.shape] for k, v in named(subject.inputs).items()},
        "batch": subject.spec.batch,
        "sequence": subject.spec.seq,
    }


def facts(
    model: torch.nn.Module, device: torch.device, precision: str, training: bool
) -> dict[str, Any]:
    """What bends an eager number: recorded beside it."""
    config = getattr(model, "config", None)
    dropouts = {m.p for m in model.modules() if isinstance(m, torch.nn.Dropout)}
    cuda = device.type == "cuda"
    return {
        "precision": precision,
        "training": training,
        "train_mode": model.training,
        "device": device.type,
        "gpu": torch.cuda.get_device_name(device) if cuda else None,
        "gradients": training,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "tf32": bool(torch.backends.cuda.matmul.allow_tf32) if cuda else False,
        "weights": sorted({str(p.dtype).removeprefix("torch.") for p in model.parameters()}),
        "autocast": training and precision in LOW,
        "attention": getattr(config, "_attn_implementation", None),
        "model_class": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "dropout": sorted(dropouts) if training else [],
        "gradient_checkpointing": any(
            getattr(m, "gradient_checkpointing", False) for m in model.modules()
        ),
        "machine": {"before": machine.state()},
    }


def float_outputs(output: Any, inputs: Mapping[str, Any] | None = None) -> dict[str, torch.Tensor]:
    """Floating tensors of what a model returned, by the names of the ONNX file (``output``,
    ``output_1`` for a tuple); those depend on the names of the `inputs`."""
    found = outputs(output, inputs)
    return {k: v for k, v in found.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}


CONVINCING = 20


@dataclass(frozen=True)
class Repeats:
    """How often: until the interval is narrow, `most` or `seconds` is reached, never fewer
    than `least` (six samples are the fewest with a 95 % interval of the median). Without a target,
    however narrow it is.

    Before that, `warmup` times, and on for `settle` seconds: caches, lazy loading and clocks take
    wall time to settle, not a number of calls (trtexec warms up by time too). On an H100 the first
    0.35 s of GPT-2 ran at 14 ms, the rest at 6 ms."""

    warmup: int
    least: int
    most: int
    target: float | None
    seconds: float
    settle: float = 0.0

    @classmethod
    def of(cls, options: dict[str, Any], defaults: Repeats) -> Repeats:
        """From options with the names of a worker's job; what is missing is the default's."""
        many = options.get("iterations") or {}
        return cls(
            int(options.get("warmup", defaults.warmup)),
            int(many.get("min", defaults.least)),
            int(many.get("max", defaults.most)),
            options.get("target", defaults.target),
            float(options.get("seconds", defaults.seconds)),
            float(options.get("settle", 0.0 if "warmup" in options else defaults.settle)),
        )


def warm_up(step: Callable[[], int], plan: Repeats) -> list[int]:
    """Call `step` as often and as long as the plan says, and give what it gave."""
    warmup = [step() for _ in range(plan.warmup)]
    clock = time.perf_counter()  # the first call can take longer than all of settling
    while time.perf_counter() - clock < plan.settle:
        warmup.append(step())
    return warmup


def repeat(step: Callable[[], int], plan: Repeats) -> dict[str, Any]:
    """Call `step` (gives its nanoseconds) until it is precise enough; say what ended it.

    Gives ``latency_ns``, ``warmup_ns``, ``ended_by`` (interval, iterations, seconds), ``target``
    and ``summary`` (`core.stats.Stat`).
    """
    warmup = warm_up(step, plan)
    samples: list[int] = []
    clock = time.perf_counter()
    ended = "iterations"
    while len(samples) < max(plan.most, plan.least):
        samples.append(step())
        if len(samples) < plan.least:
            continue
        stat = in_order(samples)
        width = stat.relative_width if stat else None
        # A burst of load can make a few samples alike: with the fewest, time must have passed too.
        passed = time.perf_counter() - clock
        convincing = len(samples) >= CONVINCING or passed > plan.seconds / 2
        narrow = width is not None and plan.target is not None and width <= plan.target
        if narrow and convincing:
            ended = "interval"
            break
        if passed > plan.seconds:
            ended = "seconds"
            break
    stat = in_order(samples)
    return {
        "latency_ns": samples,
        "warmup_ns": warmup,
        "ended_by": ended,
        "target": plan.target,
        "relative_width": stat.relative_width if stat else None,
        "summary": stat.as_dict() if stat else None,
    }


def watched(device: torch.device) -> AbstractContextManager[Sampler | None]:
    """Sample the GPU's clocks, power and temperature while the block runs; None on the CPU."""
    if device.type != "cuda":
        return contextlib.nullcontext()
    # Seldom: the sampler's thread shares the interpreter with the model.
    return Sampler(bus_id(device.index or 0), period=0.2)


def activities(device: torch.device) -> list[Any]:
    """What torch.profiler traces on a device."""
    from torch.profiler import ProfilerActivity

    on_device = [ProfilerActivity.CUDA] if device.type == "cuda" else []
    return [ProfilerActivity.CPU, *on_device]


def profile(
    subject: Subject, iterations: int, path: Path, work: Callable[[], None]
) -> dict[str, str]:
    """Profile `iterations` calls of `work` with a range around each module's forward; gives the
    classes of the modules.

    The first call, one more, is traced and thrown away: it carries the profiler's own start. The
    trace goes to `path` (``.json.gz``). Without shapes and stacks, which cost more than they are
    worth here.
    """
    from torch.profiler import profile as profile_of_torch
    from torch.profiler import schedule

    def save(profiler: Any) -> None:
        profiler.export_chrome_trace(str(path))

    with (
        hooks.module_ranges(subject.model) as classes,
        profile_of_torch(
            activities=activities(subject.device),
            schedule=schedule(wait=0, warmup=1, active=iterations, repeat=1),
            on_trace_ready=save,
            record_shapes=False,
        ) as profiler,
    ):
        for number in range(-1, iterations):
            with hooks.iteration(number):
                work()
            profiler.step()
    return classes


def write_latency(
    known: Mapping[str, Any], gpu: Sampler | None, path: Path, measured: Mapping[str, Any]
) -> dict[str, Any]:
    """Write latency.json of what was `measured` (`known`: `facts` and more); gives facts for the
    manifest."""
    summary = {} if gpu is None else gpu.summary()
    latency = {
        **measured,
        "schema_version": 1,
        "source": path.name,
        **{k: known[k] for k in IDENTITY},
        **({"facts": {"gpu": summary}} if summary else {}),
    }
    write_json(path, latency)
    return {"ended_by": measured["ended_by"], "summary": measured["summary"]}


def write_meta(
    model: torch.nn.Module,
    known: Mapping[str, Any],
    gpu: Sampler | None,
    files: Mapping[str, Path],
    profiled: Mapping[str, Any],
) -> dict[str, Any]:
    """Write meta.json, which says how the trace was taken, with medians of what the GPU did just
    before; gives facts for the manifest."""
    summary = {} if gpu is None else gpu.summary()
    driver = None if gpu is None else driver_version()
    clocks = ("sm_mhz", "memory_mhz", "power_mw", "celsius")
    medians = {k: (summary.get(k) or {}).get("median") for k in clocks}
    meta = {
        **known,
        "schema_version": 1,
        "trace": files["trace"].name,
        **profiled,
        "aliases": ModuleTree.of(model).aliases,
        **({"cuda_driver": driver, **medians} if driver else {}),
        "machine": {**known["machine"], "after": machine.state()},
    }
    write_json(files["meta"], meta)
    return {"iterations": profiled.get("iterations")}
