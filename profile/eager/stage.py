"""What the stage measures of the eager model and its training: which parts, in which order.

Two processes serve all of it, one of them under nsys, so that Python, torch and the model start
once; both start beside each other, before anything is measured. All latencies come first, then the
traces of torch's profiler, then the captures under nsys. Every part of every precision stays a step
of its own: what is valid is not measured again, and what was measured before an error is kept.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ...core.capture_names import TORCH_TASKS, Task
from ...core.cli.progress import log
from ...core.errors import InputError, LayerlineError, ToolMissing
from ...core.files import machine_lock, read_json
from ...core.run import Run, Step
from ...engines import backend as backends
from ...engines.launch import Serving
from ...export import own
from ...export.own import LOSS
from .. import nsys, steps
from ..beside import Beside
from . import nsys as nsys_
from . import process
from .process import PARTS, Part

REFERENCE = "eager.fp32.outputs"
Answers = list[tuple["Side", dict[str, Any]]]


@dataclass(frozen=True)
class Side:
    """The eager model or its training, in one precision."""

    run: Run
    task: Task
    precision: str
    options: dict[str, Any]

    @property
    def name(self) -> str:
        """As in the names of steps and files."""
        return f"{self.task}.{self.precision}"

    def _inputs(self) -> list[Path]:
        return [self.run.file("export", "model.json"), backends.inputs_path(self.run)]

    def step(self, part: Part) -> Step:
        """The step of a part."""
        name = f"profile/{self.name}" + (".latency" if part == "latency" else "")
        left = process.files(self.run, self.task, self.precision, part)
        return Step(self.run, name, self.options, self._inputs(), list(left.values()))

    def _left(self, suffix: str) -> Path:
        return nsys_.output(self.run, self.precision, self.task, suffix)

    def capture(self) -> Step:
        """The step of its capture under nsys."""
        left = [self._left(nsys_.REPORT), self._left(nsys_.META)]
        return Step(self.run, f"profile/{self.name}.nsys", {}, self._inputs(), left)

    def export(self) -> Step:
        """The step that exports it."""
        return steps.exported(self.capture(), self._left(nsys_.REPORT), self._left(nsys_.SQLITE))

    def skip_nsys(self, why: str, fix: str) -> None:
        """Leave a fact instead of a capture."""
        what = f"{self.task} {self.precision} under nsys"
        steps.skip(self.run, self.capture().name, what, why, fix)


class Eager:
    """All sides of a stage, with the processes that serve them."""

    def __init__(self, run: Run, sides: Sequence[Side]) -> None:
        self.run, self.sides = run, sides
        self._stack = contextlib.ExitStack()
        self.worker = self._stack.enter_context(Serving(process.WORKER))
        self._captures: nsys.Captures | None = None
        self._began = time.perf_counter()

    def __enter__(self) -> Eager:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def start(self, also: Sequence[Step] = ()) -> None:
        """Start the processes that will be needed, for the sides and other steps of the worker,
        and wait for none of them."""
        if not process.installed() or not self.run.file("export", "model.json").is_file():
            return
        document = read_json(self.run.file("export", "model.json"))
        location = str(document.get("location"))
        if document.get("own") is not None and own.present(location):
            log(f"{location}: this is your code, and it is executed")
        ready = process.ready(self.run)
        parts = [side.step(part) for side in self.sides for part in PARTS]
        if not all(step.valid() for step in (*also, *parts)):
            self._lock()
            self.worker.start(ready)
        stale = self._uncaptured()
        if stale:
            self._lock()
            self._captures = self._stack.enter_context(nsys.Captures(nsys_.WORKER, len(stale)))
            self._captures.worker.start(ready)

    def _lock(self) -> None:
        """Starting takes cores too: nobody may measure beside it."""
        self._stack.enter_context(machine_lock("measuring the eager model"))

    def _ready(self) -> None:
        self.worker.ready()
        if self._captures is not None:
            with contextlib.suppress(LayerlineError):  # `capture` tries each alone
                self._captures.worker.ready()
        log(f"eager processes ready after {time.perf_counter() - self._began:.1f} s")

    def reference(self) -> Path | None:
        """The outputs of eager fp32, made where they are not valid; None where they cannot be made
        and none are there."""
        path, step = process.reference(self.run), reference_step(self.run)
        if step.inputs[0].exists():
            try:
                steps.perform(step, partial(process.outputs, self.worker, self.run))
            except ToolMissing as e:
                log(f"{step.name}: {e.line()}")
        return path if path.exists() else None

    def measure(self) -> None:
        """Latencies, then traces. The worker has ended when this does."""
        if not all(side.step(part).valid() for side in self.sides for part in PARTS):
            self._ready()
        for part in PARTS:
            for side in self.sides:
                work = partial(
                    process.measure,
                    *(self.worker, self.run, side.task, side.precision, part, side.options),
                )
                steps.perform(side.step(part), work)
        self.worker.end()

    def _uncaptured(self) -> list[Side]:
        return [
            side
            for side in self.sides
            if nsys_.why_not(side.precision, {}) is None and not side.capture().valid()
        ]

    def capture(self, beside: Beside) -> None:
        """Capture under nsys where there is a GPU and nsys; otherwise a fact is left. Reports are
        written and exported beside what comes next. `finish` does what did not succeed."""
        stale = self._uncaptured()
        for side in self.sides:
            why = nsys_.why_not(side.precision, {})
            if why is not None:
                side.skip_nsys(*why)
            elif side not in stale:
                log(f"{side.capture().name}: up to date")
                beside.do(partial(_export, side))
        if stale:
            captures, self._captures = self._captures, None
            if captures is None or captures.count != len(stale):
                captures = self._stack.enter_context(nsys.Captures(nsys_.WORKER, len(stale)))
            try:
                answers = self._taken(captures, stale)
            except (InputError, ToolMissing) as e:
                log(f"{len(stale)} captures under nsys: {e.line()}")
            else:
                beside.do(lambda: _keep(captures, answers))

    def finish(self) -> None:
        """Capture alone what is not captured yet: a second source, not asked for, so what cannot be
        is a fact, and the rest goes on."""
        for side in self._uncaptured():
            try:
                with nsys.Captures(nsys_.WORKER) as captures:
                    ((_, answer),) = self._taken(captures, [side])
                    (report,) = captures.reports(nsys_.SECONDS)
                    of = side.run, side.precision, side.task
                    steps.record(side.capture(), partial(nsys_.keep, *of, answer, report))
                steps.record(side.export(), partial(nsys_.export, *of))
            except (InputError, ToolMissing) as e:
                log(f"{side.capture().name}: {e.line()}")
                side.skip_nsys(e.what, e.fix or "see nsys status")

    def _taken(self, captures: nsys.Captures, sides: Sequence[Side]) -> Answers:
        with machine_lock("measuring under nsys"):
            return [(s, nsys_.capture(captures, self.run, s.precision, s.task, {})) for s in sides]


def _keep(captures: nsys.Captures, answers: Answers) -> None:
    """Write and export what was captured; what is missing is captured alone later."""
    try:
        reports = captures.reports(nsys_.SECONDS)
    except ToolMissing as e:
        log(f"{len(answers)} captures under nsys: {e.line()}")
        return
    for (side, answer), report in zip(answers, reports, strict=True):
        of = side.run, side.precision, side.task
        steps.record(side.capture(), partial(nsys_.keep, *of, answer, report))
    for side, _ in answers:
        _export(side)


def _export(side: Side) -> None:
    """Export where that is not valid; a capture that cannot be exported is to be made again."""
    step = side.export()
    if step.valid():
        return
    try:
        steps.record(step, partial(nsys_.export, side.run, side.precision, side.task))
    except InputError as e:
        log(f"{step.name}: {e.line()}")
        side.run.manifest_path(side.capture().name).unlink(missing_ok=True)


def _kept(run: Run, precision: str) -> bool:
    """Whether there is a training of another command, which is not replaced unasked."""
    if steps.trained_by(run, precision) != steps.TRAIN:
        return False
    log(f"train {precision}: kept as {steps.TRAIN} left it; --force replaces it")
    return True


def _untrained(run: Run) -> tuple[str, str] | None:
    """Why the run's model is not trained, and what to do; None where it is."""
    path = run.file("export", "model.json")
    document = read_json(path) if path.is_file() else {}
    code = document.get("own")
    if code is not None and not code.get("loss"):
        return "its function gives no loss", LOSS
    if document.get("past") is not None:
        return "a decode step is inference", "export without --phase decode"
    return None


