"""Steps of the profile stage: what is valid is not measured again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..core.capture_names import TORCH_TASKS, TRIED, CaptureName
from ..core.cli.options import SECONDS, Finite
from ..core.cli.progress import log
from ..core.files import listing, machine_lock
from ..core.run import Run, Step
from ..engines import backend as backends
from .engine import measure

# Loads of an engine on a GPU: two of them differ by more than the interval of either. With three
# the interval over all loads would be twice as wide (Student's t over the root of their number).
PROCESSES = 5
COUNTERS = "ncu"
# Asked for by name only: it builds again, which can take as long as the first time.
REBUILD = "rebuild"


def repeat_options(each: str, seconds: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """--iterations, --target, --seconds and --processes: the `limits` of `plan` and `unprofiled`.
    `each`: what they are for; `seconds`: the default as text."""

    def options(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in (
            click.option(
                "--processes",
                type=click.IntRange(min=1, max=20),
                help="How often an engine is loaded for its latency: its interval is that of the "
                f"mean of all loads.  [default: {PROCESSES} on a GPU, else 1]",
            ),
            click.option(
                "--seconds",
                type=SECONDS,
                default=None,
                help=f"At most so long, for each {each}.  [default: {seconds}]",
            ),
            click.option(
                "--target",
                type=Finite(min=0, min_open=True, max=1),
                default=0.02,
                show_default=True,
                help="Stop when the median's 95 % interval is this narrow (half width over "
                "median).",
            ),
            click.option(
                "--iterations",
                type=click.IntRange(min=1),
                help=f"At most so many, for each {each}.",
            ),
        ):
            command = option(command)
        return command

    return options


def plan(limits: dict[str, Any], *, most: int, seconds: float) -> measure.Plan:
    """How long to measure; `limits` are the user's iterations, target and seconds (None: ours)."""
    return measure.Plan(
        most=limits["iterations"] or most,
        target=limits["target"],
        seconds=limits["seconds"] or seconds,
    )


def unprofiled(limits: dict[str, Any], backend: backends.Backend) -> measure.Plan:
    """The plan of a latency without a profiler; `limits` may name its processes."""
    processes = limits.get("processes") or (PROCESSES if backend.loads_differ else 1)
    return replace(plan(limits, most=500, seconds=15.0), processes=processes)


def latency(of: measure.Subject, wanted: measure.Plan) -> None:
    """Measure an engine's latency where it is not valid. Raises LayerlineError."""
    step = of_engine(of, "latency", wanted.as_json(), [".latency.json"])
    perform(step, lambda: measure.latency(of, wanted), lambda: backends.require(of.backend))


def outputs(of: measure.Subject) -> None:
    """Take an engine's outputs where they are not valid. Raises LayerlineError."""
    step = of_engine(of, "outputs", {}, [".outputs.npz"])
    perform(step, lambda: measure.outputs(of), lambda: backends.require(of.backend))


def name_of(of: measure.Subject, kind: str) -> str:
    """The name of an engine's step."""
    return f"profile/{of.precision}.{of.backend.name}.{kind}"


def of_engine(
    of: measure.Subject, kind: str, options: dict[str, Any], suffixes: Sequence[str]
) -> Step:
    """A step of an engine's worker, which leaves the captures of these suffixes."""
    given = {"worker": of.worker_key(), **options}
    return Step(of.run, name_of(of, kind), given, of.inputs(), [of.capture(s) for s in suffixes])


def exported(capture: Step, report: Path, sqlite: Path) -> Step:
    """The step that exports the report of a capture: of its own, so that one that was interrupted
    is not captured again, and from the same inputs, so that it is stale when they change."""
    return Step(capture.run, f"{capture.name}.export", {}, [report, *capture.inputs], [sqlite])


def perform(
    step: Step, work: Callable[[], dict[str, Any]], check: Callable[[], None] = lambda: None
) -> None:
    """Run a step that is not valid; `check` raises where it cannot be run here."""
    if step.valid():
        log(f"{step.name}: up to date")
        return
    check()
    with machine_lock(f"measuring {step.name}"):
        record(step, work)


def record(step: Step, work: Callable[[], dict[str, Any]]) -> None:
    """Run a step that measures nothing, or whose caller has the machine's lock."""
    with step.recording() as facts:
        facts.update(work())


def forget(run: Run, what: Sequence[str], precisions: Sequence[str], backend: str) -> None:
    """Remove the manifests of the chosen measurements, so that they are made again. Eager fp32, the
    reference of every engine, is one of `eager`. The captures stay until they are replaced; those
    of `layerline train` go."""
    for precision in precisions if "train" in what else ():
        if trained_by(run, precision) == TRAIN:
            drop_training(run, precision)
    for name in run.manifests():
        stage, _, step = name.partition("/")
        first, _, rest = step.partition(".")
        precision, _, kind = rest.partition(".")
        if first in TORCH_TASKS:
            mine = first in what and precision in (*precisions, *(["fp32"] * (first == "eager")))
            part = COUNTERS if COUNTERS in kind else first
        else:
            mine = first in precisions and precision == backend
            part = next((k for k in (COUNTERS, REBUILD) if k in kind), "engine")
        if stage == "profile" and mine and part in what:
            run.manifest_path(name).unlink(missing_ok=True)


TRAIN, PROFILE = "layerline train", "layerline profile --what train"


def trained_by(run: Run, precision: str) -> str | None:
    """The command whose training captures of one process the run has in a precision: both give them
    the same names. None where it has none."""
    for manifest in _of_training(run, precision).values():
        if manifest.get("outputs"):
            # Only `layerline train` has a request: the other trains the run's model.
            return TRAIN if "request" in (manifest.get("options") or {}) else PROFILE
    return None


def _of_training(run: Run, precision: str) -> dict[str, dict[str, Any]]:
    name = f"profile/train.{precision}"
    manifests = run.manifests()
    return {k: m for k, m in manifests.items() if k == name or k.startswith(f"{name}.")}


def drop_training(run: Run, precision: str) -> None:
    """Remove the training captures of a precision with what is recorded of them, so that nothing of
    them stands beside those of another training."""
    for name in _of_training(run, precision):
        run.manifest_path(name).unlink(missing_ok=True)
    remove_training(run, precision)


def remove_training(run: Run, precision: str, but: Collection[Path] = ()) -> None:
    """Remove the files of training captures of one process in a precision, `but` these; what was
    tried of that training; and tables that commands made of such captures: they may be of these."""
    for made in ("memory", "parameters"):
        run.file("tables", f"{made}.parquet").unlink(missing_ok=True)
    for path in sorted(run.file("captures").glob(f"train.{precision}.*")):
        name = CaptureName.parse(path)
        if name is not None and name.rank is None and path not in but and path.is_file():
            path.unlink()
    for folder in listing(run.file(TRIED)):
        drop_training(Run(folder), precision)


def skip(run: Run, name: str, what: str, why: str, fix: str) -> None:
    """Record that something was not measured: a step without outputs."""
    step = Step(run, name, {"skipped": why}, [], [])
    if not step.valid():
        with step.recording() as facts:
            facts["skipped"] = {"what": what, "why": why, "fix": fix}
