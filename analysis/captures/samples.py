"""What a gate judges of a run: medians by process, of sides, kinds and modules.

One run of layerline has several processes of a latency and one of a profile, so the times of
modules have one value a run; `joined` puts several runs of the same thing together.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from ...core.capture_names import TORCH_TASKS, named
from ...core.documents import Measured, Memory
from ...core.run import Run
from ...core.series import in_order, split
from ...core.stats import Estimate
from ..model.baseline import (
    KIND,
    LATENCY,
    MEMORY,
    MODULE,
    OPERATIONS,
    QUEUED,
    SCHEMA_VERSION,
    Baseline,
    Outputs,
    Quantity,
    SideSamples,
)
from ..model.comparison import Comparison, Cost, ModuleRow, Side
from ..rundir import files
from ..rundir.problems import Problems
from ..rundir.superseded import superseded
from . import rank_samples, settings
from .captured import Captured
from .files import EngineFiles

_DESCRIBED = ("model", "class", "weights", "parameters", "attention", "overrides", "revision")


def of_run(
    run: Run, captures: Sequence[Captured] = (), comparison: Comparison | None = None
) -> Baseline:
    """The samples of a run, as a baseline of one run; `comparison` None: of its ranks alone. Sides
    that have no capture but of which the outputs are known have no quantities."""
    known = {s.key: s.facts for s in settings.collect(captures, run.manifests())}
    of_side = {m.key: c for c in captures for m in c.sides}
    sides, of_job = rank_samples.of_run(run)
    title = " ".join(str(of_job[n]) for n in ("workload", "model") if n in of_job)
    baseline = Baseline(
        baseline_version=SCHEMA_VERSION, title=title, facts=of_job, stale=superseded(run)
    )
    if comparison is not None:
        sides |= {
            s.key: _side(run, s, of_side.get(s.key), known.get(s.key, {}), comparison)
            for s in comparison.sides
        }
        baseline = structs.replace(
            baseline,
            title=comparison.title,
            made=comparison.generated,
            facts=of_job | _facts(comparison.manifest),
            lost={s.file: _why(s.file, s.why) for s in comparison.skipped if s.file is not None},
        )
    problems = Problems()
    sides |= _memory(run, sides, problems)
    sides = {k: s for k, s in sides.items() if s.quantities or s.outputs is not None}
    lost = {r["file"]: _why(r["file"], r["why"]) for r in problems.listed(run)}
    return structs.replace(baseline, sides=sides, lost=baseline.lost | lost)


def _why(file: str, text: str) -> str:
    """Without the file's name, which goes before."""
    return text.removeprefix(f"{file}: ")


def joined(baselines: Sequence[Baseline]) -> Baseline:
    """Several runs of the same thing as one; what one of them lacks has as many runs less.

    Facts that differ between them are listed with each of their values.
    """
    first, keys = baselines[0], dict.fromkeys(k for b in baselines for k in b.sides)
    if len(baselines) == 1:
        return first
    return structs.replace(
        first,
        facts=_together([b.facts for b in baselines]),
        sides={k: _joined([b.sides[k] for b in baselines if k in b.sides]) for k in keys},
        stale=[s for b in baselines for s in b.stale],
        lost={k: why for b in baselines for k, why in b.lost.items()},
        left_out=max(b.left_out for b in baselines),
    )


