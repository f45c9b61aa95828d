"""One built engine, measured: unprofiled latency, the backend's profile, its outputs.

Leaves ``captures/{precision}.{backend}.latency.json``, the raw profile (``.profile.json``,
untouched) with ``.profile.meta.json`` beside it, ``.outputs.npz``, and, where the eager reference
is there, ``.accuracy.json``. The caller holds the machine's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...core import documents, machine
from ...core.accuracy.limits import Limits
from ...core.capture_names import CaptureName
from ...core.cli.progress import progress
from ...core.errors import InputError
from ...core.files import replacing, sha256, sha256_of, write_json
from ...core.run import Run, unchanged
from ...core.series import of_processes, sizes
from ...engines import launch
from ...engines.backend import Backend, inputs_path
from . import processes
from .accuracy import compare
from .loads import Loads

SCHEMA_VERSION = 1
PROFILE = ".profile.json"
# ONNX Runtime stops recording at 1,000,000 events, silently in the file; other tools have none.
MAX_EVENTS = 900_000
# What a worker may take beyond its measuring time: loading, warming up, writing its profile.
SPARE_SECONDS = 600


@dataclass(frozen=True)
class Plan:
    """How long to measure: until the interval of the median is `target` wide (half width over
    median), at most `most` iterations or `seconds`, in each of `processes`."""

    warmup: int = 3
    least: int = 20
    most: int = 500
    target: float = 0.02
    seconds: float = 20.0
    processes: int = 1

    def as_job(self) -> dict[str, Any]:
        """In the names of a worker's job."""
        return {
            "warmup": self.warmup,
            "iterations": {"min": min(self.least, self.most), "max": self.most},
            "target": self.target,
            "seconds": self.seconds,
        }

    def as_json(self) -> dict[str, Any]:
        """For a manifest, and beside what was measured."""
        return {**self.as_job(), "processes": self.processes}


@dataclass(frozen=True)
class Subject:
    """A built engine and how it was built."""

    run: Run
    precision: str
    backend: Backend
    record: Mapping[str, Any]

    def capture(self, suffix: str) -> Path:
        """A file of this engine in captures/."""
        name = CaptureName("engine", self.precision, self.backend.name, suffix)
        return name.path(self.run.file("captures"))

    @property
    def engine(self) -> Path:
        """The engine's file."""
        return self.backend.engine(self.run, self.precision)

    @property
    def threads(self) -> int:
        """The threads it was built for; engines without such a notion run with 1."""
        return int(self.record.get("options", {}).get("threads") or 1)

    @property
    def traceable(self) -> bool:
        """Whether it runs kernels that nsys and ncu capture: a package for CPUs has none."""
        return self.backend.traceable and self.record.get("runs_on") != "cpu"

    def job(
        self,
        task: str,
        raw: Path | None = None,
        plan: Mapping[str, Any] | None = None,
        engine: Path | None = None,
    ) -> dict[str, Any]:
        """A job for the backend's worker, on `engine` instead of its own where that is given."""
        return launch.job(
            task,
            engine or self.engine,
            inputs_path(self.run),
            self.precision,
            threads=self.threads,
            options=self.backend.job_options(self.run, self.precision),
            raw=raw,
            plan=plan,
        )

    def inputs(self) -> list[Path]:
        """What every measurement of it reads."""
        return [*self.backend.outputs(self.run, self.precision), inputs_path(self.run)]

    def worker_key(self) -> str:
        """Hash of the worker's code: a changed worker makes measurements stale."""
        return sha256_of({p.name: sha256(p) for p in sorted(launch.WORKERS.glob("*.py"))})


def built(run: Run, precision: str, backend: Backend) -> bool:
    """Whether the run has this engine."""
    needed = backend.engine(run, precision), backend.build_record(run, precision)
    return all(path.exists() for path in needed)


def subject(run: Run, precision: str, backend: Backend) -> Subject:
    """The engine to measure. InputError where it was not built, or of what was exported before."""
    path = backend.build_record(run, precision)
    engine = backend.engine(run, precision)
    fix = f"layerline engines {run.path} --precision {precision} --backend {backend.name}"
    if not built(run, precision, backend):
        raise InputError(f"no {precision} engine of {backend.name}", file=engine, fix=fix)
    if (other := _exported_since(run, precision, backend)) is not None:
        raise InputError(f"was built of another {other} than is there now", file=engine, fix=fix)
    return Subject(run, precision, backend, documents.checked(path, documents.Build))


def _exported_since(run: Run, precision: str, backend: Backend) -> str | None:
    """A file that the engine was built of and that is another now, by its path in the run."""
    manifest = run.manifest(f"engines/{precision}.{backend.name}") or {}
    recorded = manifest.get("inputs") or {}
    for path in backend.inputs(run, precision):
        name = run.relative(path)
        if path.exists() and (was := recorded.get(name)) and not unchanged(path, was):
            return name
    return None


