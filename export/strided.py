"""`Tensor.as_strided` of a tensor that is not contiguous, as the exporter can write it.

torch's exporter takes strides as those of a contiguous tensor and writes another result without a
word (torch 2.13). `gathered` computes the same elements by their indices, while it traces.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import torch


@contextlib.contextmanager
def gathered() -> Iterator[None]:
    """Strided views that are read are gathers in this context; those of contiguous tensors, of
    open sizes or with an offset stay as they are."""
    original = torch.Tensor.as_strided

    def as_strided(tensor: torch.Tensor, size: Any, stride: Any, *more: Any, **named: Any) -> Any:
        shapes = (*tensor.shape, *tensor.stride(), *size, *stride)
        fixed = all(isinstance(s, int) for s in shapes)
        if more or named or not fixed or tensor.is_contiguous():
            return original(tensor, size, stride, *more, **named)
        at = indices(tuple(tensor.shape), tensor.stride(), tuple(size), tuple(stride))
        if at is None:
            return original(tensor, size, stride)
        return tensor.reshape(-1)[torch.tensor(at.ravel().tolist())].reshape(tuple(size))

    with mock.patch.object(torch.Tensor, "as_strided", as_strided):
        yield


def indices(
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
