"""The hardware counters of a run's sides: its ncu captures, and what it says of missing ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core import nodes
from ...core.capture_names import EVERY, RANGE, CaptureName
from ...core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from ...core.nodes import NodeGraph
from ...core.run import Run
from ..counters import launches, representatives
from ..counters import pieces as pieces_
from ..model.comparison import Comparison
from ..model.counters import Counted, Uncounted
from ..model.side import LayerFloor, SideData
from ..readers import registry
from ..readers.base import Artefact
from ..readers.ncu import page
from ..readers.ncu.tables import of_ranges
from ..roofline import bound
from ..roofline.bound_inputs import by_name
from ..rundir import problems, provenance
from ..rundir.files import describing, optional, plan_of
from . import floors as floors_
from .engine_ops import network_of, nodes_file

REFUSED = "ERR_NVGPUCTRPERM"


def load(
    run: Run, sides: Sequence[SideData], counters: pa.Table | None, view: Comparison
) -> Counted | None:
    """The counters of every side that runs kernels; None where none does."""
    captures = by_name(counters)
    counted: Counted = {"sides": [], "uncounted": []}
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
            counted["sides"].append(bound.side(capture, view))
        elif _runs_kernels(side):
            counted["uncounted"].append(_uncounted(run, side, name))
    return counted if counted["sides"] or counted["uncounted"] else None


def _floors(run: Run, side: SideData) -> Mapping[str, LayerFloor]:
    """An export has the nodes of inference: the backward of a training step has no floor."""
    if side.side == "engine" or side.phase != "inference":
        return side.floors
    return floors_.of_eager(run, side.precision)


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
        refusal = optional(refusals[0])
        why, fix = str(refusal.get("why") or "ncu was refused"), str(refusal.get("fix") or "")
        return _row(side, why, fix, REFUSED in why)
    if any(run.file("captures").glob(f"{name}.*ncu-rep")):
        fix = "make this machine read them, see under Skipped"
        return _row(side, "its ncu capture holds no counters that can be read here", fix, False)
    of = {"step": " --of train"}.get(side.phase, "" if side.side == "engine" else " --of eager")
    backend = f" --backend {side.backend}" if side.side == "engine" else ""
    fix = f"layerline ncu --run RUN{of} --precision {side.precision}{backend} --roofline"
    return _row(side, "no hardware counters were captured", fix, False)


def _row(side: SideData, why: str, fix: str, refused: bool) -> Uncounted:
    return {"key": side.key, "label": side.label, "why": why, "fix": fix, "refused": refused}


_CAPTURES = (".ncu-rep", ".ncu.csv", pieces_.FOLDER)


class Unplanned(InputError):
    """A capture whose launches are not those of its plan, or are no kernels'."""


_AS_ONE = {
    "why": "holds ranges that were replayed as one, of no kernel and no layer",
    "fix": "`layerline metrics` shows them; counters of layers need --replay-mode kernel",
}


def captures(run: Run) -> list[Path]:
    """The ncu captures of a run; of a report and the CSV made of it, the report where it can be
    read (its values are not rounded).

    A capture in pieces is their folder. Of two captures of one engine, one of every launch and one
    at the fraction, the latter counts. Counters of an iteration as one (range replay) are of no
    layer and left to `layerline metrics`.
    """
    folder = run.file("captures")
    path_of: dict[str, Path] = {}
    kinds = [("*.ncu.csv", ".ncu.csv"), ("*.ncu-rep", ".ncu-rep")]
    if importlib.util.find_spec("ncu_report") is None:
        kinds.reverse()
    for pattern, suffix in kinds:
        for path in sorted(folder.glob(pattern)):
            stem = path.name.removesuffix(suffix)
            if not stem.startswith("."):
                path_of[stem] = path
    for pieces in sorted(folder.glob(f"*{pieces_.FOLDER}")):
        if pieces_.in_use(pieces):
            path_of[pieces.name.removesuffix(pieces_.FOLDER)] = pieces
    own = {s: path for s, path in path_of.items() if not foreign(run, path)}
    return [
        own[s]
        for s in sorted(own)
        if not s.endswith(f".{RANGE}")
        and (s == s.removesuffix(f".{EVERY}") or s.removesuffix(f".{EVERY}") not in own)
    ]


