"""Which captures a run has, each read to its sides, and what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...core.capture_names import PRECISIONS, TORCH_TASKS, CaptureName
from ...core.files import listing
from ...core.run import Run
from ..model.side import Model
from ..rundir import problems, record
from ..rundir.files import optional
from . import captured, eager, engine


def captures(run: Run) -> tuple[list[captured.Captured], list[dict[str, Any]]]:
    """Every engine and eager capture of the run, and what is missing: what, why, and the fix; of
    a file that cannot be used also its name. InputError where none of them can be used."""
    with problems.collecting() as broken:
        found, skipped = _captures(run)
        if not found:
            broken.none_left()
    return found, skipped + broken.listed(run)


def _captures(run: Run) -> tuple[list[captured.Captured], list[dict[str, Any]]]:
    found: list[captured.Captured] = []
    skipped = _left_out(run)
    built = engines(run)
    skipped += _lost(run, built)
    for precision, backend in built:
        stem = run.file("captures", f"{precision}.{backend}")
        metas = (stem.with_name(f"{stem.name}.{kind}.meta.json") for kind in ("trace", "profile"))
        label = f"{captured.BACKENDS.get(backend, backend)} {precision}"
        if any(m.exists() for m in metas):
            with problems.aside(label):
                found.append(engine.engine(run, precision, backend))
        else:
            skipped.append(
                {
                    "what": label,
                    "why": "the engine was built but not profiled",
                    "fix": f"make profile PRECISION={precision} BACKEND={backend}",
                }
            )
    for task, precision in traces(run):
        make = eager.eager if task == "eager" else eager.train
        with problems.aside(f"{task} {precision}"):
            found.append(make(run, precision))
    skipped += [dict(s) for c in found for s in c.skipped]
    return found, skipped


def _lost(run: Run, built: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """What was measured and cannot be shown: a run that was copied in part."""
    found = [
        {
            "what": f"{captured.BACKENDS.get(backend, backend)} {precision}",
            "why": f"it was measured, but engines/{precision}.{backend}.layers.json is not there",
            "fix": "copy the JSON files of engines/ too, or build the engine again",
        }
        for precision, backend in _engines(run.file("captures"), ".latency.json")
        if (precision, backend) not in built
    ]
    there = traces(run)
    return found + [
        {
            "what": f"{task} {precision}",
            "why": f"it was measured, but captures/{task}.{precision}.trace.json.gz is not there",
            "fix": "copy the whole of captures/, or measure it again",
        }
        for task, precision in _torch(run.file("captures"), ".latency.json")
        if (task, precision) not in there
    ]


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
    names = [n for path in listing(folder) if (n := CaptureName.parse(path)) is not None]
    return [n for n in names if n.suffix in suffixes and n.rank is None]


def _left_out(run: Run) -> list[dict[str, Any]]:
    """What stages say they did not do, and why."""
    manifests, broken = run.read_manifests()
    found = [
        {"what": "what a step recorded of itself", "why": why, "fix": "run its step again"}
        for why in broken
    ]
    for manifest in manifests.values():
        entry = (manifest.get("facts") or {}).get("skipped")
        if isinstance(entry, dict):
            found.append({k: str(entry.get(k) or "") for k in ("what", "why", "fix")})
        elif isinstance(entry, list):
            found += [{k: str(e.get(k) or "") for k in ("what", "why", "fix")} for e in entry]
    return found


def _model(run: Run) -> Model:
    """Module paths and classes: from the export, else from the eager model's own capture, else
    from the nodes."""
    document = optional(run.file("export", "model.json"))
    title = record.title(document, run)
    tree = {m["path"]: m.get("class") for m in document.get("modules") or ()}
    if not tree:
        for meta in sorted(run.file("captures").glob("*.meta.json")):
            tree = optional(meta).get("modules") or {}
            if tree:
                break
    if not tree:
        nodes = optional(run.file("export", "nodes.json")).get("nodes") or ()
        tree = {n["module"]: n.get("module_class") for n in nodes if n.get("module") is not None}
    return Model(title, list(tree), tree)
