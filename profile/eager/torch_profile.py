"""torch.profiler as a plug-in of the training loop: the trace that the report is made from.

Leaves ``.trace.json.gz`` without stacks and, of one rank, without shapes, which cost more time than
they explain there (`operators` has them), and facts for the capture's meta file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import replacing
from ...workloads.plugin import Plugin
from .compiled_graphs import Recorder
from .hooks import Ranges
from .latency import Latency
from .plugins import Context, Schedule
from .setup import activities

if TYPE_CHECKING:
    from ...workloads.training import Training


class TorchProfile(Plugin):
    """Traces the steps of a schedule. Of several cycles the last one is at `path`, and each one in
    `folder` where one is named, as TensorBoard's profiler plug-in wants them."""

    def __init__(self, path: Path, schedule: Schedule, folder: Path | None = None) -> None:
        self.schedule, self.own_steps = schedule, schedule.steps
        self._path, self._folder = path, folder
        self._ranges, self._clock = Ranges(), Latency()
        self._graphs: Recorder | None = None
        self._first: int | None = None
        self._cycles = self._place = 0

    def open(self, training: Training) -> None:
        """Start the profiler, which does nothing before the schedule says so."""
        from torch.profiler import profile, schedule

        plan, self._ranks = self.schedule, training.ranks
        if getattr(training.compiled, "_orig_mod", None) is training.model:
            # Compiled again: what tells modules apart costs time in each kernel.
            self._training, self._compiled = training, training.compiled
            self._graphs = Recorder(training.model)
            training.compiled = self._graphs.compiled()
        self._ranges.open(training)
        self._clock.open(training)
        self._profiler = profile(
            activities=activities(training.device),
            schedule=schedule(
                wait=plan.wait, warmup=plan.warmup, active=plan.active, repeat=plan.repeat
            ),
            on_trace_ready=self._save,
            # gloo's traces have the sizes and the peers of communications nowhere else.
            record_shapes=training.ranks > 1,
        )
        self._profiler.start()

    def _save(self, profiler: Any) -> None:
        self._cycles += 1
        with replacing(self._path) as path:
            profiler.export_chrome_trace(str(path))
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                name = self._path.name.removesuffix(".trace.json.gz")
                copy = self._folder / f"{name}.{self._cycles}.pt.trace.json.gz"
                copy.write_bytes(path.read_bytes())

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """One step of the schedule."""
        self._first = number if self._first is None else self._first
        place = self.schedule.place(number - self._first)
        self._place = place
        self._ranges.first = number - place  # iterations count from 0 in each trace
        if place == 0:
            self._clock.clear()
        with self._ranges.step(number), self._clock.step(number):
            yield
        if self._graphs is not None and number == self._first:
            self._ranges.left_out(self._training.model, self._graphs.left_out())
        self._profiler.step()

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """The range of a phase, and CUDA events around it."""
        with self._clock.phase(name), self._ranges.phase(name):
            yield

    def close(self) -> None:
        """Stop the profiler; a cycle that has not ended leaves nothing, but of a rank of several:
        where another one died, that is all there is."""
        if not (self._ranks > 1 and self._place > 0):
            self._profiler.on_trace_ready = None
        self._profiler.stop()
        self._ranges.close()
        if self._graphs is not None:
            self._training.compiled = self._compiled

    def facts(self) -> dict[str, Any]:
        """For the meta file: of the last cycle."""
        return {
            "iterations": self.schedule.active,
            "cycles": self._cycles,
            "first_step": self._first,
            "traced_phases_ns": self._clock.phases_ns,
            "modules": self._ranges.classes,
            **({} if self._graphs is None else self._graphs.facts()),
        }


def plugin(context: Context) -> TorchProfile:
    """The plug-in of `layerline train --profile torch`."""
    return TorchProfile(context.path(".trace.json.gz"), context.schedule, context.tensorboard)
