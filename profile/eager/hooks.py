"""Ranges around every module's forward, for as long as a capture lasts.

``layerline/module/PATH`` is opened by a forward pre-hook and closed by a forward hook with
``always_call``, so that an exception in forward closes it too. The hooks return nothing: a
forward pre-hook that returns a value replaces the module's input
(`torch.nn.Module.register_forward_pre_hook`). They are registered with ``with_kwargs``, so modules
called with keywords only, and any kind of output, work alike.

A module that is registered under several paths has one range, its first path in
`named_modules` order; `aliases` of the capture's meta file has the others. One that is called
several times in a forward opens one range per call, as it does when checkpointing runs its forward
again inside backward.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Container, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ...core.own_ranges import ITERATION, MODULE, PHASE
from ...workloads.plugin import NOTHING, Plugin

if TYPE_CHECKING:
    import torch

    from ...workloads.training import Training

RangeOf = Callable[[str], AbstractContextManager[Any]]


def record_function(name: str) -> AbstractContextManager[Any]:
    """A range in torch.profiler's trace (category ``user_annotation``)."""
    import torch

    range_: AbstractContextManager[Any] = torch.profiler.record_function(name)
    return range_


@contextlib.contextmanager
def nvtx(name: str) -> Iterator[None]:
    """The same range in NVTX, for captures under nsys and ncu."""
    import torch

    torch.cuda.nvtx.range_push(name)  # the returned depth must not leave a hook
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


def phase(name: str, range_of: RangeOf = record_function) -> AbstractContextManager[Any]:
    """The range of one phase of a step, a name of `core.tables.PHASES`."""
    return range_of(PHASE + name)


def iteration(number: int, range_of: RangeOf = record_function) -> AbstractContextManager[Any]:
    """The range of one step or one inference, counted from 0."""
    return range_of(f"{ITERATION}{number}")


class _Ranges:
    """The hooks of one module: a stack of open ranges for each thread."""

    def __init__(self, name: str, range_of: RangeOf) -> None:
        self._name, self._range_of = name, range_of
        self._local = threading.local()

    def _stack(self) -> list[AbstractContextManager[Any]]:
        stack: list[AbstractContextManager[Any]] | None = getattr(self._local, "stack", None)
        if stack is None:
            stack = self._local.stack = []
        return stack

    def before(self, _module: Any, _args: Any, _kwargs: Any) -> None:
        opened = self._range_of(self._name)
        opened.__enter__()
        self._stack().append(opened)

    def after(self, _module: Any, _args: Any, _kwargs: Any, _output: Any) -> None:
        stack = self._stack()
        if stack:  # empty where an earlier pre-hook of the user's raised before ours ran
            stack.pop().__exit__(None, None, None)


@contextlib.contextmanager
def module_ranges(
    model: torch.nn.Module,
    range_of: RangeOf = record_function,
    paths: Container[str] | None = None,
) -> Iterator[dict[str, str]]:
    """Open a range around each forward of each module of `model`, or of those at `paths`, while the
    block runs.

    Gives path -> class name of the modules that have a range. No value changes, and no hook is
    left behind, whatever happens inside the block. Modules that are scripted refuse hooks that
    take keywords (RuntimeError of torch); they are left out and appear as part of their parent.
    """
    import torch

    handles: list[Any] = []
    classes: dict[str, str] = {}
    try:
        for path, module in model.named_modules():
            if paths is not None and path not in paths:
                continue
            ranges = _Ranges(MODULE + path, range_of)
            before, after = ranges.before, ranges.after
            if paths is not None:
                before, after = torch.compiler.disable(before), torch.compiler.disable(after)
            try:
                # The pre-hook runs last of all pre-hooks and the hook first of all hooks, so the
                # range holds the forward and not what other hooks of the module do.
                handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                handles.append(
                    module.register_forward_hook(
                        after, prepend=True, with_kwargs=True, always_call=True
                    )
                )
            except RuntimeError:
                continue
            classes[path] = type(module).__name__
        yield classes
    finally:
        for handle in handles:
            handle.remove()


class Ranges(Plugin):
    """The ranges of every iteration, phase and module of a training run.

    `modules`: what opens those of modules, `range_of` where they are not of another kind. Of a
    compiled model those alone that are `left_out` of its graphs. `classes`: of each module with a
    range. `first`: the step that becomes iteration 0; None without ranges of iterations.
    """

    def __init__(
        self,
        range_of: RangeOf = record_function,
        modules: RangeOf | None = None,
        first: int | None = 0,
    ) -> None:
        self.range_of, self.first = range_of, first
        self.classes: dict[str, str] = {}
        self._modules = modules or range_of
        self._open = contextlib.ExitStack()

    def open(self, training: Training) -> None:
        """Hook every module."""
        if training.compiled is None:
            hooked = module_ranges(training.model, self._modules)
            self.classes = self._open.enter_context(hooked)

    def left_out(self, model: torch.nn.Module, paths: Container[str]) -> None:
        """Hook these modules, which Python runs beside compiled graphs. Called after these are
        compiled: torch.compile would trace the hooks."""
        self.classes |= self._open.enter_context(module_ranges(model, self._modules, paths))

    def step(self, number: int) -> AbstractContextManager[Any]:
        """The range of an iteration."""
        return NOTHING if self.first is None else iteration(number - self.first, self.range_of)

    def phase(self, name: str) -> AbstractContextManager[Any]:
        """The range of a phase."""
        return phase(name, self.range_of)

    def close(self) -> None:
        """Remove the hooks."""
        self._open.close()
