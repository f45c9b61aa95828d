"""Which captures a run has, each read to its sides, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from ...core import documents
from ...core.capture_names import PRECISIONS, TORCH_TASKS, CaptureName, named
from ...core.run import Run
from ..costs.measured import MeasuredSide
from ..model.comparison import Side
from ..model.side import Model
from ..rundir import record
from ..rundir.files import optional
from ..rundir.problems import Problems
from . import captured, eager, engine, files


def read(run: Run, exported: documents.Model | None, problems: Problems) -> list[captured.Captured]:
    """Every engine and eager capture of the run that can be used; what is missing is a problem."""
    captures: list[captured.Captured] = []
    built, there = engines(run), traces(run)
    _skipped_by_stages(run, problems)
    _lost(run, built, there, problems)
    for precision, backend in built:
        label = f"{captured.BACKENDS.get(backend, backend)} {precision}"
        if any(m.exists() for m in _metas(run, precision, backend)):
            with problems.without(label):
                own = files.of_engine(run, precision, backend, exported, problems)
                captures.append(engine.engine(own))
        elif not _accuracy(run, precision, backend).exists():
            problems.skip(
                label,
                "the engine was built but not profiled",
                f"layerline profile RUN --precision {precision} --backend {backend}",
            )
    for task, precision in there:
        with problems.without(f"{task} {precision}"):
            beside = files.of_eager(run, task, precision, exported, problems)
            captures.append(eager.eager(beside, problems))
    return captures


def unmeasured(
    run: Run,
    exported: documents.Model | None,
    captures: Sequence[captured.Captured],
    wrong: Callable[[Side], bool],
    problems: Problems,
) -> list[MeasuredSide]:
    """Engines of which the outputs alone are known: those that are wrong are not measured. What was
    measured before an engine went `wrong` is of another one."""
    sides = []
    shown = {(s.side.precision, s.side.backend) for c in captures for s in c.sides}
    for precision, backend in engines(run):
        path = _accuracy(run, precision, backend)
        if (precision, backend) in shown or not path.exists():
            continue
        accuracy = optional(path, documents.Accuracy, problems)
        if accuracy is None:
            continue
        alone = engine.unmeasured(precision, backend, path.name, accuracy, exported)
        alone = with_errors(run, alone, problems)
        if wrong(alone.side) or not any(m.exists() for m in _metas(run, precision, backend)):
            sides.append(alone)
    return sides


def with_errors(run: Run, measured: MeasuredSide, problems: Problems) -> MeasuredSide:
    """The side with its errors by module, where they were measured."""
    side = measured.side
    if side.task != "engine":
        return measured
    name = CaptureName("engine", side.precision, side.backend, ".accuracy.modules.json")
    found = optional(name.path(run.file("captures")), documents.ModuleErrors, problems)
    if found is None:
        return measured
    return replace(measured, side=replace(side, errors={m.module: m for m in found.modules}))


def _metas(run: Run, precision: str, backend: str) -> list[Path]:
    stem = run.file("captures", f"{precision}.{backend}")
    return [stem.with_name(f"{stem.name}.{kind}.meta.json") for kind in ("trace", "profile")]


def _accuracy(run: Run, precision: str, backend: str) -> Path:
    return CaptureName("engine", precision, backend, ".accuracy.json").path(run.file("captures"))


def _lost(
    run: Run,
    built: Sequence[tuple[str, str]],
    there: Sequence[tuple[str, str]],
    problems: Problems,
) -> None:
    """What was measured and cannot be shown: a run that was copied in part."""
    for precision, backend in _engines(run.file("captures"), ".latency.json"):
        if (precision, backend) not in built:
            problems.skip(
                f"{captured.BACKENDS.get(backend, backend)} {precision}",
                f"it was measured, but engines/{precision}.{backend}.layers.json is not there",
                "copy the JSON files of engines/ too, or build the engine again",
            )
    for task, precision in _torch(run.file("captures"), ".latency.json"):
        if (task, precision) not in there:
            problems.skip(
                f"{task} {precision}",
                f"it was measured, but captures/{task}.{precision}.trace.json.gz is not there",
                "copy the whole of captures/, or measure it again",
            )


def engines(run: Run) -> list[tuple[str, str]]:
    """(precision, backend) of every engine that was built, fp32 first."""
    return _engines(run.file("engines"), ".layers.json")


def traces(run: Run) -> list[tuple[str, str]]:
    """("eager" | "train", precision) of every eager capture, inference first."""
    return _torch(run.file("captures"), ".trace.json", ".trace.json.gz")


def _engines(folder: Path, suffix: str) -> list[tuple[str, str]]:
    engines = {(n.precision, n.backend) for n in _names(folder, suffix) if n.backend is not None}
    return sorted(engines, key=lambda e: (PRECISIONS.index(e[0]), e))


def _torch(folder: Path, *suffixes: str) -> list[tuple[str, str]]:
    tasks = {(n.task, n.precision) for n in _names(folder, *suffixes) if n.task in TORCH_TASKS}
    return sorted(tasks, key=lambda t: (TORCH_TASKS.index(t[0]), t))


def _names(folder: Path, *suffixes: str) -> list[CaptureName]:
    """The files of these suffixes that are of one process."""
    return [n for n in named(folder, *suffixes).values() if n.rank is None]


def _skipped_by_stages(run: Run, problems: Problems) -> None:
    """What stages say they did not do, and why."""
    manifests, broken = run.read_manifests()
    for error in broken:
        problems.keep(error, "what a step recorded of itself")
    for manifest in manifests.values():
        entries = (manifest.get("facts") or {}).get("skipped") or ()
        for entry in [entries] if isinstance(entries, dict) else entries:
            problems.skip(*(str(entry.get(k) or "") for k in ("what", "why", "fix")))


def model(run: Run, exported: documents.Model | None, problems: Problems) -> Model:
    """Module paths and classes: from the export, else from the eager model's own capture, else
    from the nodes."""
    classes = {m.path: m.class_ for m in exported.modules} if exported is not None else {}
    trained: list[documents.Eager] = []
    for name in _names(run.file("captures"), ".meta.json"):
        if exported is None and name.task in TORCH_TASKS:
            meta = optional(name.path(run.file("captures")), documents.Eager, problems)
            trained += [] if meta is None else [meta]
    for meta in trained:
        classes = classes or meta.modules
    if not classes:
        listed = optional(run.file("export", "nodes.json"), documents.Nodes, problems)
        nodes = [] if listed is None else listed.nodes
        classes = {n.module: n.module_class for n in nodes if n.module is not None}
    return Model(record.title(exported, trained, run), list(classes), classes)
