"""Steps of training under nsys: NVTX ranges of iterations, phases, modules and operators, and the
CUDA profiler API around the chosen steps.

``nsys profile --capture-range=cudaProfilerApi`` records nothing before and after. Which steps: the
active ones of the first cycle of the schedule.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ...core.errors import ToolMissing
from ...workloads.plugin import Plugin
from .. import nsys
from . import hooks
from .plugins import Context, Schedule

if TYPE_CHECKING:
    from ...workloads.training import Training


class NsysSteps(Plugin):
    """Captures the active steps of a schedule, with `mark` in the capture."""

    def __init__(self, schedule: Schedule, mark: str) -> None:
        self.schedule, self._mark = schedule, mark
        self.own_steps: int = schedule.wait + schedule.warmup + schedule.active
        self._ranges = hooks.Ranges(hooks.nvtx)
        self._first: int | None = None
        self._open = contextlib.ExitStack()

    def open(self, training: Training) -> None:
        """Hook the modules; ToolMissing without a GPU."""
        import torch

        if training.device.type != "cuda":
            raise ToolMissing("no CUDA device is usable from PyTorch", fix="nsys needs a GPU")
        self._wait = training.synchronize
        self._ranges.open(training)
        self._open.callback(self._ranges.close)
        self._open.enter_context(torch.autograd.profiler.emit_nvtx())

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """One step, ended by waiting for the device."""
        import torch

        self._first = number if self._first is None else self._first
        place = number - self._first - self.schedule.wait - self.schedule.warmup
        self._ranges.first = number - place
        cuda = torch.cuda.cudart()
        if place == 0:
            self._wait()
            cuda.cudaProfilerStart()
            torch.cuda.nvtx.mark(self._mark)
        with self._ranges.step(number):
            yield
            self._wait()
        if place == self.schedule.active - 1:
            cuda.cudaProfilerStop()

    def phase(self, name: str) -> AbstractContextManager[None]:
        """The range of a phase."""
        return self._ranges.phase(name)

    def close(self) -> None:
        """Remove the hooks."""
        self._open.close()

    def facts(self) -> dict[str, Any]:
        """For the meta file."""
        return {"modules": self._ranges.classes, "iterations": self.schedule.active}


def plugin(context: Context) -> NsysSteps:
    """The plug-in of `layerline train --profile nsys`."""
    return NsysSteps(context.schedule, nsys.mark(context.name))
