"""A run's engines at other batch sizes: latency and throughput of each, without a profiler.

Engines have static shapes, so each batch is an export and a build of its own, in the sub-run
``RUN/sweep/batch-N``, made by the same steps with the run's own options (model, sequence, seed,
settings; optimisation level). What is valid there is not made again, so a sweep that was
interrupted goes on where it ended.

``captures/sweep.json``: ``{"schema_version": 1, "model", "sequence", "points": [POINT, ...],
"skipped": [{"batch", "precision", "backend", "what", "why", "fix"}]}``. A POINT has batch,
sequence, precision, backend, `source` (the latency.json, from the run's folder), `sha256` of it,
`summary` of its latencies (n, median, low, high, p90, p99, ...; ns), clock, ended_by,
relative_width, target, throughput_per_second (inferences with a full queue), queued_median_ns,
engine_bytes and memory (what the backend reports, in bytes); unknown is null.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core import documents
from ...core.capture_names import PRECISIONS, CaptureName
from ...core.cli.progress import log
from ...core.errors import CheckFailed, InputError, LayerlineError
from ...core.files import read_json, sha256, write_json
from ...core.run import Run, Step, open_run
from ...core.series import of_processes, sizes
from ...core.sweep import remark
from ...engines import backend as backends
from ...engines.backend import Backend, BuildOptions, planned_modules
from ...engines.command import build
from ...export import inference
from ...export.source import Request
from ...export.stage import FILES, Options, Stage, earlier
from .. import steps
from ..engine import measure

SCHEMA_VERSION = 1
FOLDER = "sweep"
MEMORY = ("device_bytes", "context_bytes", "peak_host_bytes")
_BATCH = re.compile(r"^batch-([1-9]\d*)$")
_BUILDER = ("workspace_mib", "timing_cache", "precision_plan")


@dataclass(frozen=True)
class Export:
    """How the run was exported."""

    request: Request
    options: Options

    def at(self, run: Run, batch: int) -> Stage:
        """The export stage of the sub-run of a batch."""
        dynamic = tuple(axis for axis in self.request.dynamic if axis != "batch")
        return Stage(run, replace(self.request, batch=batch, dynamic=dynamic), self.options)


@dataclass(frozen=True)
class Engine:
    """What is measured at every batch."""

    precision: str
    backend: Backend
    asked: BuildOptions


def exported(run: Run) -> Export:
    """The run's own export. InputError where it has none."""
    made = earlier(run)
    if made is None:
        raise InputError("was not exported", file=run.path, fix=f"layerline export {run.path}")
    return Export(*made)


def built(run: Run) -> list[tuple[str, str]]:
    """(precision, backend) of the engines that the run has."""
    engines = []
    for name in run.manifests():
        stage, _, engine_name = name.partition("/")
        precision, _, backend = engine_name.partition(".")
        if stage == "engines" and precision in PRECISIONS and backend in inference.BACKENDS:
            engines.append((precision, backend))
    return sorted(engines, key=lambda e: (PRECISIONS.index(e[0]), e[1]))


def asked(run: Run, precision: str, backend: Backend) -> Engine:
    """The engine with the options that the run's own was built with; else with the defaults."""
    step = run.manifest(f"engines/{precision}.{backend.name}") or {}
    options = step.get("options") or {}
    level = options.get("optimization_level")
    extra = {k: options[k] for k in _BUILDER if options.get(k) is not None}
    wanted = BuildOptions(None if level is None else str(level), options.get("threads"), extra)
    return Engine(precision, backend, wanted)


def sweep(
    run: Run, batches: Sequence[int], engines: Sequence[Engine], limits: dict[str, Any]
) -> None:
    """Measure every engine at every batch; what fails is listed, the rest goes on.

    ``captures/sweep.json`` is written after every point. Raises the last error where not one of
    the points could be measured.
    """
    export = exported(run)
    skipped: list[dict[str, Any]] = []
    failure: LayerlineError | None = None
    measured = 0
    needed = [e.backend.source(run, e.precision).stem for e in engines]
    needed += ["fp32"] * any(planned_modules(e.asked.build) for e in engines)
    for batch in sorted(set(batches)):
        for wanted in engines:
            precision, backend = wanted.precision, wanted.backend.name
            try:
                log(f"batch {batch}: {precision} {backend}")
                point(run, export, batch, wanted, limits, needed)
                measured += 1
            except LayerlineError as e:
                failure = e
                name = f"{precision} {backend} at batch {batch}"
                log(f"{name}: {e.line()}")
                about = {"batch": batch, "precision": precision, "backend": backend}
                skipped.append({**about, "what": name, "why": e.what, "fix": e.fix})
            write(run, export, skipped)
    if not measured and failure is not None:
        raise failure
    for line in remarks(run, export):
        log(line)