def reference_step(run: Run) -> Step:
    """The step of eager fp32's outputs."""
    inputs = [run.file("export", "model.json"), backends.inputs_path(run)]
    return Step(run, f"profile/{REFERENCE}", {}, inputs, [process.reference(run)])


def sides(
    run: Run, what: Sequence[str], wanted: Sequence[str], limits: dict[str, Any]
) -> list[Side]:
    """The sides in the precisions that this machine runs; fp32 stands in for the others, of which
    a fact is left."""
    options: dict[str, Any] = {"target": limits["target"]}
    if limits["seconds"]:
        options["seconds"] = limits["seconds"]
    if limits["iterations"]:
        most = limits["iterations"]
        options["iterations"] = {"min": min(6, most), "max": most}
    found = []
    untrained = _untrained(run)
    for task in TORCH_TASKS:
        if task == "train" and task in what and untrained is not None:
            steps.skip(run, "profile/train", "training", *untrained)
            log(f"training is not measured: {untrained[0]}; {untrained[1]}")
            continue
        able: dict[str, None] = {}
        for precision in wanted if task in what else ():
            why = process.why_not(precision, options)
            if why is not None:
                label = f"{process.LABELS[task]} {precision}"
                steps.skip(run, f"profile/{task}.{precision}", label, why, "use a GPU")
            able["fp32" if why else precision] = None
        if task == "train":
            able = {p: None for p in able if not _kept(run, p)}
        if task == "eager" and task in what:
            able["fp32"] = None  # what every engine is compared with
        found += [Side(run, task, precision, options) for precision in able]
    return found
