"""A run directory to its tables and the view of the report.

What was captured decides what is shown. What is missing and was not asked for is listed as
skipped, with the reason that its stage left.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core import tables
from ..core.errors import InputError, ToolMissing
from ..core.files import listing
from ..core.run import Run
from ..engines.backend import PRECISIONS
from . import (
    bound_run,
    captured,
    comparability,
    eager_sides,
    engine_side,
    facts,
    headline,
    left_behind,
    modules,
    record,
    sweep,
    unusable,
)
from .counters_run import counters_of_run, left_out
from .report.view import View
from .run_files import optional
from .sides import Model, SideData
from .sums import sums
from .view import build

_ENGINE = re.compile(r"^(fp32|tf32|fp16|bf16)\.([a-z][a-z0-9-]*)\.layers\.json$")
_LATENCY = re.compile(r"^(fp32|tf32|fp16|bf16)\.([a-z][a-z0-9-]*)\.latency\.json$")
_EAGER_LATENCY = re.compile(r"^(eager|train)\.(\w+)\.latency\.json$")
_TRACE = re.compile(r"^(eager|train)\.(\w+)\.trace\.json(\.gz)?$")


@dataclass(frozen=True)
class Result:
    """The view, the tables by name, run.json without the files still to be written, the noise
    of building by side key (null where it was not measured), the captures as read, and the files
    of which is not known whether they are the run's own."""

    view: View
    tables: dict[str, pa.Table]
    record: dict[str, Any]
    rebuild_noise: dict[str, float | None]
    captures: list[captured.Captured] = field(default_factory=list)
    doubtful: list[str] = field(default_factory=list)


def analyse(run: Run) -> Result:
    """Read every capture of the run. InputError where there is none, or none can be used."""
    with unusable.collecting() as broken:
        result = _analyse(run, broken)
    listed = broken.listed(run)
    skipped = result.view["skipped"]
    skipped += listed
    told, doubtful = left_behind.told(run, skipped)
    skipped += told
    if left := [s for s in skipped if s.get("file")]:
        result.view["headline"].insert(1, headline.unusable(left))
    return replace(result, doubtful=doubtful)


def _analyse(run: Run, broken: unusable.Unusable) -> Result:
    found, skipped = _captures(run)
    sides, parts = [s for c in found for s in c.sides], [c.ops for c in found]
    batches = None
    with unusable.aside("the batch sweep"):
        batches = sweep.load(run, captured.BACKENDS)
    if not sides and batches is None:
        broken.none_left()
        raise InputError(
            "nothing was captured", file=run.path, fix="run the profile stage (make profile)"
        )
    model = _model(run)
    known = facts.collect(run, sides)
    document = record.assemble(run, known)
    counted = counters(run, skipped)
    view = build(
        sides,
        model,
        comparability=comparability.differences(known),
        skipped=skipped,
        manifest=document,
        generated=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    bounds = bound_run.load(run, sides, counted, view)
    if bounds is not None:
        view["counters"] = bounds
    if batches is not None:
        view["sweep"] = batches
        exported = optional(run.file("export", "model.json"))
        batches["remarks"] = sweep.beside(
            batches, view["sides"], exported.get("batch"), exported.get("seq")
        )
        if not sides:
            view["headline"] = sweep.headline(batches)
    return Result(
        view,
        {
            "ops": pa.concat_tables(parts or [tables.table("ops", [])]),
            "layers": _layers(sides),
            "latency": _latency(sides),
            "modules": _modules(sides, model),
            **({} if counted is None else {"counters": counted}),
        },
        document,
        {s.key: s.rebuild_noise for s in sides},
        found,
    )


def counters(run: Run, skipped: list[dict[str, Any]]) -> pa.Table | None:
    """The counters of the run's ncu captures; what cannot be read or told is listed as
    skipped."""
    with unusable.aside("counters"):
        skipped += left_out(run)
        try:
            return counters_of_run(run, skipped)
        except ToolMissing as e:
            skipped.append({"what": "counters", "why": e.what, "fix": e.fix or ""})
    return None


def captures(run: Run) -> tuple[list[captured.Captured], list[dict[str, Any]]]:
    """Every engine and eager capture of the run, and what is missing: what, why, and the fix; of
    a file that cannot be used also its name. InputError where none of them can be used."""
    with unusable.collecting() as broken:
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
            with unusable.aside(label):
                found.append(engine_side.engine(run, precision, backend))
        else:
            skipped.append(
                {
                    "what": label,
                    "why": "the engine was built but not profiled",
                    "fix": f"make profile PRECISION={precision} BACKEND={backend}",
                }
            )
    for task, precision in traces(run):
        make = eager_sides.eager if task == "eager" else eager_sides.train
        with unusable.aside(f"{task} {precision}"):
            found.append(make(run, precision))
    skipped += [dict(s) for c in found for s in c.skipped]
    return found, skipped


def _lost(run: Run, built: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """What was measured and cannot be shown: a run that was copied in part."""
    folder = run.file("captures")
    found = [
        {
            "what": f"{captured.BACKENDS.get(backend, backend)} {precision}",
            "why": f"it was measured, but engines/{precision}.{backend}.layers.json is not there",
            "fix": "copy the JSON files of engines/ too, or build the engine again",
        }
        for precision, backend in _matches(folder, _LATENCY, PRECISIONS, 0)
        if (precision, backend) not in built
    ]
    there = traces(run)
    return found + [
        {
            "what": f"{task} {precision}",
            "why": f"it was measured, but captures/{task}.{precision}.trace.json.gz is not there",
            "fix": "copy the whole of captures/, or measure it again",
        }
        for task, precision in _matches(folder, _EAGER_LATENCY, ("eager", "train"), 0)
        if (task, precision) not in there
    ]


def engines(run: Run) -> list[tuple[str, str]]:
    """(precision, backend) of every engine that was built, fp32 first."""
    return _matches(run.file("engines"), _ENGINE, PRECISIONS, 0)


def traces(run: Run) -> list[tuple[str, str]]:
    """("eager" | "train", precision) of every eager capture, inference first."""
    return _matches(run.file("captures"), _TRACE, ("eager", "train"), 0)


def _matches(
    folder: Path, pattern: re.Pattern[str], order: tuple[str, ...], by: int
) -> list[tuple[str, str]]:
    hits = [m for p in listing(folder) if (m := pattern.match(p.name))]
    found = {(m[1], m[2]) for m in hits}
    return sorted(found, key=lambda f: (order.index(f[by]), f))


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


def _layers(sides: list[SideData]) -> pa.Table:
    parts = [s.layers for s in sides if s.layers is not None]
    return pa.concat_tables(parts) if parts else tables.table("layers", [])


def _latency(sides: list[SideData]) -> pa.Table:
    """Unprofiled latencies, `source` being the side's key: a capture may have several phases."""
    return tables.table(
        "latency",
        [
            {"source": s.key, "precision": s.precision, "iteration": i, "latency_ns": ns}
            for s in sides
            for i, ns in enumerate(s.latency_ns)
        ],
    )


def _modules(sides: list[SideData], model: Model) -> pa.Table:
    rows = []
    for side in sides:
        made = sums(side.ops, side.labels)
        about = {
            "side": side.side,
            "source": side.source,
            "precision": side.precision,
            "phase": side.phase,
        }
        paths = modules.ordered_tree(model.paths, made.units())
        rows += modules.rows(about, made, paths, model.classes)
    return tables.table("modules", rows)
