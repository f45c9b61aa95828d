"""What a training run says of itself while it goes on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from ..plugin import Plugin
from ..training import Training
from .checkpoints import Checkpoints
from .options import Options
from .step import ParallelTraining


@dataclass(frozen=True)
class Report:
    """After `step` steps: tokens of all ranks since the beginning; loss, gradient norm and
    learning rate of the last step; seconds of a step and tokens that a rank does in a second,
    since the last report; bytes that are allocated and reserved on this rank's
    GPU, None without one."""

    step: int
    tokens: int
    loss: float
    gradient_norm: float
    seconds: float
    learning_rate: float
    allocated: int | None
    reserved: int | None
    tokens_per_second: float

    def line(self) -> str:
        """For a log."""
        memory = ""
        if self.allocated is not None and self.reserved is not None:
            memory = (
                f"  allocated {self.allocated / 2**30:.2f} GiB"
                f"  reserved {self.reserved / 2**30:.2f} GiB"
            )
        return (
            f"step {self.step}  tokens {self.tokens}  loss {self.loss:.5f}"
            f"  gradient norm {self.gradient_norm:.4f}  {self.seconds:.4f} s/step"
            f"  learning rate {self.learning_rate:.3g}{memory}"
            f"  {self.tokens_per_second:.0f} tokens/s/rank"
        )


class Journal(Plugin):
    """Tells reports and saves checkpoints when `options` say so, counted from the beginning of the
    training, and at its end. Only looking at a loss waits for the device."""

    def __init__(self, options: Options, tell: Callable[[Report], None]) -> None:
        self._options, self._tell = options, tell
        self._training: ParallelTraining | None = None
        self._checkpoints: Checkpoints | None = None
        self._reports: list[Report] = []

    def resume(self, training: ParallelTraining) -> int:
        """Take the state of the newest complete checkpoint; gives the step, 0 without any."""
        self._training = training
        if self._options.checkpoints is not None:
            self._checkpoints = Checkpoints(self._options.checkpoints, training)
            self._checkpoints.resume()
        self._told = training.done
        return training.done

    def open(self, training: Training) -> None:
        """Resume, if that was not done."""
        assert isinstance(training, ParallelTraining)
        if self._training is None:
            self.resume(training)
        self._began = time.perf_counter()

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Look at the step when it is done."""
        yield
        training = self._training
        assert training is not None
        each, saved = self._options.report_every, self._options.save_every
        ends = training.done == training.until
        if each and (ends or training.done % each == 0):
            self._report(training)
        if self._checkpoints is not None and (ends or (saved and training.done % saved == 0)):
            before = time.perf_counter()
            self._checkpoints.save()
            self._began += time.perf_counter() - before

    def facts(self) -> dict[str, Any]:
        """All reports, for the capture's meta file."""
        return {"reports": [asdict(report) for report in self._reports]}

    def _report(self, training: ParallelTraining) -> None:
        assert training.last is not None
        loss, norm = (float(value) for value in training.last)  # waits for the device
        seconds = (time.perf_counter() - self._began) / (training.done - self._told)
        cuda = training.device.type == "cuda"
        report = Report(
            step=training.done,
            tokens=training.done * training.tokens,
            loss=loss,
            gradient_norm=norm,
            seconds=seconds,
            learning_rate=training.rate(training.done - 1),
            allocated=torch.cuda.memory_allocated(training.device) if cuda else None,
            reserved=torch.cuda.memory_reserved(training.device) if cuda else None,
            tokens_per_second=training.tokens / training.ranks / seconds,
        )
        self._reports.append(report)
        if training.rank == 0:
            self._tell(report)
        self._told, self._began = training.done, time.perf_counter()
