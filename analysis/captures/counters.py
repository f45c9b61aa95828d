"""The hardware counters of a run's sides: its ncu captures, and what it says of missing ones."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from ...core import nodes
from ...core.capture_names import ENGINES, EVERY, RANGE, CaptureName
from ...core.documents import Build, Ncu, Refused
from ...core.documents.ncu import PERMISSION
from ...core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from ...core.nodes import NodeGraph
from ...core.run import Run
from ...engines.layers import load as load_layers
from ..costs.measured import MeasuredSide
from ..counters import launches, representatives
from ..counters import pieces as pieces_
from ..model.comparison import Side
from ..model.counters import Uncounted
from ..model.layer import Floor
from ..readers import registry
from ..readers.base import Artefact
from ..readers.ncu import page
from ..readers.ncu.tables import of_ranges
from ..roofline import bound
from ..roofline.bound_inputs import by_name
from ..rundir import provenance
from ..rundir.files import describing, optional, plan_of
from ..rundir.problems import Problems, keep
from . import floors as floors_
from .files import INDUCTOR, exported, network, nodes_file


def load(
    run: Run, sides: Sequence[MeasuredSide], counters: pa.Table | None, problems: Problems
) -> list[bound.Capture | Uncounted]:
    """What is counted of every side that runs kernels, or why nothing is."""
    captures = by_name(counters)
    counted: list[bound.Capture | Uncounted] = []
    for whole in sides:
        side = whole.side
        if side.phase not in ("inference", "step"):
            continue
        if side.stem in captures:
            stem, table = captures[side.stem]
            meta = optional(run.file("captures", f"{stem}.ncu.meta.json"), Ncu, problems)
            plan = plan_of(run.file("captures"), stem, problems)
            clocks = None if meta is None else meta.clock_control
            floors = _floors(run, whole, problems)
            counted.append(bound.Capture(side, table, floors, plan, clocks))
        elif "kernel" in pc.unique(whole.ops["kind"]).to_pylist():
            counted.append(_uncounted(run, side, problems))
    return counted


def _floors(run: Run, whole: MeasuredSide, problems: Problems) -> Mapping[str, Floor]:
    """An export has the nodes of inference: the backward of a training step has no floor."""
    side = whole.side
    if side.task == "engine" or side.phase != "inference":
        return whole.floors
    return floors_.of_eager(exported(run.file("export", "nodes.json"), problems), side.precision)


def _uncounted(run: Run, side: Side, problems: Problems) -> Uncounted:
    """Why a side has no counters, and how to get them."""
    # Also of a capture of every launch.
    refusals = sorted(run.file("captures").glob(f"{side.stem}.*ncu.refused.json"))
    if refusals:
        refusal = optional(refusals[0], Refused, problems) or Refused()
        why, fix = refusal.why or "ncu was refused", refusal.fix or ""
    elif any(run.file("captures").glob(f"{side.stem}.*ncu-rep")):
        why = "its ncu capture holds no counters that can be read here"
        fix = "make this machine read them, see under Skipped"
    else:
        why = "no hardware counters were captured"
        engine = side.task == "engine"
        of = "" if engine else " --of train" if side.phase == "step" else " --of eager"
        backend = f" --backend {side.backend}" if engine else ""
        fix = f"layerline ncu --run RUN{of} --precision {side.precision}{backend} --roofline"
    return Uncounted(side.key, side.label, why, fix, refused=PERMISSION in why)


_CAPTURES = (".ncu-rep", ".ncu.csv", pieces_.FOLDER)


class Unplanned(InputError):
    """A capture whose launches are not those of its plan, or are no kernels'."""


_AS_ONE = {
    "why": "holds ranges that were replayed as one, of no kernel and no layer",
    "fix": "`layerline metrics` shows them; counters of layers need --replay-mode kernel",
}


def captures(run: Run, problems: Problems | None = None) -> list[Path]:
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
    own = {s: path for s, path in path_of.items() if not foreign(run, path, problems)}
    return [
        path
        for s, path in sorted(own.items())
        if not s.endswith(f".{RANGE}")
        and not (s.endswith(f".{EVERY}") and s.removesuffix(f".{EVERY}") in own)
    ]


