"""What is trained and how: the parts of one step, which every workload shares.

Precisions: ``fp32`` (TF32 off), ``tf32``, and ``fp16`` and ``bf16`` with float32 weights under
autocast; gradients are scaled in fp16. Whoever makes the `Training` sets the TF32 switches
(`request.set_up`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

LOW = {"fp16": torch.float16, "bf16": torch.bfloat16}

IGNORED = -100  # a label that does not count, of torch.nn.functional.cross_entropy
MASKED_SHARE = 0.15  # of the tokens that a masked model is to find

Batch = Mapping[str, torch.Tensor]
# The context of a phase, by its name.
Phase = Callable[[str], AbstractContextManager[None]]
Loss = Callable[[Any, Batch], torch.Tensor]


def unwatched(_name: str) -> AbstractContextManager[None]:
    """The context of a phase that nothing watches."""
    return contextlib.nullcontext()


@dataclass
class Training:
    """A model, what it is trained on and how.

    `batches` gives micro-batches on the device: keyword arguments of the model, and what `loss`
    needs besides, whose names `forward` leaves out (`beside`). `loss` takes what the model returned
    and the batch, and gives a scalar in float32. `accumulate` micro-batches make a step. `clip`
    bounds the norm of all gradients. `compiled` is called in the model's place where there is one.
    `facts` go into the captures' meta files. `watchers` are plug-ins of the workload itself: they
    watch the whole training, and their time is not the step's.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer
    batches: Iterator[Batch]
    loss: Loss
    device: torch.device
    precision: str = "fp32"
    accumulate: int = 1
    clip: float | None = None
    rank: int = 0
    ranks: int = 1
    beside: frozenset[str] = frozenset()
    compiled: Callable[..., Any] | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    watchers: dict[str, Any] = field(default_factory=dict)
    scaler: torch.amp.GradScaler = field(init=False)
    # Of the step that runs: for what begins a phase inside another one (recomputation).
    phase: Phase = field(init=False, default_factory=lambda: unwatched)

    def __post_init__(self) -> None:
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")

    def autocast(self) -> AbstractContextManager[Any]:
        """Autocast in fp16 and bf16, nothing otherwise."""
        if self.precision in LOW:
            cast: AbstractContextManager[Any]
            cast = torch.autocast(self.device.type, dtype=LOW[self.precision])
            return cast
        return contextlib.nullcontext()

    def forward(self, batch: Batch) -> Any:
        """What the model returns for a micro-batch."""
        model = self.model if self.compiled is None else self.compiled
        with self.autocast():
            return model(**{k: v for k, v in batch.items() if k not in self.beside})

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def length(self, warmup: int, steps: int) -> tuple[int, int]:
        """How many steps warm up and how many are measured, of those that are asked for."""
        return warmup, steps

    def gradients(self, phase: Phase) -> torch.Tensor:
        """Forward, loss and backward of one step's micro-batches; the mean loss.

        The loss holds the last micro-batch's graph: to free its nodes takes the host as long as
        many launches, and while the optimizer's kernels run that costs nothing. `loop.step` does
        it then, as a loop does whose variables live until its end. A workload whose schedule mixes
        forward and backward (a pipeline) replaces this."""
        total: torch.Tensor | None = None
        for left in reversed(range(self.accumulate)):
            with phase("data"):
                batch = next(self.batches)
            with phase("forward"):
                output = self.forward(batch)
            with phase("loss"):
                loss = self.loss(output, batch)
                if self.accumulate > 1:
                    loss = loss / self.accumulate
                total = loss if total is None else total + loss
            with phase("backward"):
                self.scaler.scale(loss).backward()
                if left:  # the next forward would free it, or hold it beside its own
                    total = total.detach()
                    del output, loss
        assert total is not None
        return total

    def update(self) -> torch.Tensor | None:
        """The optimizer's step, and gradients set to None; the norm of all gradients where they
        are clipped."""
        norm = None
        if self.clip is not None:
            self.scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return norm
