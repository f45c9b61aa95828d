"""Eager inference: its unprofiled latency, and profiled iterations."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...core.files import replacing
from ...engines.workers.cuda_driver import Cuda, CudaError, NoDriver, StreamClock
from . import hooks
from .setup import (
    Repeats,
    Subject,
    float_outputs,
    prepare,
    profile,
    repeat,
    warm_up,
    watched,
    write_latency,
    write_meta,
)

DEFAULTS = Repeats(warmup=2, least=6, most=200, target=0.02, seconds=8.0, settle=1.0)
# Before a trace: what was imported and compiled before, and the clocks, must come back.
WARMED = replace(DEFAULTS, settle=0.5)
# Milliseconds each, and the host's noise comes in bursts: a few alike in a row prove little.
FEWEST_ON_DEVICE = 50
PROFILED = 7
QUEUED = 30
WAITS = "the model waits for the device, or launches more than the queue holds"


def latency(job: dict[str, Any]) -> dict[str, Any]:
    """Measure without a profiler, to ``job["files"]["latency"]``; gives facts."""
    subject = prepare(job, training=False)
    on_device = subject.device.type == "cuda"
    defaults = replace(DEFAULTS, least=FEWEST_ON_DEVICE) if on_device else DEFAULTS
    with torch.inference_mode(), watched(subject.device) as gpu:
        measured = repeat(lambda: _timed(subject), Repeats.of(job["options"], defaults))
        if on_device:
            batch = subject.batch()
            times, why = queued(lambda: subject.model(**batch))
            measured |= {"queued_ns": times} if times else {"queued_missing": why}
    return write_latency(subject.facts, gpu, Path(job["files"]["latency"]), measured)


def trace(job: dict[str, Any]) -> dict[str, Any]:
    """Warm up and profile, to the files of the trace and of how it was taken; gives facts."""
    subject = prepare(job, training=False)
    files = {k: Path(v) for k, v in job["files"].items()}
    iterations = int(job["options"].get("profiled", PROFILED))
    with torch.inference_mode():
        with watched(subject.device) as gpu:
            warm_up(lambda: _timed(subject), Repeats.of(job["options"], WARMED))
        with replacing(files["trace"]) as path:
            classes = profile(subject, iterations, path, lambda: forward(subject))
        tensors = float_outputs(subject.model(**subject.batch()), subject.inputs)
        finite = all(bool(v.isfinite().all()) for v in tensors.values())
    profiled = {
        "iterations": iterations,
        "phases": ["inference"],
        "modules": classes,
        "outputs": {k: list(v.shape) for k, v in tensors.items()},
        "finite": finite,
    }
    return write_meta(subject.model, subject.facts, gpu, files, profiled)


def forward(subject: Subject, range_of: hooks.RangeOf = hooks.record_function) -> None:
    """One inference with the ranges of its phases, ended by waiting for the device."""
    with hooks.phase("data", range_of):
        batch = subject.batch()
    with hooks.phase("inference", range_of):
        subject.model(**batch)
        subject.synchronize()


def _timed(subject: Subject) -> int:
    """Nanoseconds of one forward, inputs already on the device."""
    batch = subject.batch()
    subject.synchronize()
    started = time.perf_counter_ns()
    subject.model(**batch)
    subject.synchronize()
    return time.perf_counter_ns() - started


def queued(work: Callable[[], Any], count: int = QUEUED) -> tuple[list[int], str | None]:
    """Device nanoseconds of `count` calls of `work`, each queued whole before it began; or why not.

    Eager PyTorch launches each kernel when Python reaches it; a small model's latency is mostly
    that. Queued behind a closed gate, the same work shows the device's share, as `queued_ns` of an
    engine does. Not where `work` waits for the device itself, or puts more on the stream than a
    launch queue holds (about a thousand launches): the gate then opens by itself.
    """
    stream = torch.cuda.current_stream().cuda_stream
    try:
        times = StreamClock(Cuda(torch.cuda.current_device()), stream).queued_series(work, count)
    except (CudaError, NoDriver) as e:
        return [], str(e)
    return times, None if times else WAITS
