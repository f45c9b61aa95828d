"""What may watch a training run: the interface that profilers, recorders and counters implement.

The loop (`loop.step`) calls, for each plug-in, in this order::

    open(training)                      once, before the first step
    step(number):                       around each step, counted from 0
        phase("data"), phase("forward"), phase("loss"), phase("backward")
                                        around these parts, once for each micro-batch
            phase("recompute")          inside backward, around a checkpointed block's forward
        phase("optimizer")              around the update; gradients are there when it is entered,
                                        and gone when it is left, as is the graph
    close()                             once, also after an exception

Backward may run on a thread of its own, and then so does recompute. With several plug-ins the
first is the outermost. Without any, the loop opens no range at all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .training import Training

NOTHING: AbstractContextManager[None] = contextlib.nullcontext()


class Plugin:
    """Each method does nothing until a plug-in replaces it.

    `own_steps`: how many steps it needs for itself, while nothing else watches, because it costs
    time; None where it watches the whole training.
    """

    own_steps: int | None = None

    def open(self, training: Training) -> None:
        """Take what is needed of the run, register hooks, start recording."""

    def step(self, number: int) -> AbstractContextManager[None]:
        """Around one whole step."""
        return NOTHING

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Around one phase, a name of `core.tables.PHASES`."""
        return NOTHING

    def close(self) -> None:
        """Remove hooks, stop recording, leave the files."""

    def facts(self) -> dict[str, Any]:
        """What the capture's meta file is to say of it, once it is closed."""
        return {}


class Unobserved(Plugin):
    """Takes a plug-in's steps and does nothing: ranks of a job take the same number of steps."""

    def __init__(self, own_steps: int | None) -> None:
        self.own_steps = own_steps


@contextlib.contextmanager
def opened(plugins: Sequence[Plugin], training: Training) -> Iterator[None]:
    """Open all plug-ins for as long as the block runs; those that were opened are closed, the
    last first, whatever happens."""
    with contextlib.ExitStack() as stack:
        for plugin in plugins:
            plugin.open(training)
            stack.callback(plugin.close)
        yield


def around(
    plugins: Sequence[Plugin], of: Callable[[Plugin], AbstractContextManager[None]]
) -> AbstractContextManager[None]:
    """One context for what `of` gives of every plug-in."""
    if not plugins:
        return NOTHING
    if len(plugins) == 1:
        return of(plugins[0])
    return _all([of(plugin) for plugin in plugins])


@contextlib.contextmanager
def _all(contexts: Sequence[AbstractContextManager[None]]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
