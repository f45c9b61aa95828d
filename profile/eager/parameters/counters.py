"""Counting which elements of parameters an optimizer's step changes: exactly, by their bits.

A counter keeps what parameters are before they are stepped and compares afterwards. Of every
parameter it leaves `FIGURES` numbers in float64 on the device, -1 where one is not known: elements
that changed, the squares of the change, of the gradient and of the parameter before summed up, rows
that changed, rows with a gradient. So -0.0 for 0.0 is a change, and a NaN that stays the same NaN
is none.

`Torch` does it on any device with operators of torch, `Cuda` with kernels of its own, a few
launches for all parameters together.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from typing import ClassVar, Protocol

import numpy as np
import torch

from . import kernels as cuda_kernels
from .index import Parameter, local
from .kernels import FIGURES
from .launch import Kernels

UNKNOWN = -1.0
# Elements that are compared at a time: on the CPU what fits into its cache, elsewhere what bounds
# the memory of that.
PIECE, PIECE_ON_CPU = 1 << 20, 1 << 16
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Counter(Protocol):
    """`figures` are those of the step, one row per parameter of the model."""

    def begin(self, slot: int) -> None:
        """Before a step."""

    def before(self, members: Sequence[Parameter], figures: torch.Tensor) -> None:
        """Keep these parameters."""

    def after(self, members: Sequence[Parameter], figures: torch.Tensor) -> None:
        """Compare these parameters with what was kept of them, and forget it."""

    def end(self, figures: torch.Tensor) -> None:
        """After a step."""


def defaults(members: Sequence[Parameter], device: torch.device) -> torch.Tensor:
    """The figures of a step that changes nothing, (parameters, `FIGURES`)."""
    figures = torch.full((len(members), FIGURES), UNKNOWN, dtype=torch.float64)
    figures[:, :2] = 0
    for at, member in enumerate(members):
        if member.about.rows is not None:
            figures[at, 4] = 0
    return figures.to(device)


class Torch:
    """`host`: what is kept lies in the host's memory, whatever the device."""

    def __init__(self, *, host: bool = False) -> None:
        self._host = host
        self._kept: dict[int, torch.Tensor] = {}

    def begin(self, slot: int) -> None:
        """Nothing to do."""

    def before(self, members: Sequence[Parameter], figures: torch.Tensor) -> None:
        """See `Counter`."""
        for member in members:
            # Nothing here is recorded by autograd: `_flat` and `of_gradient` detach.
            at, tensor, gradient = member.about.index, _flat(member.local), member.tensor.grad
            where = "cpu" if self._host else tensor.device
            self._kept[at] = tensor.to(where, copy=True)
            figures[at, 3] = _squares(tensor)
            if gradient is not None:
                figures[at, 2], rows = of_gradient(gradient, member.about.rows)
                if rows is not None:
                    figures[at, 5] = rows

    def after(self, members: Sequence[Parameter], figures: torch.Tensor) -> None:
        """See `Counter`."""
        for member in members:
            kept = self._kept.pop(member.about.index)
            now, row = _flat(member.local), _row(member)
            changed = figures[member.about.index]
            changed[4] = UNKNOWN if row is None else 0
            kept_pieces = _pieces(kept, row, now.device)
            for a, b in zip(_pieces(now, row), kept_pieces, strict=True):
                b = b.to(a.device)
                differ = _bits(a) != _bits(b)
                changed[0] += torch.count_nonzero(differ)
                change = _wide(a) - _wide(b)
                squares = torch.dot(change, change)
                # What is NaN, or infinite, and stays the same has not changed. Looking first is
                # cheap on the CPU, where nothing has to be waited for.
                if a.device.type != "cpu" or not squares.isfinite():
                    change = torch.where(differ, change, 0.0)
                    squares = torch.dot(change, change)
                changed[1] += squares
                if row is not None:
                    changed[4] += differ.view(-1, row).any(1).sum()

    def end(self, figures: torch.Tensor) -> None:
        """Nothing to do."""


