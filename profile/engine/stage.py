"""What the stage measures of one engine, in its order, each a step of its own.

Its processes start together, before anything of it is measured (`loads`): those of its latency and
of its profile, and the one under nsys, which waits for its turn until all latencies of the stage
are measured.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from ...core.cli.progress import log
from ...core.files import machine_lock
from ...core.run import Step
from ...engines import backend as backends
from .. import nsys, steps
from ..beside import Beside
from . import measure, trace


class Engine:
    """An engine with the processes that measure it."""

    def __init__(self, of: measure.Subject, limits: dict[str, Any], traced: int) -> None:
        self.of, self._traced = of, traced
        self._unprofiled = steps.unprofiled(limits, of.backend)
        self._profiled = steps.plan(limits, most=60, seconds=10.0)
        self._stack = contextlib.ExitStack()
        self._captures: nsys.Captures | None = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def latency(self) -> Step:
        """The step of its unprofiled latency."""
        return steps.of_engine(self.of, "latency", self._unprofiled.as_json(), [".latency.json"])

    def profile(self) -> Step:
        """The step of the backend's own profile."""
        left = [measure.PROFILE, ".profile.meta.json"]
        return steps.of_engine(self.of, "profile", self._profiled.as_job(), left)

    def trace(self) -> Step:
        """The step of its capture under nsys."""
        options = {"iterations": self._traced}
        return steps.of_engine(self.of, "trace", options, trace.suffixes(self.of))

    def export(self) -> Step:
        """The step that exports it."""
        of = self.of
        return steps.exported(self.trace(), of.capture(".nsys-rep"), of.capture(".sqlite"))

    def measure(self) -> None:
        """Latency and profile."""
        of, count = self.of, 0
        if not self.latency().valid():
            count += self._unprofiled.processes
        if not self.profile().valid():
            count += 1
        if count:
            backends.require(of.backend)
        doing = machine_lock(f"measuring {of.precision} {of.backend.name}")
        with doing, measure.loads(of, count) as loads:
            if self._to_trace():
                self._captures = self._stack.enter_context(nsys.Captures(of.backend.worker()))
                self._captures.worker.start(of.job("ready"))
                if count:
                    self._captures.worker.ready()
            steps.perform(self.latency(), lambda: measure.latency(of, self._unprofiled, loads))
            steps.perform(self.profile(), lambda: measure.profile(of, self._profiled, loads))

    def _to_trace(self) -> bool:
        return self.of.traceable and nsys.missing() is None and not self.trace().valid()

    def capture(self, beside: Beside) -> None:
        """Under nsys where it is installed; otherwise a fact is left. Its report is written and
        exported beside what comes next."""
        of = self.of
        if not of.traceable:
            return
        why = nsys.missing()
        if why is not None:
            what = f"kernels of {of.precision} {of.backend.name}"
            steps.skip(of.run, self.trace().name, what, why, nsys.INSTALL)
            return
        captures = self._captures
        if captures is None:
            log(f"{self.trace().name}: up to date")
            beside.do(self._export)
            return
        with machine_lock(f"measuring {self.trace().name}"):
            job, what = trace.job(of, self._traced), f"{of.precision} {of.backend.name}"
            answer = captures.call(job, what, measure.SPARE_SECONDS)
        beside.do(lambda: self._keep(captures, answer))

    def _keep(self, captures: nsys.Captures, answer: dict[str, Any]) -> None:
        (report,) = captures.reports(measure.SPARE_SECONDS)
        steps.record(self.trace(), partial(trace.keep, self.of, answer, report))
        self._export()

    def _export(self) -> None:
        step = self.export()
        if not step.valid():
            steps.record(step, partial(trace.export, self.of))
