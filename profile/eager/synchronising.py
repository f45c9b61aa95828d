"""From which lines of Python a step makes the host wait for a device.

PyTorch's profiler names functions by the line where they begin, and no line inside them. This
plug-in watches one step of its own, which is slower: every operator passes a dispatch mode, and of
those that hand a value to the host the stack of Python is kept. Without a device they are recorded
all the same: they would wait on one. What waits and is no operator (``torch.cuda.synchronize``) is
not seen here; the trace has it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...core.files import write_json
from ...core.own_ranges import MODULE
from ...core.torch_ranges import COPIES, WOULD_WAIT
from ...workloads.plugin import NOTHING, Plugin
from . import hooks

if TYPE_CHECKING:
    from ...workloads.training import Training

DEEPEST = 40  # frames of a stack, the innermost
Place = tuple[str, str, str | None, tuple[tuple[str, int, str, int], ...]]


class _Mode(TorchDispatchMode):  # type: ignore[misc]
    """Keeps the stack of every operator that hands a value to the host."""

    def __init__(self, plugin: SynchronisingLines) -> None:
        super().__init__()
        self._plugin = plugin

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = f"aten::{func.__name__.partition('.')[0]}"
        if name in WOULD_WAIT or (name in COPIES and _to_host(args, result)):
            self._plugin.found(name)
        return result


def _to_host(args: Any, result: Any) -> bool:
    """Whether a copy brings values from a device to the host."""
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    return (
        isinstance(result, torch.Tensor)
        and result.device.type == "cpu"
        and any(t.device.type != "cpu" for t in tensors)
    )


class SynchronisingLines(Plugin):
    """Watch the second of two steps and write what was found to `path`, in the form of
    `core.documents.Synchronising`: the first makes what later ones have, such as the optimizer's
    state."""

    own_steps = 2

    def __init__(self, path: Path) -> None:
        self._path, self._steps = path, 0
        self._model: torch.nn.Module | None = None
        self._phase = "other"
        self._modules: list[str] = []
        self._found: Counter[Place] = Counter()

    def open(self, training: Training) -> None:
        """Take the model."""
        self._model = training.model

    def step(self, number: int) -> AbstractContextManager[None]:
        """Around the step that is watched; around the others, nothing."""
        self._steps += 1
        return self._watch(number) if self._steps == self.own_steps else NOTHING

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Remember the phase."""
        before, self._phase = self._phase, name
        try:
            yield
        finally:
            self._phase = before

    def found(self, operator: str) -> None:
        """Keep where an operator was called from: file, first line, function and line of each
        frame, the innermost first."""
        frame = sys._getframe(2)
        stack: list[tuple[str, int, str, int]] = []
        while frame is not None and len(stack) < DEEPEST:
            code = frame.f_code
            stack.append(
                (_short(code.co_filename), code.co_firstlineno, code.co_name, frame.f_lineno)
            )
            frame = frame.f_back  # type: ignore[assignment]
        module = self._modules[-1] if self._modules else None
        self._found[operator, self._phase, module, tuple(stack)] += 1

    @contextlib.contextmanager
    def _watch(self, number: int) -> Iterator[None]:
        assert self._model is not None, "a plug-in is opened before its first step"
        with hooks.module_ranges(self._model, self._inside), _Mode(self):
            yield
        rows = [
            {
                "operator": operator,
                "phase": phase,
                "module": module,
                "count": count,
                "stack": [
                    {"file": file, "begins": begins, "function": function, "line": line}
                    for file, begins, function, line in stack
                ],
            }
            for (operator, phase, module, stack), count in self._found.items()
        ]
        write_json(self._path, {"schema_version": 1, "step": number, "rows": rows})

    @contextlib.contextmanager
    def _inside(self, name: str) -> Iterator[None]:
        self._modules.append(name.removeprefix(MODULE))
        try:
            yield
        finally:
            self._modules.pop()


def _short(file: str) -> str:
    """A file without the folder from which it was imported, as the profiler writes it."""
    inside = [p for p in sys.path if p and file.startswith(p.rstrip("/") + "/")]
    return file[len(max(inside, key=len).rstrip("/")) + 1 :] if inside else file


def plugin(context: Any) -> SynchronisingLines:
    """The plug-in of a capture: `context.path` gives the place of its file."""
    return SynchronisingLines(context.path(".waits.json"))