def loads(of: Subject, count: int) -> Loads:
    """So many processes for measurements of this engine, a job each."""
    return Loads(of.backend.worker(), of.job("ready"), count)


def latency(of: Subject, plan: Plan, among: Loads | None = None) -> dict[str, Any]:
    """Unprofiled latency to ``.latency.json``; gives facts for the manifest. `among`: processes
    that wait for the engines of this stage."""
    measured = _measure(of, "latency", plan, None, among)
    document = _document(of, plan, measured)
    write_json(of.capture(".latency.json"), document)
    return {"ended_by": document["ended_by"], "summary": document["summary"]}


def profile(of: Subject, plan: Plan, among: Loads | None = None) -> dict[str, Any]:
    """The backend's own profile, raw, and ``.profile.meta.json`` that says how it was taken."""
    nodes = len(documents.read(of.backend.layers(of.run, of.precision), documents.Layers).layers)
    most = max(1, MAX_EVENTS // (nodes + 2) - plan.warmup - 1)
    plan = replace(plan, most=min(plan.most, most))
    raw = of.capture(PROFILE)
    with replacing(raw) as temporary:
        measured = _measure(of, "profile", plan, temporary, among)
    document = _document(of, plan, measured)
    document["profile"] = raw.name
    write_json(of.capture(".profile.meta.json"), document)
    return {"ended_by": document["ended_by"], "summary": document["summary"]}


def outputs(of: Subject) -> dict[str, Any]:
    """The engine's outputs for the run's inputs, to ``.outputs.npz``."""
    with replacing(of.capture(".outputs.npz")) as temporary:
        answer = _call(of, "outputs", temporary, None)
    return {"facts": answer.get("facts", {})}


def accuracy(of: Subject, reference: Path, limits: Limits) -> dict[str, Any]:
    """The engine's outputs against the eager model's, to ``.accuracy.json``, with the limits that
    they are held to."""
    engine = of.capture(".outputs.npz")
    compared = compare(arrays(engine), arrays(reference), engine)
    document = {
        "schema_version": SCHEMA_VERSION,
        "source": engine.name,
        "reference": reference.name,
        **identity(of),
        "random_weights": model(of.run).random_weights,  # then agreement proves little
        "limits": limits._asdict(),
        **compared,
    }
    write_json(of.capture(".accuracy.json"), document)
    return compared


def identity(of: Subject) -> dict[str, Any]:
    """What a capture is of: a file has its precision and backend in its name only until it is
    copied. The model's values are None where no model.json has them."""
    exported = model(of.run)
    return {
        "precision": of.precision,
        "backend": of.backend.name,
        "parameters": exported.parameters,
        "batch": exported.batch,
        "sequence": exported.seq,
    }


def model(run: Run) -> documents.Model:
    """What model.json says; nothing where there is none."""
    try:
        return documents.read(run.file("export", "model.json"), documents.Model)
    except InputError:
        return documents.Model()


def arrays(path: Path) -> dict[str, Any]:
    """An npz file by name. InputError where it is none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError) as e:
        raise InputError(f"is no npz file ({e})", file=path, fix="remove it") from None


def _measure(
    of: Subject, task: str, plan: Plan, raw: Path | None, among: Loads | None
) -> dict[str, Any]:
    with loads(of, plan.processes) if among is None else contextlib.nullcontext(among) as given:
        given.ready()
        before = machine.state()
        answers = [_call(of, task, raw, plan, given) for _ in range(plan.processes)]
        after = machine.state()
    return {**processes.combine(answers), "machine": {"before": before, "after": after}}


def _call(
    of: Subject, task: str, raw: Path | None, plan: Plan | None, among: Loads | None = None
) -> dict[str, Any]:
    job = of.job(task, raw, None if plan is None else plan.as_job())
    of.run.file("captures").mkdir(parents=True, exist_ok=True)
    limit = SPARE_SECONDS + (0 if plan is None else 3 * plan.seconds)
    with progress(f"{of.precision} {of.backend.name} {task}"):
        if among is not None:
            return among.call(job, limit)
        return launch.call(of.backend.worker(), job, timeout=limit)


def _document(of: Subject, plan: Plan, measured: Mapping[str, Any]) -> dict[str, Any]:
    """What latency.json and profile.meta.json have in common."""
    facts = dict(measured.get("facts", {}))
    stat = of_processes(measured["latency_ns"], sizes(measured))
    return {
        "schema_version": SCHEMA_VERSION,
        "source": of.capture(".latency.json").name,
        **identity(of),
        "engine": of.engine.name,
        "latency_ns": measured["latency_ns"],
        "warmup_ns": measured.get("warmup_ns", []),
        **{k: measured[k] for k in ("host_ns", "queued_ns", "processes") if k in measured},
        "ended_by": facts.pop("ended_by", None),
        "target": plan.target,
        "relative_width": None if stat is None else stat.relative_width,
        "summary": None if stat is None else stat.as_dict(),
        "plan": plan.as_json(),
        "machine": measured["machine"],
        "facts": facts,
    }
