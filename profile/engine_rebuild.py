"""The noise of building: the same engine built again, with an empty timing cache, and measured.

A builder times tactics and takes the fastest, so two builds of one model differ. How much is
measured here, and is the least difference between two engines that means anything. The second
engine is made in ``rebuild/`` of the run directory and removed afterwards; what stays is
``captures/{precision}.{backend}.rebuild.json``: its latency beside that of the first, taken again
right before, so that the machine's state is the same.
"""

from __future__ import annotations

import shutil
from typing import Any

from layerline.core.errors import InputError
from layerline.core.files import sha256, write_json
from layerline.core.progress import progress
from layerline.core.run import Run
from layerline.core.stats import Stat, summarise
from layerline.engines import launch
from layerline.engines.backend import inputs_path

from .engine import SCHEMA_VERSION, SPARE_SECONDS, Plan, Subject


def rebuild(of: Subject, plan: Plan) -> dict[str, Any]:
    """Build again, measure both engines; gives facts for the manifest. LayerlineError."""
    if of.record.get("built_elsewhere"):
        raise InputError(
            f"the {of.precision} engine was built elsewhere: how is not known, so it cannot be "
            "built again",
            fix="leave --what rebuild out for it",
        )
    folder = of.run.file("rebuild")
    shutil.rmtree(folder, ignore_errors=True)
    second = Run(folder)
    try:
        folder.mkdir()
        second.file("export").symlink_to(of.run.file("export").resolve())
        options = {**of.record.get("options", {}), "timing_cache": None}
        with progress(f"{of.precision} {of.backend.name} built again"):
            of.backend.build(second, of.precision, options)
        again = of.backend.engine(second, of.precision)
        latencies = [_latency(of, engine, plan) for engine in (of.engine, again)]
        equal = sha256(of.engine) == sha256(again)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    first, other = (summarise(samples) for samples in latencies)
    document = {
        "schema_version": SCHEMA_VERSION,
        "precision": of.precision,
        "backend": of.backend.name,
        "latency_ns": latencies[0],
        "rebuilt_latency_ns": latencies[1],
        "equal_engines": equal,
        "relative_difference": _difference(first, other),
        "plan": plan.as_job(),
    }
    write_json(of.capture(".rebuild.json"), document)
    return {"relative_difference": document["relative_difference"], "equal_engines": equal}


def _difference(first: Stat | None, other: Stat | None) -> float | None:
    """How far the medians lie apart, over the first; null without samples."""
    if first is None or other is None or not first.median:
        return None
    return abs(other.median - first.median) / first.median


def _latency(of: Subject, engine: Any, plan: Plan) -> list[int]:
    job = launch.job(
        "latency",
        engine,
        inputs_path(of.run),
        of.precision,
        threads=of.threads,
        options=of.backend.job_options(of.run, of.precision),
        plan=plan.as_job(),
    )
    answer = launch.call(of.backend.worker(), job, timeout=SPARE_SECONDS + plan.seconds)
    times: list[int] = answer["latency_ns"]
    return times