def foreign(run: Run, capture: Path, problems: Problems | None) -> bool:
    """Whether a capture is of another engine than the run's: it says which one it is of, and the
    engine was built again, or comes from another run."""
    own = CaptureName.parse(capture)
    if own is None or own.task != "engine" or own.suffix not in _CAPTURES:
        return False
    meta = optional(capture.with_name(f"{own.stem}.ncu.meta.json"), Ncu, problems) or Ncu()
    step = run.manifest(f"engines/{own.precision}.{own.backend}") or {}
    for name, built in (step.get("outputs") or {}).items():
        digest = meta.inputs.get(Path(name).name) if Path(name).suffix in ENGINES else None
        if built is not None and digest is not None:
            return bool(built.get("sha256") != digest)
    return False


def left_out(run: Run, problems: Problems) -> None:
    """List the captures of other engines, with the file that tells."""
    stems = {
        stem
        for path in run.file("captures").glob("*.ncu*")
        if (stem := representatives.stem(path))
        and not stem.startswith(".")
        and foreign(run, path, problems)
    }
    for stem in sorted(stems):
        problems.skip(
            f"counters of {stem}",
            "they are of another engine than the run's (it was built again since, or they come "
            "from another run)",
            "measure them again with `layerline ncu`",
            file=f"captures/{stem}.ncu.meta.json",
        )


def counters_of_run(run: Run, problems: Problems | None = None) -> pa.Table | None:
    """The `counters` table of all ncu captures of a run, None where there are none.

    Where nobody collects `problems`, the first is raised: InputError for a capture whose launches
    are not those of its plan, InputError or CheckFailed for one that cannot be used or has lost
    launches. ToolMissing in any case where a report cannot be read for want of ncu-report and has
    no CSV beside it; one in pieces is a problem.
    """
    parts = []
    if problems is not None:
        stems = {
            representatives.stem(p) or "" for p in run.file("captures").glob(f"*.{RANGE}.ncu*")
        }
        for stem in sorted(stems - {""}):
            problems.skip(f"counters of {stem}", **_AS_ONE)
    for path in captures(run, problems):
        stem = representatives.stem(path) or ""
        try:
            parts.append(_read(run, path, stem, problems))
        except (Unplanned, ToolMissing) as e:
            if problems is None or (isinstance(e, ToolMissing) and not path.is_dir()):
                raise
            problems.skip(f"counters of {stem}", e.what, e.fix)
        except LayerlineError as e:
            keep(e, problems, f"counters of {stem}")
    return pa.concat_tables(parts) if parts else None


def _read(run: Run, path: Path, stem: str, problems: Problems | None) -> pa.Table:
    provenance.check_raw(path)
    describing(path.with_name(f"{stem}.ncu.meta.json"), Ncu, problems)
    pieces = path.name.endswith(pieces_.FOLDER)
    read = pieces_.read(path, problems) if pieces else registry.read(path)
    if (loss := pieces_.missing(read, path, problems)) is not None:
        raise loss
    if of_ranges(read.tables["launches"]):
        raise Unplanned(_AS_ONE["why"], file=path, fix=_AS_ONE["fix"])
    counters = _joined(run, path, read, problems)
    if problems is not None and (unknown := read.facts.get(page.AMBIGUOUS)) is not None:
        problems.skip(
            f"some counters of {stem}",
            f"{unknown} numbers in {path.name} have a decimal sign or a unit that cannot be told, "
            "and are unknown",
            "print it again (ncu --import REPORT --csv --page raw); `layerline read` says more",
        )
    return counters


def _joined(run: Run, capture: Path, read: Artefact, problems: Problems | None) -> pa.Table:
    counters = read.main
    own = CaptureName.parse(capture)
    if own is not None:
        variant = EVERY if EVERY in own.variant else ""
        plan = replace(own, variant=variant, suffix=".ncu.plan.json").path(run.file("captures"))
        try:
            counters = representatives.of_file(read, plan)
        except CheckFailed as e:
            raise Unplanned(e.what, file=capture, fix=e.fix) from None
    if own is not None and own.backend == INDUCTOR:
        layers = load_layers(run.file("engines", f"{own.side}.layers.json"))["layers"]
        listed = {layer["name"]: layer for layer in layers}
        return launches.join_listed(counters, listed, own.precision, f"{own.side}.engine")
    if own is not None and own.task == "engine":
        build = optional(run.file("engines", f"{own.side}.build.json"), Build, problems)
        path = nodes_file(run, build, own.precision)
        graph = nodes.load(path) if path.exists() else None
        built = network(run, own.side, problems)
        return launches.join(counters, graph, built, own.precision, f"{own.side}.engine")
    # An eager capture has module ranges and no engine layers: an empty graph resolves these.
    return launches.join(counters, NodeGraph(()), None, own.precision if own else None)
