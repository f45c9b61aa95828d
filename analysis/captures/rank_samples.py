"""What a gate judges of a job: of each rank its steps, its peak of memory, and, where they were
captured, what it computes, transfers and its host keeps it from.

A step ends for all ranks with the slowest, so their steps grow together; what a rank computes says
whose fault it is. What it waits is another's fault, and is not judged.
"""

from __future__ import annotations

import statistics
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...core.capture_names import TORCH_TASKS, CaptureName, named
from ...core.documents import Eager, Measured
from ...core.run import Run
from ..model.baseline import KIND, LATENCY, Quantity, SideSamples
from ..rundir import files
from ..rundir.problems import Problems
from . import rank_job, settings

# A part of a rank's steps, and what it is called.
_PARTS = {"compute_ns": "compute", "transfer_ns": "transfer", "idle_host_ns": "idle for its host"}
_SAID = (
    "workload", "model", "parameters", "batch", "global_batch", "sequence", "seed", "ranks",
    "degrees", "parallel", "attention", "optimizer", "gradient_checkpointing", "threads",
    "tokens_sha256",
)  # fmt: skip


def key(precision: str, rank: int | None) -> str:
    """The side of whole steps: of a process, or of one rank."""
    of_rank = "" if rank is None else f"/rank{rank:04d}"
    return f"eager/{precision}/step{of_rank}"


def of_run(run: Run) -> tuple[dict[str, SideSamples], dict[str, Any]]:
    """The sides of ranks, in their order, and what may have changed beside the time; both are empty
    without ranks. InputError where captures are not those of one job."""
    found: dict[str, list[Quantity]] = defaultdict(list)
    facts: dict[str, Any] = {}
    for path, name in _of_ranks(run):
        if name.suffix == ".latency.json":
            samples = files.needed(path, Measured)
            if samples is not None and samples.latency_ns:
                median = round(statistics.median(samples.latency_ns))
                steps = Quantity(what=LATENCY, runs=[[median]])
                found[key(name.precision, name.rank)].append(steps)
        elif name.suffix == ".meta.json" and not facts:
            facts = _facts(path)
    if not found:
        return {}, {}
    for precision in {name.precision for _, name in _of_ranks(run)}:
        for rank, parts in _parts(run, precision).items():
            found[key(precision, rank)] += parts
    on_gpu = None if facts.get("gpu") is None else facts["gpu"] != "none"
    sides = {k: SideSamples(on_gpu=on_gpu, quantities=q) for k, q in sorted(found.items())}
    return sides, facts


def _of_ranks(run: Run) -> Iterator[tuple[Path, CaptureName]]:
    for path, name in named(run.file("captures")).items():
        if name.task in TORCH_TASKS and name.rank is not None:
            yield path, name


def _facts(path: Path) -> dict[str, Any]:
    document = files.document(path, Eager, Problems())
    meta = files.optional(path, Eager, Problems()) or Eager()
    machine = settings.machine(meta.machine)
    gpu = "none" if meta.device == "cpu" else meta.gpu
    facts = {
        **{name: document.get(name) for name in _SAID},
        "cpu": machine["cpu"],
        "cpus_usable": machine["cpus"],
        "gpu": gpu,
        "versions": {"torch": document.get("torch")},
    }
    return {name: value for name, value in facts.items() if value not in (None, {}, [])}


def _parts(run: Run, precision: str) -> Mapping[int, list[Quantity]]:
    """By rank the medians, over its steps, of parts of a step; empty where no capture has them."""
    paths = rank_job.of_run(run).get(precision)
    if not paths:
        return {}
    with tempfile.TemporaryDirectory(prefix="layerline-gate-") as folder:
        job, _ = rank_job.joined(paths, Path(folder))
    by_rank: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in job.ranks.to_pylist():
        by_rank[row["rank"]].append(row)
    return {rank: [*_medians(rows)] for rank, rows in by_rank.items()}


def _medians(rows: list[dict[str, Any]]) -> Iterator[Quantity]:
    for column, name in _PARTS.items():
        if values := [row[column] for row in rows if row[column] is not None]:
            yield Quantity(what=KIND, name=name, runs=[[round(statistics.median(values))]])
