"""``layerline accuracy --plan``: engines that keep some modules in fp32, each built and measured.

Each is made in a run of its own in a temporary folder, of the export and with the options of the
engine that is asked about. Leaves a precision plan (`core.accuracy.precision_plan`) that also says
what was tried: outputs and latency before and after.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import nodes
from ...core.accuracy import precision_plan
from ...core.accuracy.limits import Limits, Verdict, judge
from ...core.cli.progress import log
from ...core.documents import ModuleError
from ...core.errors import CheckFailed, InputError, LayerlineError
from ...core.files import read_json, write_json
from ...core.run import Run
from ...core.stats import Stat
from ...engines.backend import nodes_path
from ...engines.launch import Serving
from ..eager import process
from ..engine import measure
from ..engine.measure import Subject
from . import gate, locate, tensors, values
from .search import Found, Modules, Trial, search

FIGURES = ("cosine", "top1", "max_rel", "nonfinite", "constant")


class _Tries:
    """The engines of one search, in `folder`."""

    def __init__(self, of: Subject, limits: Limits, plan: measure.Plan, folder: Path) -> None:
        self.of, self.limits, self.plan, self.folder = of, limits, plan, folder
        path = nodes_path(of.run, of.precision)
        self.graph, self.types = nodes.load(path), read_json(path).get("tensors") or {}
        self.reference = process.reference(of.run)
        with Serving(process.WORKER) as worker:
            eager = values.eager(of.run, folder, worker)
            if not self.reference.exists():
                process.outputs(worker, of.run)
        self.placed = tensors.place(self.graph, self.types, eager)
        self.random = bool(measure.model(of.run).random_weights)
        self.subjects: dict[Modules, Subject] = {}
        self.known: dict[Modules, Sequence[ModuleError]] = {}

    def errors(self, modules: Modules) -> Sequence[ModuleError]:
        """By module, of the engine that was tried with these."""
        if modules not in self.known:
            self.known[modules] = self._errors(modules)
        return self.known[modules]

    def _errors(self, modules: Modules) -> Sequence[ModuleError]:
        subject = self.subjects.get(modules)
        if subject is None:  # it could not be built
            return []
        folder = subject.run.path / "marked"
        folder.mkdir(exist_ok=True)
        source = values.OnnxSource(subject, self.placed, self.graph.outputs, self.types, folder)
        return locate.of_engine(subject, source, self.limits)

    def judge(self, subject: Subject, modules: Modules, figures: Mapping[str, Any]) -> Verdict:
        """As `layerline profile` judges: of random weights by the modules, too."""
        known = {**figures, "random_weights": self.random}
        return gate.by_errors(
            subject,
            judge(figures, self.limits),
            known,
            self.limits,
            lambda: self.errors(modules),
        )

    def attempt(self, modules: Modules) -> Trial:
        """Build and measure; latency only where it is the first or right."""
        run = Run(self.folder / str(sum(1 for _ in self.folder.iterdir())))
        run.path.mkdir()
        run.file("export").symlink_to(self.of.run.file("export").resolve())
        options = {**self.of.record.get("options", {})}
        options.pop("precision_plan", None)
        if "timing_cache" in self.of.backend.builder:
            options["timing_cache"] = str(self.folder / "timing.cache")
        if modules:
            options["precision_plan"] = {"file": None, "modules_fp32": list(modules)}
        what = f"{self.of.precision} with {', '.join(modules) or 'no module'} in fp32"
        try:
            self.of.backend.build(run, self.of.precision, options)
            subject = measure.subject(run, self.of.precision, self.of.backend)
            self.subjects[modules] = subject
            measure.outputs(subject)
            figures = measure.accuracy(subject, self.reference, self.limits)
        except LayerlineError as e:
            if not modules:
                raise
            log(f"{what}: {e.line()}")
            return Trial(modules, {}, None, e.what)
        verdict = self.judge(subject, modules, figures)
        why = "" if verdict.ok else verdict.why
        latency = None
        if not modules or not why:
            measure.latency(subject, self.plan)
            latency = Stat(**read_json(subject.capture(".latency.json"))["summary"])
        log(f"{what}: {why or 'right'}")
        return Trial(modules, figures, latency, why)


def plan(of: Subject, limits: Limits, repeat: measure.Plan, most: int) -> Found:
    """Search for the least set of modules to keep in fp32, with at most so many engines."""
    if of.precision not in precision_plan.PLANNED:
        raise InputError(f"{of.precision} engines keep no modules in fp32", fix="use fp16 or bf16")
    if "precision_plan" not in of.backend.builder:
        raise InputError(f"{of.backend.name} takes no precision plan", fix="use another --backend")
    with tempfile.TemporaryDirectory(prefix="layerline-plan-") as name:
        tries = _Tries(of, limits, repeat, Path(name))
        return search(tries.errors, tries.attempt, most)


def write(found: Found, of: Subject, limits: Limits, file: Path) -> None:
    """Write the plan. CheckFailed where nothing that was tried is right."""
    if found.after is None:
        fix = "layerline accuracy shows the errors by module"
        if not of.run.file("export", "fp32.onnx").exists():
            fix = (
                f"export with --precision fp32,{of.precision}: modules then have the constants of "
                "fp32.onnx"
            )
        raise CheckFailed(
            f"no precision plan for {of.precision} {of.backend.name}: {found.why}", fix=fix
        )
    kept = [{"module": m, "why": found.reasons.get(m, "")} for m in found.after.modules]
    write_json(
        file,
        {
            "schema_version": precision_plan.SCHEMA_VERSION,
            "precision": of.precision,
            "backend": of.backend.name,
            "modules_fp32": kept,
            "limits": limits._asdict(),
            "before": _as_json(found.before),
            "after": _as_json(found.after),
            "tries": [_as_json(t) for t in found.trials],
            "ended": found.why or None,
        },
    )


def sentences(found: Found) -> list[str]:
    """Before and after, in words."""
    said = [f"before: {_said(found.before)}"]
    if found.after is not None and found.after is not found.before:
        said.append(f"after:  {_said(found.after)}")
        said += [f"fp32: {m} ({found.reasons.get(m, '')})" for m in found.after.modules]
    said.append(f"engines tried: {len(found.trials)}" + (f"; {found.why}" if found.why else ""))
    return said


def _said(trial: Trial) -> str:
    figures: Mapping[str, Any] = trial.figures
    cosine, top1 = figures.get("cosine"), figures.get("top1")
    parts = [f"wrong: {trial.why}" if trial.why else "right"]
    if cosine is not None and "cosine" not in trial.why:
        parts.append(f"cosine {cosine:.6g}")
    if top1 is not None and "top-1" not in trial.why:
        parts.append(f"top-1 {top1:.1%}".replace("%", " %"))
    if (took := trial.latency) is not None:
        parts.append(f"{took.median / 1e3:,.1f} µs")
        if took.low is not None and took.high is not None:
            parts[-1] += f" ({took.low / 1e3:,.1f} to {took.high / 1e3:,.1f})"
    return ", ".join(parts)


def _as_json(trial: Trial) -> dict[str, Any]:
    return {
        "modules_fp32": trial.modules,
        "wrong": trial.why or None,
        **{k: trial.figures.get(k) for k in FIGURES},
        "latency_ns": None if trial.latency is None else trial.latency.as_dict(),
    }
