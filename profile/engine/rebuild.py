"""The noise of building: the same engine built again, with an empty timing cache, and measured.

A builder times tactics (inductor: launches of Triton kernels) and takes the fastest, so two builds
of one model differ. How much is measured here, and is the least difference between two engines that
means anything. The second engine is made in ``rebuild/`` of the run directory and removed
afterwards; what stays is ``captures/{precision}.{backend}.rebuild.json``: its latency beside that
of the first, taken again.
Both are loaded equally often, in turn: so the machine's state is the same, and what two loads of
one engine differ by (`processes`) is not taken for a difference of the builds.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...core.cli.progress import progress
from ...core.errors import InputError
from ...core.files import sha256, write_json
from ...core.run import Run
from ...core.series import of_processes
from ...core.stats import Stat
from ...engines import launch
from .measure import SCHEMA_VERSION, SPARE_SECONDS, Plan, Subject, identity


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
        latencies = _in_turn(of, (of.engine, again), plan)
        equal = sha256(of.engine) == sha256(again)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sizes = [[len(samples) for samples in loads] for loads in latencies]
    joined = [[ns for samples in loads for ns in samples] for loads in latencies]
    first, other = (of_processes(*both) for both in zip(joined, sizes, strict=True))
    document = {
        "schema_version": SCHEMA_VERSION,
        **identity(of),
        "latency_ns": joined[0],
        "rebuilt_latency_ns": joined[1],
        "processes": [{"n": n} for n in sizes[0]],
        "rebuilt_processes": [{"n": n} for n in sizes[1]],
        "summary": first and first.as_dict(),
        "rebuilt_summary": other and other.as_dict(),
        "equal_engines": equal,
        "relative_difference": _difference(first, other),
        "plan": plan.as_json(),
    }
    write_json(of.capture(".rebuild.json"), document)
    return {"relative_difference": document["relative_difference"], "equal_engines": equal}


def _difference(first: Stat | None, other: Stat | None) -> float | None:
    """How far the medians lie apart, over the first; None without samples."""
    if first is None or other is None or not first.median:
        return None
    return abs(other.median - first.median) / first.median


def _in_turn(of: Subject, engines: Sequence[Path], plan: Plan) -> list[list[list[int]]]:
    """The samples of each load of each engine, loaded in turn: first, second, first, second, …"""
    samples: list[list[list[int]]] = [[] for _ in engines]
    for _ in range(plan.processes):
        for engine, loads in zip(engines, samples, strict=True):
            loads.append(_latency(of, engine, plan))
    return samples


def _latency(of: Subject, engine: Path, plan: Plan) -> list[int]:
    job = of.job("latency", plan=plan.as_job(), engine=engine)
    answer = launch.call(of.backend.worker(), job, timeout=SPARE_SECONDS + plan.seconds)
    times: list[int] = answer["latency_ns"]
    return times
