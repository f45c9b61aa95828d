"""Activation checkpointing: each block's forward runs again in backward, as a phase of its own.

Non-reentrant (`torch.utils.checkpoint`), so that hooks, keywords and nested structures work. The
blocks are the elements of a model's outermost ``ModuleList``s. A model's own switch is not used:
its releases differ in whether a block's hooks run again.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from ..core.errors import InputError
from .training import Training


def blocks(model: torch.nn.Module) -> list[str]:
    """Paths of the elements of every ``ModuleList`` that is in no other one."""
    lists = [p for p, m in model.named_modules() if isinstance(m, torch.nn.ModuleList)]
    outermost = [p for p in lists if not any(p.startswith(f"{other}.") for other in lists)]
    return [f"{p}.{name}" for p in outermost for name, _ in model.get_submodule(p).named_children()]


class _Recompute(AbstractContextManager[None]):
    """The phase of recomputation, of the step that runs when it is entered."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._opened: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        phase = self._training.phase("recompute")
        phase.__enter__()
        self._opened.append(phase)

    def __exit__(self, *error: Any) -> None:
        self._opened.pop().__exit__(*error)


def recomputing(
    training: Training,
) -> Callable[[], tuple[AbstractContextManager[None], AbstractContextManager[None]]]:
    """The `context_fn` of `torch.utils.checkpoint.checkpoint`: marks recomputation."""
    return lambda: (contextlib.nullcontext(), _Recompute(training))


def checkpoint_blocks(training: Training, every: int = 1) -> list[str]:
    """Let the first of each `every` blocks of the model be recomputed in backward; gives their
    paths. InputError where the model has no blocks."""
    found = blocks(training.model)[::every]
    if not found:
        raise InputError(
            f"{type(training.model).__name__} has no list of blocks to checkpoint",
            fix="train it without checkpointing",
        )
    # A compiled graph takes no contexts: its recomputation is inside of it.
    marked = {} if training.compiled is not None else {"context_fn": recomputing(training)}
    for path in found:
        block = training.model.get_submodule(path)
        again = functools.partial(checkpoint, block.forward, use_reentrant=False, **marked)
        block.forward = _in_training(block, block.forward, again)
    return found


def _in_training(
    block: torch.nn.Module, forward: Callable[..., Any], again: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(forward)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        if block.training and torch.is_grad_enabled():
            return again(*args, **kwargs)
        return forward(*args, **kwargs)

    return chosen
