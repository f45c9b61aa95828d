"""One training step, and the loop that repeats it, inside whatever watches them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from .plugin import Plugin, around, opened
from .training import Training, unwatched


@dataclass(frozen=True)
class Step:
    """What one step gives; the tensors stay on the device, so that nothing waits for them."""

    number: int
    loss: torch.Tensor
    gradient_norm: torch.Tensor | None


def step(training: Training, number: int, plugins: Sequence[Plugin] = ()) -> Step:
    """One training step inside the contexts of all plug-ins."""

    def watched(name: str) -> AbstractContextManager[None]:
        return around(plugins, lambda plugin: plugin.phase(name))

    phase = training.phase = watched if plugins else unwatched
    with around(plugins, lambda plugin: plugin.step(number)):
        loss = training.gradients(phase)
        with phase("optimizer"):
            norm = training.update()
            loss = loss.detach()  # frees the graph, see `Training.gradients`
    return Step(number, loss, norm)


def train(
    training: Training, steps: int, plugins: Sequence[Plugin] = (), first: int = 0
) -> Generator[Step]:
    """Steps number `first` to `steps` - 1, with the plug-ins open."""
    with opened(plugins, training):
        for number in range(first, steps):
            yield step(training, number, plugins)
