"""What torch's exporter is helped with while it traces: decisions by value, and strided views.

torch's exporter has no values while it traces: ``if mask.any()`` ends it, and code that asks
whether it is traced goes another way than in eager PyTorch. `Decisions` writes down, in an eager
run, what each place of the code was given (`Tensor.item`, the truth of a tensor …); `replayed`
gives the same again while the exporter traces, and lets the code of transformers believe that
nobody does.
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
    """Strided views that are read are gathers in this context; those of contiguous tensors or of
    open sizes stay as they are.

    torch's exporter takes strides as those of a contiguous tensor and writes another result
    without a word (torch 2.13).
    """

    def gather(
        input: torch.Tensor,  # noqa: A002 (as torch names it)
        size: Any,
        stride: Any,
        storage_offset: int | None = None,
    ) -> Any:
        """The view as a gather; None where it stays as it is."""
        first = 0 if storage_offset is None else storage_offset - input.storage_offset()
        shapes = (*input.shape, *input.stride(), *size, *stride, first)
        if not all(isinstance(s, int) for s in shapes) or first < 0:
            return None
        if input.is_contiguous() and storage_offset is None:
            return None
        at = _indices((tuple(input.shape), input.stride()), (tuple(size), tuple(stride)), first)
        if at is None:
            return None
        return input.reshape(-1)[torch.tensor(at.ravel().tolist())].reshape(tuple(size))

    def instead(original: Any) -> Any:
        def as_strided(*args: Any, **named: Any) -> Any:
            found = None if _of_torch(sys._getframe(1)) else gather(*args, **named)
            return original(*args, **named) if found is None else found

        return as_strided

    with contextlib.ExitStack() as stack:
        for owner in (torch.Tensor, torch):
            new = instead(owner.as_strided)
            stack.enter_context(mock.patch.object(owner, "as_strided", new))
        yield


_Strided = tuple[tuple[int, ...], tuple[int, ...]]  # sizes and strides, in elements


def _indices(of: _Strided, read: _Strided, first: int) -> Any:
    """Which elements of a tensor, counted in its order, a strided view of it reads that begins at
    its element `first` in memory, [sizes of the view]; None where that is no element of it."""
    memory = np.full(_last(*of) + 1, -1, dtype=np.int64)
    memory[_offsets(*of)] = np.arange(np.prod(of[0])).reshape(of[0])
    if first + _last(*read) >= len(memory):
        return None
    found = memory[first + _offsets(*read)]
    return None if (found < 0).any() else found


def _last(size: tuple[int, ...], stride: tuple[int, ...]) -> int:
    return sum((n - 1) * s for n, s in zip(size, stride, strict=True))


def _offsets(size: tuple[int, ...], stride: tuple[int, ...]) -> Any:
    """The place in memory of each element."""
    places = np.zeros(size, dtype=np.int64)
    for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
        places += (np.arange(n) * s).reshape([-1 if a == axis else 1 for a in range(len(size))])
    return places