def foreign(run: Run, capture: Path) -> bool:
    """Whether a capture is of another engine than the run's: it says which one it is of, and the
    engine was built again, or comes from another run."""
    own = CaptureName.parse(capture)
    if own is None or own.task != "engine" or own.suffix not in _CAPTURES:
        return False
    took = optional(capture.with_name(f"{own.stem}.ncu.meta.json")).get("inputs")
    step = run.manifest(f"engines/{own.precision}.{own.backend}")
    built = step.get("outputs") if isinstance(step, dict) else None
    if not isinstance(took, dict) or not isinstance(built, dict):
        return False
    for name, of in built.items():
        digest = took.get(Path(name).name) if Path(name).suffix in (".engine", ".onnx") else None
        if isinstance(of, dict) and digest is not None:
            return bool(of.get("sha256") != digest)
    return False


def left_out(run: Run) -> list[dict[str, str]]:
    """The captures of other engines: what, why, the fix and the file that tells, as reports list
    what cannot be used."""
    stems = {
        stem
        for path in run.file("captures").glob("*.ncu*")
        if (stem := representatives.stem(path)) and not stem.startswith(".") and foreign(run, path)
    }
    return [
        {
            "what": f"counters of {stem}",
            "why": "they are of another engine than the run's (it was built again since, or they "
            "come from another run)",
            "fix": "measure them again with `layerline ncu`",
            "file": f"captures/{stem}.ncu.meta.json",
        }
        for stem in sorted(stems)
    ]


def counters_of_run(run: Run, skipped: list[dict[str, Any]] | None = None) -> pa.Table | None:
    """The `counters` table of all ncu captures of a run, None where there are none.

    A capture whose launches are not those of its plan goes to `skipped` (what, why, the fix);
    without that list it is an InputError. So do numbers that are unknown in a capture. One that
    cannot be used, or that has lost launches, is left out where such errors are collected
    (`rundir.problems`), else an InputError or CheckFailed. ToolMissing where a report cannot be
    read for want of ncu-report and has no CSV beside it; of one in pieces, it goes to `skipped`.
    """
    parts = []
    if skipped is not None:
        stems = {
            representatives.stem(p) or "" for p in run.file("captures").glob(f"*.{RANGE}.ncu*")
        }
        skipped += [{"what": f"counters of {s}", **_AS_ONE} for s in sorted(stems - {""})]
    for path in captures(run):
        what = f"counters of {representatives.stem(path)}"
        try:
            provenance.check_raw(path)
            describing(path.with_name(f"{representatives.stem(path)}.ncu.meta.json"))
            read = pieces_.read(path) if path.name.endswith(pieces_.FOLDER) else registry.read(path)
            if (loss := pieces_.missing(read, path)) is not None:
                raise loss
            if of_ranges(read.tables["launches"]):
                raise Unplanned(_AS_ONE["why"], file=path, fix=_AS_ONE["fix"])
            parts.append(_joined(run, path, read))
            if skipped is not None and page.AMBIGUOUS in read.facts:
                skipped.append(_untold(what, path, read))
        except (Unplanned, ToolMissing) as e:
            if skipped is None or (isinstance(e, ToolMissing) and not path.is_dir()):
                raise
            skipped.append({"what": what, "why": e.what, "fix": e.fix or ""})
        except LayerlineError as e:
            if not problems.note(e, what):
                raise
    return pa.concat_tables(parts) if parts else None


def _untold(what: str, path: Path, read: Artefact) -> dict[str, str]:
    why = (
        f"{read.facts[page.AMBIGUOUS]} numbers in {path.name} have a decimal sign or a unit that "
        "cannot be told, and are unknown"
    )
    fix = "print it again (ncu --import REPORT --csv --page raw); `layerline read` says more"
    return {"what": f"some {what}", "why": why, "fix": fix}


def _joined(run: Run, capture: Path, read: Artefact) -> pa.Table:
    counters = read.main
    own = CaptureName.parse(capture)
    if own is not None:
        variant = EVERY if EVERY in own.variant else ""
        plan = replace(own, variant=variant, suffix=".ncu.plan.json").path(run.file("captures"))
        try:
            counters = representatives.of_file(read, plan)
        except CheckFailed as e:
            raise Unplanned(e.what, file=capture, fix=e.fix) from None
    if own is not None and own.task == "engine":
        path = nodes_file(run, own.side, own.precision)
        graph = nodes.load(path) if path.exists() else None
        network = network_of(run, own.side)
        return launches.join(counters, graph, network, own.precision, f"{own.side}.engine")
    # An eager capture has module ranges and no engine layers: an empty graph resolves these.
    return launches.join(counters, NodeGraph(()), None, own.precision if own else None)
