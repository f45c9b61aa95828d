"""A training step of one rank among several: losses and norms are those of all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from ...core.errors import InputError
from ..training import Batch, Phase, Training
from .options import Batches, Options


@dataclass(kw_only=True)
class ParallelTraining(Training):
    """`called` is what a forward goes through: `model` itself or a wrapper of it. `tokens` are
    those of a step of all ranks. `pipeline` is the group of ranks that hold other blocks of the
    model. `around` is entered for all of a step's forwards and backwards. `about` says which
    model this is, for its checkpoints. Of its steps, of all runs together, `done` are done; it ends
    when these are `until`."""

    called: torch.nn.Module
    rate: Callable[[int], float]
    tokens: int
    about: dict[str, Any]
    pipeline: dist.ProcessGroup | None = None
    around: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    done: int = 0
    until: int | None = field(default=None, init=False)
    last: tuple[torch.Tensor, torch.Tensor] | None = field(default=None, init=False)
    _micro: int = field(default=0, init=False)

    def autocast(self) -> AbstractContextManager[Any]:
        """Nothing where FSDP casts parameters and inputs itself."""
        wrapped = isinstance(self.called, FSDPModule)
        return contextlib.nullcontext() if wrapped else super().autocast()

    def length(self, warmup: int, steps: int) -> tuple[int, int]:
        """What a checkpoint leaves of them. InputError where that is nothing."""
        if not steps:
            return warmup, steps
        self.until = warmup + steps
        left = self.until - self.done
        if left < 1:
            raise InputError(
                f"the newest checkpoint is of step {self.done}, and the training ends after step"
                f" {self.until}",
                fix="take more --steps, or another folder for checkpoints",
            )
        measured = max(1, left - warmup)
        return left - measured, measured

    def forward(self, batch: Batch) -> Any:
        """As of one rank; gradients are reduced with the last micro-batch only."""
        self._micro = (self._micro + 1) % self.accumulate
        last = self._micro == 0
        called = self.called
        if isinstance(called, FSDPModule) and self.accumulate > 1:
            called.set_requires_gradient_sync(last)
        apart = isinstance(called, DistributedDataParallel) and not last
        with self.autocast(), called.no_sync() if apart else contextlib.nullcontext():
            return called(**batch)

    def gradients(self, phase: Phase) -> torch.Tensor:
        """The loss is the mean of all ranks'."""
        with self.around():
            loss = super().gradients(phase).detach()
        return self.mean(loss)

    def mean(self, loss: torch.Tensor) -> torch.Tensor:
        """The mean of the losses of all ranks that have one; the others give 0."""
        self._loss = loss
        if self.ranks > 1:
            stages = 1 if self.pipeline is None else dist.get_world_size(self.pipeline)
            self._loss = loss * (stages / self.ranks)
            dist.all_reduce(self._loss)
        return self._loss

    def text_state(self) -> dict[str, Any] | None:
        """Where in its text it stands, for JSON."""
        return self.batches.sequences.state() if isinstance(self.batches, Batches) else None

    def restore_text(self, state: dict[str, Any] | None) -> None:
        """Go on where `state` was taken. InputError where that is another text."""
        if isinstance(self.batches, Batches) and state is not None:
            self.batches.sequences.restore(state)

    def update(self) -> torch.Tensor | None:
        """As of one rank; gives the norm of the gradients of the whole model."""
        gradients = [p.grad for p in self.model.parameters() if p.grad is not None]
        norm = gradient_norm(gradients, self.pipeline)
        if self.clip is not None:
            scale = torch.clamp(self.clip / (norm + 1e-6), max=1.0)
            torch._foreach_mul_([local(g) for g in gradients], scale)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.done)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
        self.last = self._loss, norm
        return norm


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor."""
    part: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part


def gradient_norm(
    gradients: Iterable[torch.Tensor], pipeline: dist.ProcessGroup | None
) -> torch.Tensor:
    """The norm of gradients of which each rank has a part: each element counts once.

    torch's own `clip_grad_norm_` refuses tensors of several meshes, which parts of a model are
    that tensor parallelism divides and that it does not.
    """
    parts: dict[tuple[str, ...], list[torch.Tensor]] = {}
    meshes: dict[str, DeviceMesh] = {}
    for gradient in gradients:
        divided: tuple[str, ...] = ()
        if isinstance(gradient, DTensor):
            names = zip(gradient.device_mesh.mesh_dim_names, gradient.placements, strict=True)
            divided = tuple(name for name, placement in names if not placement.is_replicate())
            meshes.update(dict.fromkeys(divided, gradient.device_mesh))
        parts.setdefault(divided, []).append(local(gradient))
    total: torch.Tensor | None = None
    for divided in sorted(parts):
        square = torch.nn.utils.get_total_norm(parts[divided]) ** 2
        for name in divided:
            dist.all_reduce(square, group=meshes[name].get_group(name))
        total = square if total is None else total + square
    assert total is not None
    if pipeline is not None:
        dist.all_reduce(total, group=pipeline)
    return total.sqrt()


def adamw(model: torch.nn.Module, options: Options) -> torch.optim.Optimizer:
    """AdamW; weights decay, norms and biases do not. One group of parameters for each mesh, as
    operations on lists of tensors take those of one only."""
    groups: dict[tuple[bool, Any], list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        groups.setdefault((parameter.dim() > 1, mesh), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": of, "weight_decay": options.weight_decay if decays else 0.0}
            for (decays, _), of in groups.items()
        ],
        lr=options.learning_rate,
        betas=(0.9, 0.95),
        fused=options.fused or None,
    )


def set_matmul(precision: str) -> None:
    """TF32 in tf32 only."""
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
