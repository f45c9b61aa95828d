"""Eager inference: unprofiled latency first, then profiled iterations, and the outputs."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core import machine
from ...core.errors import CheckFailed
from ...core.files import replacing, write_json
from . import hooks
from .queued import queued
from .setup import Repeats, Subject, float_outputs, of_what, prepare, profiling, repeat, watched

DEFAULTS = Repeats(warmup=2, least=6, most=200, target=0.02, seconds=8.0, settle=1.0)
# Milliseconds each, and the host's noise comes in bursts: a few alike in a row prove little.
FEWEST_ON_DEVICE = 50
PROFILED = 7


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Measure, profile and write the files of `job["files"]`; gives facts."""
    subject = prepare(job, training=False)
    files = {k: Path(v) for k, v in job["files"].items()}
    on_device = subject.device.type == "cuda"
    defaults = replace(DEFAULTS, least=FEWEST_ON_DEVICE) if on_device else DEFAULTS
    with torch.inference_mode():
        with watched(subject) as gpu:
            measured = repeat(lambda: _timed(subject), Repeats.of(job["options"], defaults))
            measured |= _device_alone(subject)
        iterations = int(job["options"].get("profiled", PROFILED))
        with replacing(files["trace"]) as path:
            classes = _profiled(subject, iterations, path)
        outputs = {k: v.float().cpu().numpy() for k, v in float_outputs(_forward(subject)).items()}
    if not outputs:
        raise CheckFailed("the model returns no floating tensor", file=job["model"])
    with replacing(files["outputs"]) as path, path.open("wb") as f:
        np.savez(f, **outputs)
    measured |= {"schema_version": 1, "source": files["latency"].name}
    measured |= {**of_what(subject), **gpu.as_facts()}
    write_json(files["latency"], measured)
    meta = subject.facts | {
        "schema_version": 1,
        "trace": files["trace"].name,
        "iterations": iterations,
        "phases": ["inference"],
        "modules": classes,
        "aliases": hooks.aliases(subject.model),
        "outputs": {k: list(v.shape) for k, v in outputs.items()},
        "finite": bool(all(np.isfinite(v).all() for v in outputs.values())),
        **gpu.as_meta(),
    }
    meta["machine"]["after"] = machine.state()
    write_json(files["meta"], meta)
    return {"ended_by": measured["ended_by"], "summary": measured["summary"]}


def _forward(subject: Subject) -> Any:
    return subject.model(**subject.batch())


def _timed(subject: Subject) -> int:
    """Nanoseconds of one forward, inputs already on the device."""
    batch = subject.batch()
    subject.synchronize()
    started = time.perf_counter_ns()
    subject.model(**batch)
    subject.synchronize()
    return time.perf_counter_ns() - started


def _device_alone(subject: Subject) -> dict[str, Any]:
    """`queued_ns`, or `queued_missing` (why); nothing on the CPU."""
    if subject.device.type != "cuda":
        return {}
    batch = subject.batch()
    found, why = queued(lambda: subject.model(**batch))
    return {"queued_ns": found} if found else {"queued_missing": why}


def _profiled(subject: Subject, iterations: int, path: Path) -> dict[str, str]:
    with (
        hooks.module_ranges(subject.model) as classes,
        profiling(subject, iterations, path) as step,
    ):
        for number in range(-1, iterations):
            with hooks.iteration(number):
                with hooks.phase("data"):
                    batch = subject.batch()
                with hooks.phase("inference"):
                    subject.model(**batch)
                    subject.synchronize()
            step()
    return classes