def _together(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in dict.fromkeys(k for f in facts for k in f):
        values = [f.get(name) for f in facts]
        if all(isinstance(v, dict) for v in values):
            found[name] = _together([dict(v or {}) for v in values])
        else:
            different = [v for i, v in enumerate(values) if v not in values[:i]]
            found[name] = different[0] if len(different) == 1 else different
    return found


def _joined(sides: Sequence[SideSamples]) -> SideSamples:
    order = dict.fromkeys(q.key for s in sides for q in s.quantities)
    of_all = {key: [q for s in sides for q in s.quantities if q.key == key] for key in order}
    verdicts = [s.outputs for s in sides]
    return structs.replace(
        sides[0],
        # One that is wrong is wrong; one that is unknown leaves the whole unknown.
        outputs=min(verdicts, key=lambda o: _ORDER.index(None if o is None else o.ok)),
        coverage=[c for s in sides for c in s.coverage],
        builds=[b for s in sides for b in s.builds],
        build_noise=max((s.build_noise for s in sides if s.build_noise is not None), default=None),
        quantities=[_one(found) for found in of_all.values()],
    )


_ORDER = (False, None, True)


def _one(found: Sequence[Quantity]) -> Quantity:
    within = [q.within for q in found if q.within is not None]
    return structs.replace(
        found[0],
        runs=[run for q in found for run in q.runs],
        within=statistics.fmean(within) if within else None,
        shared=any(q.shared for q in found),
    )


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What may have changed beside the time, in words that are short."""
    facts = dict(manifest.get("facts") or {})
    described = manifest.get("model") or {}
    exported = {
        path.removeprefix("export/").removesuffix(".onnx"): str(digest)[:12]
        for path, digest in (manifest.get("files") or {}).items()
        if path.startswith("export/") and path.endswith(".onnx") and digest
    }
    found = {**{k: described.get(k) for k in _DESCRIBED}, "architecture": facts.pop("model", None)}
    found |= {"seed": manifest.get("seed"), "exported": exported, **facts}
    return {k: v for k, v in found.items() if v not in (None, {}, [])}


def _side(
    run: Run,
    side: Side,
    captured: Captured | None,
    facts: Mapping[str, Any],
    comparison: Comparison,
) -> SideSamples:
    measured = captured and next(m for m in captured.sides if m.key == side.key)
    gpu, clocks = facts.get("gpu"), facts.get("clocks")
    outputs = side.outputs and Outputs(
        ok=side.outputs.ok, why=side.outputs.why, cosine=(side.parity or {}).get("cosine")
    )
    files_ = captured.files if captured else None
    unprofiled = Measured()
    if isinstance(files_, EngineFiles) and files_.latency is not None:
        unprofiled = files_.latency
    quantities = [
        _series(LATENCY, measured.latency_ns if measured else (), unprofiled.sizes()),
        _series(QUEUED, unprofiled.queued_ns, unprofiled.queued_sizes()),
        _total(measured.sums.total() if measured and measured.sums.iterations else ()),
        *(_cost(KIND, k.name, k.costs.get(side.key)) for k in comparison.kinds),
        *_modules(side.key, comparison.modules),
        _needed("device", unprofiled.facts.device_bytes),
        _needed("context", unprofiled.facts.context_bytes),
    ]
    return SideSamples(
        outputs=outputs or None,
        coverage=[] if side.coverage is None else [side.coverage],
        builds=_build(run, side),
        build_noise=side.rebuild_noise,
        on_gpu=None if gpu is None else gpu != "none",
        sm_mhz=clocks if isinstance(clocks, (int, float)) else None,
        quantities=[q for q in quantities if q is not None],
    )


def _series(what: str, samples: Sequence[int], sizes: Sequence[int]) -> Quantity | None:
    """By process: its median, and how wide their intervals are."""
    if not samples:
        return None
    fitting = sizes if sum(sizes) == len(samples) else ()
    each = [s for part in split(samples, fitting) if (s := in_order(part)) is not None]
    return Quantity(what=what, runs=[[s.median for s in each]], within=_within(each))


def _total(samples: Any) -> Quantity | None:
    found = in_order([int(n) for n in samples])
    if found is None:
        return None
    return Quantity(what=OPERATIONS, runs=[[found.median]], within=_within([found]))


def _within(each: Iterable[Estimate]) -> float | None:
    halves = [(e.high - e.low) / 2 for e in each if e.low is not None and e.high is not None]
    return round(statistics.fmean(halves), 1) if halves else None


def _modules(key: str, rows: Sequence[ModuleRow]) -> list[Quantity | None]:
    """Modules, and what is no module's; the whole model is `OPERATIONS`."""
    named = [(r.path if r.kind == "module" else r.name, r) for r in rows if r.kind != "block"]
    return [_cost(MODULE, name, row.costs.get(key)) for name, row in named if name]


def _cost(what: str, name: str, cost: Cost | None) -> Quantity | None:
    """Of all layers that are wholly or partly inside: that is exact, and split in no way."""
    if cost is None or cost.upper.median is None:
        return None
    return Quantity(
        what=what,
        name=name,
        runs=[[cost.upper.median]],
        within=_within([cost.upper]),
        shared=bool(cost.shared),
    )


def _build(run: Run, side: Side) -> list[str]:
    """The hash of the engine that was measured; none where that was not recorded."""
    if side.task != "engine":
        return []
    manifest = run.manifest(f"profile/{side.stem}.latency") or {}
    names = (f"engines/{side.stem}.engine", f"engines/{side.stem}.onnx")
    recorded = (manifest.get("inputs") or {}).get
    hashes = [(recorded(n) or {}).get("sha256") for n in names]
    return [str(h)[:16] for h in hashes if h][:1]


def _needed(name: str, count: int | None) -> Quantity | None:
    """Bytes on the device, by what the library says of the engine."""
    if not count:
        return None
    return Quantity(what=MEMORY, name=name, runs=[[count]], exact=name == "context")


def _memory(
    run: Run, sides: Mapping[str, SideSamples], problems: Problems
) -> dict[str, SideSamples]:
    """The peak of each training step that was recorded, by side of the whole step."""
    found = {}
    for path, name in named(run.file("captures"), ".memory.json").items():
        if name.task not in TORCH_TASKS:
            continue
        meta = files.optional(path, Memory, problems)
        peaks = [
            peak
            for s in (meta.steps if meta else ())
            if (peak := s.allocated_peak_bytes or s.counted_peak_bytes)
        ]
        if peaks:
            key = rank_samples.key(name.precision, name.rank)
            side = sides.get(key, SideSamples())
            most = Quantity(what=MEMORY, name="peak", runs=[[max(peaks)]], exact=True)
            found[key] = structs.replace(side, quantities=[*side.quantities, most])
    return found
