"""Engines of several runs measured in turn: first, second, second, first, first, second, …

What drifts while this lasts, a clock or a neighbour, is then the same for all, and their processes
can be compared in pairs. Each turn leaves a run directory of its own, with one process of the
latency and one of the profile of every engine; the runs themselves stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ..core.capture_names import CaptureName, named
from ..core.cli.progress import log
from ..core.errors import InputError
from ..core.files import machine_lock
from ..core.run import Run
from ..engines import backend as backends
from .engine import measure

# What each turn takes over: what an engine computes does not change from one process to the next.
_KEPT = ("accuracy", "outputs", "rebuild")
_LONGEST_PROFILE = 60


def in_turn(
    runs: Sequence[Run],
    rounds: int,
    plan: measure.Plan,
    folder: Path,
    judges: Callable[[str], bool] = lambda _side: True,
) -> list[list[Run]]:
    """Of each run the run directories of its turns, in the order of the rounds, made in `folder`:
    of the engines whose side `judges`. InputError where a run has none; ToolMissing where an engine
    does not run here."""
    found: list[list[Run]] = [[] for _ in runs]
    judged = [_engines(run, judges) for run in runs]
    for number in range(rounds):
        order = range(len(runs)) if number % 2 == 0 else reversed(range(len(runs)))
        log(f"round {number + 1} of {rounds}")
        for i in order:
            turn = _beside(runs[i], folder / f"{i}.{number}")
            _measure(turn, plan, judged[i])
            found[i].append(turn)
    return found


def _measure(turn: Run, plan: measure.Plan, engines: Sequence[CaptureName]) -> None:
    profiled = measure.Plan(most=_LONGEST_PROFILE, target=plan.target, seconds=plan.seconds)
    with machine_lock(f"measuring {turn.path.name} in turn"):
        for name in engines:
            backend = backends.load(name.backend or "")
            backends.require(backend)
            subject = measure.subject(turn, name.precision, backend)
            with measure.loads(subject, 2) as loads:
                measure.latency(subject, plan, loads)
                measure.profile(subject, profiled, loads)


def _engines(run: Run, judges: Callable[[str], bool]) -> list[CaptureName]:
    names = {
        f"engine/{n.side}/inference": n for n in named(run.file("engines"), ".build.json").values()
    }
    if built := [n for side, n in names.items() if judges(side)]:
        return built
    what = f"has no engine to judge (there is {', '.join(names) or 'none'})"
    raise InputError(what, file=run.path, fix="layerline engines builds it")


def _beside(run: Run, path: Path) -> Run:
    """A run directory with the engines of another, and captures of its own."""
    turn = Run(path)
    for name in ("captures", "manifests"):
        turn.file(name).mkdir(parents=True)
    for name in ("export", "engines", "manifests/version.json", "manifests/export",
                 "manifests/engines"):  # fmt: skip
        if run.file(name).exists():
            turn.file(name).symlink_to(run.file(name).resolve())
    for file, own in named(run.file("captures")).items():
        if own.kind in _KEPT and own.task == "engine":
            turn.file("captures", file.name).symlink_to(file.resolve())
    return turn
