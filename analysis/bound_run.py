"""The hardware counters of a run's sides: its ncu captures, and what it says of missing ones."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ..core.run import Run
from . import bound, floors, roofline
from .floors import LayerFloor
from .report.view import View
from .report.view_counters import Counted, Uncounted
from .run_files import optional, plan_of
from .sides import SideData

# fp16.tensorrt.ncu-rep, fp16.tensorrt.2.ncu.csv, eager.fp16.ncu-every.ncu-rep
_STEM = re.compile(r"^(\w+\.[a-z0-9-]+)((?:\.[^.]+)*)\.(?:ncu-rep|ncu\.csv)$")
_PART = re.compile(r"^\.\d+$")  # a second report of one capture
REFUSED = "ERR_NVGPUCTRPERM"


def load(
    run: Run, sides: Sequence[SideData], counters: pa.Table | None, view: View
) -> Counted | None:
    """The counters of every side that runs kernels; null where none does."""
    captures = by_name(counters)
    found: Counted = {"sides": [], "uncounted": []}
    for side in sides:
        if side.phase not in ("inference", "step"):
            continue
        name = _name(side)
        if name in captures:
            stem, table = captures[name]
            meta = optional(run.file("captures", f"{stem}.ncu.meta.json"))
            plan = plan_of(run.file("captures"), stem)
            clocks = meta.get("clock_control")
            capture = bound.Capture(side.key, table, _floors(run, side), plan, clocks)
            found["sides"].append(bound.side(capture, view))
        elif _runs_kernels(side):
            found["uncounted"].append(_uncounted(run, side, name))
    return found if found["sides"] or found["uncounted"] else None


def _floors(run: Run, side: SideData) -> Mapping[str, LayerFloor]:
    """An export has the nodes of inference: the backward of a training step has no floor."""
    if side.side == "engine" or side.phase != "inference":
        return side.floors
    return floors.of_eager(run, side.precision)


def by_name(counters: pa.Table | None) -> dict[str, tuple[str, pa.Table]]:
    """By engine or task and precision, the capture that tells most: its stem and its counters."""
    if counters is None:
        return {}
    stems: dict[str, list[str]] = defaultdict(list)
    for source in pc.unique(counters["source"]).to_pylist():
        parts = _STEM.match(source)
        if parts:
            extra = "" if _PART.match(parts[2]) else parts[2]
            stems[parts[1] + extra].append(source)
    found: dict[str, tuple[str, pa.Table]] = {}
    for stem, sources in sorted(stems.items()):
        table = counters.filter(pc.is_in(counters["source"], pa.array(sources)))
        name = ".".join(stem.split(".")[:2])
        if name not in found or _rank(table) > _rank(found[name][1]):
            found[name] = (stem, table)
    return found


def _rank(table: pa.Table) -> tuple[int, int]:
    """First what bounds can be told by, then how many launches were measured themselves."""
    lacking = roofline.missing(set(pc.unique(table["metric"]).to_pylist()))
    own = table.filter(pc.is_null(table["representative_of"]))
    return -len(lacking), len(pc.unique(own["launch"]))


def _name(side: SideData) -> str:
    if side.side == "engine":
        return f"{side.precision}.{side.backend}"
    return f"{'train' if side.phase == 'step' else 'eager'}.{side.precision}"


def _runs_kernels(side: SideData) -> bool:
    return "kernel" in pc.unique(side.ops["kind"]).to_pylist()


def _uncounted(run: Run, side: SideData, name: str) -> Uncounted:
    # Also of a capture of every launch.
    refusals = sorted(run.file("captures").glob(f"{name}.*ncu.refused.json"))
    if refusals:
        told = optional(refusals[0])
        why, fix = str(told.get("why") or "ncu was refused"), str(told.get("fix") or "")
        return _row(side, why, fix, REFUSED in why)
    if any(run.file("captures").glob(f"{name}.*ncu-rep")):
        fix = "make this machine read them, see under Skipped"
        return _row(side, "its ncu capture holds no counters that can be read here", fix, False)
    what = {"step": " --what train"}.get(
        side.phase, "" if side.side == "engine" else " --what eager"
    )
    backend = f" --backend {side.backend}" if side.side == "engine" else ""
    fix = f"layerline ncu --run RUN{what} --precision {side.precision}{backend} --roofline"
    return _row(side, "no hardware counters were captured", fix, False)


def _row(side: SideData, why: str, fix: str, refused: bool) -> Uncounted:
    return {"key": side.key, "label": side.label, "why": why, "fix": fix, "refused": refused}
