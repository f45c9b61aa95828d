"""What torch's exporter is helped with while it traces: decisions by value, and strided views.

torch's exporter has no values while it traces: ``if mask.any()`` ends it, and code that asks whether
it is traced goes another way than in eager PyTorch. `Decisions` writes down, in an eager run, what
each place of the code was given (`Tensor.item`, the truth of a tensor …); `replayed` gives the same
again while the exporter traces, and lets the code of transformers believe that nobody does.
"""

from __future__ import annotations

import contextlib
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import torch

# A line of code and which of its decisions it is: file, line, number.
Place = tuple[str, int, int]
_ASKED = ("item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__")
_TORCH = str(Path(torch.__file__).parent)


@dataclass
class Decisions:
    """What each place of the code was given in an eager run; `used`: those given again."""

    values: dict[Place, Any] = field(default_factory=dict)
    used: list[Place] = field(default_factory=list)

    @classmethod
    def of(cls, model: torch.nn.Module, inputs: dict[str, Any]) -> Decisions:
        """Run the model. Raises what its code raises."""
        found = cls()

        def noted(place: Place, ask: Callable[[], Any]) -> Any:
            found.values[place] = ask()
            return found.values[place]

        with torch.no_grad(), _asked(noted):
            model(**inputs)
        return found

    @contextlib.contextmanager
    def replayed(self) -> Iterator[None]:
        """Give the values again to the code that runs in this context."""

        def given(place: Place, ask: Callable[[], Any]) -> Any:
            if place not in self.values:
                return ask()
            self.used.append(place)
            return self.values[place]

        self.used.clear()
        with contextlib.ExitStack() as stack:
            for name in ("is_compiling", "is_exporting"):
                true = _only_torch(getattr(torch.compiler, name))
                stack.enter_context(mock.patch.object(torch.compiler, name, true))
            library = sys.modules.get("transformers.utils.import_utils")
            if library is not None:
                stack.enter_context(mock.patch.object(library, "is_fake_tensor", _no))
            to = _cast_where_needed(torch.nn.Module.to)
            stack.enter_context(mock.patch.object(torch.nn.Module, "to", to))
            stack.enter_context(_asked(given))
            yield

    def places(self) -> str:
        """The lines whose values were given again, as text."""
        lines = [f"{Path(file).name}:{line}" for file, line, _ in self.used]
        return ", ".join(dict.fromkeys(lines))


@contextlib.contextmanager
def _asked(answer: Callable[[Place, Callable[[], Any]], Any]) -> Iterator[None]:
    """Let `answer` give what code asks of a tensor's value; it is given the place, and the way to
    ask. What torch's own code asks is not among it."""
    met: Counter[tuple[str, int]] = Counter()

    def instead(method: Any) -> Any:
        def asked(tensor: torch.Tensor, *args: Any) -> Any:
            frame = sys._getframe(1)
            if _of_torch(frame):
                return method(tensor, *args)
            line = (frame.f_code.co_filename, frame.f_lineno)
            met[line] += 1
            return answer((*line, met[line]), lambda: method(tensor, *args))

        return asked

    methods = {name: instead(getattr(torch.Tensor, name)) for name in _ASKED}
    with mock.patch.multiple(torch.Tensor, **methods):
        yield


def _only_torch(asked: Callable[[], bool]) -> Callable[[], bool]:
    """Tells torch's own code the truth, and all other code no."""

    def answer() -> bool:
        return _of_torch(sys._getframe(1)) and asked()

    return answer


def _cast_where_needed(to: Any) -> Any:
    """Leaves a module alone that is of the type asked for: what is traced cannot be replaced."""

    def cast(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        parameters = list(module.parameters())
        if not kwargs and parameters and all(args == (p.dtype,) for p in parameters):
            return module
        return to(module, *args, **kwargs)

    return cast


def _no(*_: Any) -> bool:
    return False


def _of_torch(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_TORCH)


@contextlib.contextmanager
def gathered() -> Iterator[None]:
    """Strided views that are read are gathers in this context; those of contiguous tensors, of
    open sizes or with an offset stay as they are.

    torch's exporter takes strides as those of a contiguous tensor and writes another result
    without a word (torch 2.13).
    """
    original = torch.Tensor.as_strided

    def as_strided(tensor: torch.Tensor, size: Any, stride: Any, *more: Any, **named: Any) -> Any:
        shapes = (*tensor.shape, *tensor.stride(), *size, *stride)
        fixed = all(isinstance(s, int) for s in shapes)
        if more or named or not fixed or tensor.is_contiguous():
            return original(tensor, size, stride, *more, **named)
        at = _indices(tuple(tensor.shape), tensor.stride(), tuple(size), tuple(stride))
        if at is None:
            return original(tensor, size, stride)
        return tensor.reshape(-1)[torch.tensor(at.ravel().tolist())].reshape(tuple(size))

    with mock.patch.object(torch.Tensor, "as_strided", as_strided):
        yield


def _indices(
    shape: tuple[int, ...], strides: tuple[int, ...], size: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    """Which elements of a tensor, counted in its order, ``as_strided(size, stride)`` of it reads,
    [size]; None where it reads what is no element of it. Sizes and strides in elements."""
    memory = np.full(_last(shape, strides) + 1, -1, dtype=np.int64)
    memory[_offsets(shape, strides)] = np.arange(np.prod(shape)).reshape(shape)
    if _last(size, stride) >= len(memory):
        return None
    found = memory[_offsets(size, stride)]
    return None if (found < 0).any() else found


def _last(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    return sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _offsets(size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """The place in memory of each element."""
    places = np.zeros(size, dtype=np.int64)
    for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * s).reshape([-1 if a == axis else 1 for a in range(len(size))])
    return places