def remarks(run: Run, export: Export) -> list[str]:
    """Remarks on the points at the run's own batch, beside the run's own latency."""
    lines = []
    for p in points(run, export):
        path = run.file("captures", f"{p['precision']}.{p['backend']}.latency.json")
        if p["batch"] == export.request.batch and path.is_file():
            label = f"{p['backend']} {p['precision']}"
            own = documents.checked(path, documents.Measured).get("summary")
            lines.append(remark(label, p["batch"], p["summary"], own))
    return [line for line in lines if line]


def point(
    run: Run,
    export: Export,
    batch: int,
    of: Engine,
    limits: dict[str, Any],
    needed: Sequence[str],
) -> None:
    """Export, build and measure one engine at one batch, as far as that is not valid.

    `needed`: the ONNX files of all engines of the sweep, so that a batch is exported once.
    """
    backends.require(of.backend)
    sub = open_run(run.file(FOLDER, f"batch-{batch}"), create=True)
    export.at(sub, batch).export([p for p in FILES if p in needed])
    if not planned_modules(of.asked.build):
        _require_right(run, of.backend.source(sub, of.precision))
    build(sub, of.precision, of.backend, of.asked)
    plan = steps.unprofiled(limits, of.backend)
    steps.latency(measure.subject(sub, of.precision, of.backend), plan)


def _require_right(run: Run, file: Path) -> None:
    """CheckFailed where the export said that an engine of this file is wrong: a sweep compares no
    outputs."""
    judged = file.with_suffix(".parity.json")
    if judged.exists() and read_json(judged).get("ok") is False:
        raise CheckFailed(
            "does not compute what eager fp32 does",
            file=file,
            fix=f"layerline accuracy {run.path} --plan; a sweep keeps the plan of {run.path}",
        )


def write(run: Run, export: Export, skipped: Sequence[Mapping[str, Any]]) -> None:
    """``captures/sweep.json``: every point that is valid, of this sweep or an earlier one."""
    measured = points(run, export)
    have = {_of(p) for p in measured}
    document = {
        "schema_version": SCHEMA_VERSION,
        "model": measure.model(run).model or export.request.model,
        "sequence": export.request.seq,
        "points": measured,
        "skipped": [dict(s) for s in skipped if _of(s) not in have],
    }
    inputs = [run.path / p["source"] for p in measured]
    kept = [{k: s[k] for k in ("batch", "precision", "backend", "why")} for s in skipped]
    path = run.file("captures", "sweep.json")
    step = Step(run, "profile/sweep", {"skipped": kept}, inputs, [path])
    if step.valid():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with step.recording() as facts:
        write_json(path, document)
        facts["points"] = len(measured)


def _of(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a point, or what was skipped, is of."""
    return row["batch"], row["precision"], row["backend"]


def points(run: Run, export: Export) -> list[dict[str, Any]]:
    """The points in the sub-runs, as their manifests and files say that they are valid."""
    rows = []
    for folder in sorted(run.file(FOLDER).glob("batch-*")):
        match = _BATCH.match(folder.name)
        if match is None:
            continue
        sub, batch = Run(folder), int(match[1])
        if not export.at(sub, batch).model_step().valid():
            continue
        for name in sub.manifests():
            stage, _, step = name.partition("/")
            of = CaptureName.parse(f"{step}.json")
            if stage != "profile" or of is None or of.backend is None or of.kind != "latency":
                continue
            if _valid(sub, name):
                rows.append(_point(run, sub, batch, of, export.request.seq))
    order = PRECISIONS.index
    return sorted(rows, key=lambda p: (p["backend"], order(p["precision"]), p["batch"]))


def _valid(sub: Run, name: str) -> bool:
    """Whether a step's code, inputs and outputs are those of its manifest, whatever its options."""
    last = sub.manifest(name) or {}
    inputs = [sub.path / p for p in last.get("inputs") or ()]
    outputs = [sub.path / p for p in last.get("outputs") or ()]
    return Step(sub, name, last.get("options") or {}, inputs, outputs).valid()


def _point(run: Run, sub: Run, batch: int, of: CaptureName, sequence: int) -> dict[str, Any]:
    path = sub.file("captures", f"{of.side}.latency.json")
    latency = documents.checked(path, documents.Measured)
    facts = latency.get("facts") or {}
    queued = of_processes(latency.get("queued_ns") or [], sizes(latency, "queued_n"))
    built = sub.file("engines", f"{of.side}.build.json")
    record = documents.checked(built, documents.Build)
    return {
        "batch": batch,
        "sequence": sequence,
        "precision": of.precision,
        "backend": of.backend,
        "source": path.relative_to(run.path).as_posix(),
        "sha256": sha256(path),
        "summary": latency.get("summary"),
        "clock": facts.get("clock", "host"),
        "ended_by": latency.get("ended_by"),
        "relative_width": latency.get("relative_width"),
        "target": latency.get("target"),
        "throughput_per_second": facts.get("throughput_per_second"),
        "queued_median_ns": None if queued is None else queued.median,
        "engine_bytes": record.get("engine_bytes"),
        "memory": {k: facts.get(k) for k in MEMORY},
    }