class Cuda:
    """Kernels over many tensors. `kept` bytes of the device's memory hold what is compared."""

    # What the kernels read: dense tensors of these kinds on one device.
    KINDS: ClassVar[dict[torch.dtype, int]] = {
        torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3,
    }  # fmt: skip

    @classmethod
    def takes(cls, member: Parameter, device: torch.device) -> bool:
        """Whether the kernels can read a parameter."""
        tensor = member.local
        if member.about.rows is None:
            ordered = bool(torch.ops.aten.is_non_overlapping_and_dense(tensor))
        else:
            ordered = tensor.is_contiguous()
        return ordered and tensor.dtype in cls.KINDS and tensor.device == device

    def __init__(
        self,
        members: Sequence[Parameter],
        chunks: Sequence[Sequence[Parameter]],
        device: torch.device,
        slots: int,
        kernels: Kernels,
    ) -> None:
        self._device = device
        about = torch.full((len(members), cuda_kernels.ABOUT), -1, dtype=torch.int64)
        tiles: list[list[int]] = []
        rows = 0
        found: dict[int, tuple[int, int]] = {}  # by a chunk's first member: first tile, tiles
        # By that, too: rows of `live`, and the least slice that has them.
        self._places: dict[int, tuple[list[int], slice]] = {}
        self._kept_bytes = 0
        for chunk in chunks:
            first, at = len(tiles), 0
            for member in chunk:
                of, own = member.about, member.about.rows
                elements = member.local.numel()
                mine = -(-elements // cuda_kernels.TILE)
                about[of.index] = torch.tensor([
                    elements, self.KINDS[member.local.dtype], at, len(tiles), len(tiles) + mine,
                    -1 if own is None else rows, elements // own if own else 1, own or 0,
                ])  # fmt: skip
                tiles += [[of.index, i] for i in range(mine)]
                at += -(-member.local.nbytes // 16) * 16
                rows += own or 0
            found[chunk[0].about.index] = first, len(tiles) - first
            places = [member.about.index for member in chunk]
            within = slice(min(places), max(places) + 1)
            self._places[places[0]] = places, within
            self._kept_bytes = max(self._kept_bytes, at)
        self._about = about.to(device)
        self._tile_table = torch.tensor(tiles, dtype=torch.int32).to(device)
        self._live = torch.empty((len(members), cuda_kernels.LIVE), dtype=torch.int64).to(device)
        # A row for each slot: one is not written again before its copy to the device is done.
        shape, pinned = (slots, *self._live.shape), device.type == "cuda"
        self._live_host = torch.empty(shape, dtype=torch.int64, pin_memory=pinned)
        self._partial = torch.zeros((4, len(tiles)), dtype=torch.float64, device=device)
        self._flags = torch.zeros((2, rows), dtype=torch.uint8, device=device)
        self._slot = 0
        self._kept: torch.Tensor | None = None
        # What is elsewhere in each step.
        self._kept_at, self._figures_at = ctypes.c_void_p(), ctypes.c_void_p()
        fixed = [self._about, self._live]
        tables = [*fixed, self._tile_table, self._kept_at, self._partial, self._flags]
        launch, every = kernels.launch, len(tiles)
        self._keep = {
            chunk: launch("keep", count, [*tables, first, every, rows])
            for chunk, (first, count) in found.items()
        }
        self._compare = {
            chunk: launch("compare", count, [*tables, first, every])
            for chunk, (first, count) in found.items()
        }
        tables = [*fixed, self._partial, self._flags, self._figures_at]
        self._finish = launch("finish", len(members), [*tables, every, rows])
        self._odd: list[tuple[int, torch.Tensor, torch.Tensor | None]] = []

    def begin(self, slot: int) -> None:
        """Take the memory for what is kept."""
        self._odd, self._slot = [], slot
        self._kept = torch.empty(self._kept_bytes, dtype=torch.uint8, device=self._device)
        self._kept_at.value = self._kept.data_ptr()

    def before(self, members: Sequence[Parameter], figures: torch.Tensor) -> None:
        """See `Counter`."""
        self._look(members)
        self._keep[members[0].about.index]()

    def _look(self, members: Sequence[Parameter]) -> None:
        """Addresses of a chunk's parameters and gradients; odd gradients are summed with operators.

        Only the first chunk's are looked for while the device waits: with the others it is busy."""
        table: list[int] = []
        for member in members:
            gradient = member.tensor.grad
            if gradient is None:
                table += (0, 0, -1)
                continue
            tensor, gradient = local(member.tensor), local(gradient)
            kind = self.KINDS.get(gradient.dtype, -1)
            regular = gradient.layout is torch.strided and kind >= 0
            if regular and (gradient.is_contiguous() or gradient.stride() == tensor.stride()):
                table += (tensor.data_ptr(), gradient.data_ptr(), kind)
            else:
                table += (tensor.data_ptr(), 0, cuda_kernels.NOT_SUMMED)
                sums = of_gradient(gradient, member.about.rows)
                self._odd.append((member.about.index, *sums))
        places, within = self._places[members[0].about.index]
        host = self._live_host[self._slot]
        # By numpy, which takes the host half as long as a tensor of the list does.
        host.numpy()[places] = np.array(table).reshape(-1, cuda_kernels.LIVE)
        # Rows of other chunks may lie between these: theirs are copied again before they are used.
        self._live[within].copy_(host[within], non_blocking=True)

    def after(self, members: Sequence[Parameter], figures: torch.Tensor) -> None:
        """See `Counter`."""
        self._compare[members[0].about.index]()

    def end(self, figures: torch.Tensor) -> None:
        """The figures of all its parameters."""
        self._figures_at.value = figures.data_ptr()
        self._finish()
        self._kept = None
        for at, squares, rows in self._odd:
            figures[at, 2] = squares
            if rows is not None:
                figures[at, 5] = rows


def of_gradient(
    gradient: torch.Tensor, rows: int | None
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The squares of a gradient summed up, and the rows that have one where rows are counted."""
    gradient = local(gradient).detach()
    if gradient.layout is torch.sparse_coo:
        gradient = gradient.coalesce()
        values = gradient.values()
        touched = (values != 0).flatten(1).any(1).sum() if rows is not None else None
        return _squares(_flat(values)), touched
    flat = _flat(gradient)
    if rows is None:
        return _squares(flat), None
    return _squares(flat), (flat.view(rows, -1) != 0).any(1).sum()


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in one dimension, complex ones as two real ones; a copy only where the tensor
    is not contiguous."""
    tensor = tensor.detach()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1)


def _row(member: Parameter) -> int | None:
    rows = member.about.rows
    return None if rows is None else member.local.numel() // rows


def _pieces(
    flat: torch.Tensor, row: int | None = None, device: torch.device | None = None
) -> Iterator[torch.Tensor]:
    """Pieces of about as many elements as suit the device that they are compared on, of whole
    rows."""
    size = PIECE_ON_CPU if (device or flat.device).type == "cpu" else PIECE
    size = size if row is None else max(1, size // row) * row
    return iter(flat.split(size)) if flat.numel() else iter(())


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(_INTEGERS[tensor.element_size()])


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64)


def _squares(flat: torch.Tensor) -> torch.Tensor:
    total = torch.zeros((), dtype=torch.float64, device=flat.device)
    for piece in _pieces(flat):
        wide = _wide(piece)
        total += torch.dot(wide, wide)
    return total
