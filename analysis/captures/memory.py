"""The memory of a run's training steps: which captures there are, and what was tried."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...core.capture_names import TRIED, CaptureName, named
from ...core.documents import Measured, Memory
from ...core.errors import InputError
from ...core.files import listing
from ...core.run import Run
from ...core.stats import UNMEASURED, Estimate
from ..checks import steadiness
from ..memory.explain import Explained, explain
from ..memory.remedies import Tried
from ..readers import registry
from ..readers.base import Artefact
from ..rundir import files
from ..rundir.problems import Problems

SUFFIX = ".memory.pickle"


@dataclass(frozen=True)
class Captured:
    """A snapshot of a run and its name."""

    name: CaptureName
    path: Path

    @property
    def meta(self) -> Path:
        """What lies beside it."""
        return self.path.with_name(f"{self.name.stem}.memory.json")


def captures(run: Run, precisions: Sequence[str] = ()) -> list[Captured]:
    """The snapshots of a run, by precision and rank. InputError without any."""
    held = named(run.file("captures"), ".memory.pickle")
    found = [Captured(name, path) for path, name in held.items() if name.task == "train"]
    chosen = [c for c in found if not precisions or c.name.precision in precisions]
    if not chosen:
        there = sorted({c.name.precision for c in found})
        raise InputError(
            f"has no memory of training steps{' in ' + ', '.join(precisions) if there else ''}",
            file=run.path,
            fix=f"there is {', '.join(there)}"
            if there
            else "layerline train WORKLOAD --profile memory",
        )
    return chosen


def beside(snapshot: Path) -> Path | None:
    """The JSON file that the plug-in leaves beside a snapshot of this name."""
    if not snapshot.name.endswith(SUFFIX):
        return None
    return snapshot.with_name(snapshot.name.removesuffix(SUFFIX) + ".memory.json")


def explained_file(snapshot: Path, artefact: Artefact, device: int | None) -> Explained:
    """A snapshot from anywhere, with what lies beside it where that can be used; else
    it says why it is not (`alone`)."""
    path = beside(snapshot)
    if path is None:
        return explain(artefact, snapshot, device=device)
    problems = Problems()
    meta = files.optional(path, Memory, problems)
    return _or_why(explain(artefact, snapshot, meta, device), path, problems)


def _or_why(done: Explained, path: Path, problems: Problems) -> Explained:
    """Says why nothing is known of what lies beside it, where that is so."""
    if done.meta is not None or done.alone is not None:
        return done
    why = f"there is no {path.name} beside it"
    for error, _ in problems.errors:
        if error.file == str(path):
            why = f"{path.name} beside it cannot be used: {error.what}"
    return dataclasses.replace(done, alone=why)


def explained(
    run: Run, captured: Captured, problems: Problems, device: int | None = None
) -> Explained:
    """A snapshot of a run. What was tried or lies beside it and cannot be read is a problem, and
    not shown."""
    meta = files.describing(captured.meta, Memory, problems)
    artefact = registry.read(captured.path)
    own = captured.name
    base = explain(artefact, captured.path, meta, device, own.rank)
    if meta is None:
        return _or_why(base, captured.meta, problems)
    tries: dict[str, Tried] = {}
    for folder in listing(run.file(TRIED)):
        other = Run(folder)
        there = Captured(own, own.path(other.file("captures")))
        if there.path.is_file():
            with problems.without(f"what {folder.name} gave when it was tried"):
                tries[folder.name] = _tried(run, base, other, there, device)
    if not tries:
        return base
    return explain(artefact, captured.path, meta, device, own.rank, tries)


def _tried(run: Run, base: Explained, other: Run, there: Captured, device: int | None) -> Tried:
    """InputError without the file beside its snapshot: it counts what is older than recording."""
    meta = files.needed(there.meta, Memory)
    done = explain(registry.read(there.path), there.path, meta, device, there.name.rank)
    if done.meta is None:
        why = done.alone or "no such file"
        raise InputError(why, file=there.meta, fix=f"--try {other.path.name} again")
    return Tried(
        peak_bytes=done.peak.allocated,
        reserved_bytes=most_reserved(done),
        step=_step(other, there.name),
        base_peak_bytes=base.peak.allocated,
        base_reserved_bytes=most_reserved(base),
        base_step=_step(run, there.name),
    )


def most_reserved(done: Explained) -> int | None:
    """The most that was reserved in the peak's step."""
    reserved, step = done.told.history.reserved, done.peak.step
    return None if reserved is None else int(reserved[step.begin : step.end + 1].max())


def _step(run: Run, name: CaptureName) -> Estimate:
    """Of the steps that nothing watched."""
    path = run.file("captures", f"{name.stem}.latency.json")
    measured = files.optional(path, Measured, None)
    if measured is None or (stat := steadiness.summary(measured.latency_ns)) is None:
        return UNMEASURED
    steady = steadiness.judge(measured.latency_ns)
    if steady is None or not steady.settled:
        return Estimate(stat.median, n=stat.n)
    return Estimate(stat.median, stat.low, stat.high, stat.n)
