"""A step whose micro-batches go through the stages of a pipeline.

The schedules are torch's. Its interleaved schedule has a range around each action
(``PP:2F1``: stage 2, forward, micro-batch 1; ``PP:2B1``) and its GPipe one around each forward and
backward (``Forward 1``, ``Backward 1``). Its 1F1B has none, so it gets those of the interleaved.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.profiler import record_function

from ...core.errors import InputError
from ..plugin import NOTHING
from ..training import Batch, Phase
from .step import ParallelTraining

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe, "interleaved": ScheduleInterleaved1F1B}


def enough(schedule: str, micro: int, pipeline: int) -> None:
    """InputError where torch's schedule cannot be of `micro` micro-batches a step."""
    fix = "take another --global-batch or --micro-batch"
    if schedule == "1f1b" and micro < pipeline:
        raise InputError(f"{micro} micro-batches a step are fewer than {pipeline} stages", fix=fix)
    rounds = max(1, micro // pipeline)
    if schedule == "interleaved" and micro % rounds:
        raise InputError(
            f"{micro} micro-batches a step are no multiple of {rounds} rounds of {pipeline} ranks",
            fix=fix,
        )


def nothing(name: str) -> AbstractContextManager[None]:
    """The context of a phase that nobody watches."""
    return NOTHING


class Stage(PipelineStage):  # type: ignore[misc]
    """A stage that says which micro-batch it works on. `phase` is set for each step."""

    phase: Phase = staticmethod(nothing)
    named = False  # whether the schedule has no ranges of its own

    def _range(self, letter: str, micro: int) -> AbstractContextManager[Any]:
        return record_function(f"PP:{self.stage_index}{letter}{micro}") if self.named else NOTHING

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        with self._range("F", fwd_chunk_id), self.phase("forward"):
            return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        with self._range("B", bwd_chunk_id), self.phase("backward"):
            return super().backward_one_chunk(bwd_chunk_id, *args, **options)


@dataclass(kw_only=True)
class PipelineTraining(ParallelTraining):
    """`stages` are those of this rank; `schedule` is a name of SCHEDULES."""

    stages: Sequence[Stage]
    schedule: str

    def __post_init__(self) -> None:
        super().__post_init__()
        kind = SCHEDULES[self.schedule]
        several = kind is ScheduleInterleaved1F1B
        for stage in self.stages:
            stage.named = kind is Schedule1F1B
        self._phase: Phase = nothing
        self._runs = kind(
            list(self.stages) if several else self.stages[0],
            n_microbatches=self.accumulate,
            loss_fn=self._stage_loss,
        )

    def _stage_loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        with self._phase("loss"):
            return self.loss(output, {"input_ids": target})

    def forward(self, batch: Batch) -> Any:
        raise NotImplementedError("a stage of a pipeline gives no output of the model")

    def gradients(self, phase: Phase) -> torch.Tensor:
        """All micro-batches through the stages, as the schedule orders them."""
        with phase("data"):
            ids = torch.cat([next(self.batches)["input_ids"] for _ in range(self.accumulate)])
        self._phase = phase
        for stage in self.stages:
            stage.phase = phase
        first = any(stage.is_first for stage in self.stages)
        last = any(stage.is_last for stage in self.stages)
        losses: list[torch.Tensor] = []
        with self.around():
            self._runs.step(
                *([ids] if first else []),
                target=ids if last else None,
                losses=losses if last else None,
                return_outputs=False,
            )
        own = torch.stack(losses).mean().detach() if last else torch.zeros((), device=self.device)
        return self.mean(own)
