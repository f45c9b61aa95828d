"""Which parameters change at each optimizer step: in how many elements, and by how much.

An exact answer needs what the parameters were before, and a copy of all of them would need as much
memory again. So the optimizer is given its parameters in chunks: keep a chunk, step it, compare it,
the next. A chunk's copy is at most `MEMORY` bytes, and it is there during the step alone, when
activations are not. This changes nothing for an optimizer that computes a parameter's update from
its own gradient and state (`APART`). Any other steps as it always does, and all parameters are kept
in the host's memory meanwhile, which is slow and as exact.

The optimizer loops over its `param_groups`, once in a step; for the step these are a list that
gives the groups chunk by chunk, with the keeping and comparing between them.

Figures stay on the device and are fetched once in `BLOCK` steps, of the block before, so that
nothing waits for them. Three files are left: the table `parameters`, the index of parameters, and
the log of changes (`log`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow.parquet as pq
import torch

from ....core import documents, tables
from ....core.capture_names import PARAMETERS, CaptureName
from ....core.errors import InputError
from ....core.files import replacing, write_json
from ....workloads.plugin import NOTHING, Plugin
from ....workloads.training import Training
from . import log
from .counters import Counter, Cuda, Torch, defaults
from .index import Parameter, parameters
from .kernels import FIGURES, TILE
from .launch import Kernels
from .table import Step, rows

if TYPE_CHECKING:
    from ..plugins import Context

MEMORY = 256_000_000
# Of these, what comparing with operators of torch needs for its pieces.
_FOR_PIECES = 40_000_000
BLOCK = 32
HELD = 512  # steps that are written at a time

# Optimizers that loop over `param_groups` once in a step and step each parameter by its own
# gradient and state. Subclasses may do otherwise.
APART = frozenset(
    getattr(torch.optim, name)
    for name in (
        "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "Muon", "NAdam",
        "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam",
    )
    if hasattr(torch.optim, name)
)  # fmt: skip


class _OneByOne(list[dict[str, Any]]):
    """An optimizer's groups; the first loop over them gets `chunks` instead."""

    def __init__(self, groups: list[dict[str, Any]], chunks: Iterator[dict[str, Any]]) -> None:
        super().__init__(groups)
        self._chunks: Iterator[dict[str, Any]] | None = chunks

    def __iter__(self) -> Iterator[dict[str, Any]]:
        chunks, self._chunks = self._chunks, None
        return super().__iter__() if chunks is None else chunks


@dataclass(frozen=True)
class _Chunk:
    """Members of one group that are stepped together, and what counts them."""

    group: int
    members: list[Parameter]
    counter: Counter


@dataclass
class _Plan:
    """How a step goes. `sizes`: parameters of each group when it was made."""

    chunks: list[_Chunk]
    counters: list[Counter]
    apart: bool
    sizes: list[int]
    how: dict[str, Any] = field(default_factory=dict)


class ParameterChanges(Plugin):
    """See the module. `folder` takes the files; `memory` bounds the bytes on the device."""

    def __init__(self, folder: Path, *, memory: int = MEMORY, block: int = BLOCK) -> None:
        self._folder, self._memory, self._block = folder, memory, block
        self._files = contextlib.ExitStack()
        self._number = 0

    def open(self, training: Training) -> None:
        """Number the parameters, plan the chunks, open the files."""
        self._training = training
        optimizer = training.optimizer
        self._members = parameters(training.model, optimizer)
        self._by_id = {id(m.tensor): m for m in self._members}
        # "cuda" alone is the current GPU, and tensors say which that is.
        self._device = torch.empty(0, device=training.device).device
        slots = 2 * self._block
        # One row more than parameters: the scale of the gradients.
        shape = (slots, len(self._members) + 1, FIGURES)
        self._figures = torch.ones(shape, dtype=torch.float64, device=self._device)
        unchanged = defaults(self._members, torch.device("cpu"))
        self._unchanged, self._unchanged_host = unchanged.to(self._device), unchanged.numpy()
        cuda = self._device.type == "cuda"
        self._fetched = torch.empty(shape, dtype=torch.float64, pin_memory=cuda)
        self._plan = self._planned()
        self._slot = 0
        self._pending: list[Step] = []  # of the block that is being filled
        self._held: list[Step] = []
        self._held_figures: list[Any] = []
        self._block_before: tuple[list[Step], Any] | None = None
        rank = training.rank if training.ranks > 1 else None
        names = (
            CaptureName("train", training.precision, None, suffix, rank).path(self._folder)
            for suffix in PARAMETERS
        )
        table, self._index, changes = names
        self._source = table.name
        writer = tables.parquet_in_pieces(self._files.enter_context(replacing(table)), "parameters")
        self._table: pq.ParquetWriter = self._files.enter_context(writer)
        temporary = self._files.enter_context(replacing(changes))
        self._log: IO[str] = self._files.enter_context(temporary.open("w", encoding="utf-8"))

    def step(self, number: int) -> AbstractContextManager[None]:
        """Note its number."""
        self._number = number
        return NOTHING

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Watch the optimizer's."""
        return self._watched() if name == "optimizer" else NOTHING

    def close(self) -> None:
        """Fetch what is left and write the files."""
        try:
            self._fetch()
            self._fetch()
            self._write()
            about = [member.about for member in self._members]
            document = documents.Parameters(
                parameters=about,
                model=type(self._training.model).__name__,
                optimizer=type(self._training.optimizer).__name__,
                rank=self._training.rank,
                how=self._plan.how,
            )
            write_json(self._index, {"schema_version": 1, **msgspec.to_builtins(document)})
        finally:
            self._files.close()

    def facts(self) -> dict[str, Any]:
        """How changes were counted."""
        return {"parameter_changes": self._plan.how}

    # --- one step -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        optimizer = self._training.optimizer
        groups = optimizer.param_groups
        self._trainable = [member.tensor.requires_grad for member in self._members]
        self._stepped = False
        # Registered anew for each step: the last before it and the first after those of others.
        handles = [
            optimizer.register_step_pre_hook(self._before),
            optimizer.register_step_post_hook(self._after),
        ]
        try:
            yield
        finally:
            optimizer.param_groups = groups
            for handle in handles:
                handle.remove()
        slot = self._slot if self._stepped else None
        self._pending.append(Step(self._number, time.time(), slot, self._trainable))
        if slot is not None:
            self._slot = (slot + 1) % (2 * self._block)
            if self._slot % self._block == 0:
                self._fetch()

    def _before(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._stepped:
            raise InputError(
                f"the optimizer steps twice in step {self._number}",
                fix="count parameters of a loop with one optimizer step in each step",
            )
        self._stepped = True
        if [len(group["params"]) for group in optimizer.param_groups] != self._plan.sizes:
            self._plan = self._planned()
        figures = self._figures[self._slot, :-1]
        figures.copy_(self._unchanged)
        scale = getattr(optimizer, "grad_scale", None)
        if scale is not None:  # a fused optimizer divides the gradients itself
            self._figures[self._slot, -1, 0].copy_(scale)
        else:
            self._figures[self._slot, -1, 0].fill_(1.0)
        for counter in self._plan.counters:
            counter.begin(self._slot)
        if self._plan.apart:
            chunks = self._chunk_by_chunk(optimizer.param_groups, figures)
            optimizer.param_groups = _OneByOne(optimizer.param_groups, chunks)
        else:
            for chunk in self._plan.chunks:
                chunk.counter.before(chunk.members, figures)

    def _chunk_by_chunk(
        self, groups: list[dict[str, Any]], figures: torch.Tensor
    ) -> Iterator[dict[str, Any]]:
        self._through = False
        for chunk in self._plan.chunks:
            chunk.counter.before(chunk.members, figures)
            yield {**groups[chunk.group], "params": [m.tensor for m in chunk.members]}
            chunk.counter.after(chunk.members, figures)
        self._through = True

    def _after(self, optimizer: torch.optim.Optimizer, _args: Any, _kwargs: Any) -> None:
        figures = self._figures[self._slot, :-1]
        if not self._plan.apart:
            for chunk in self._plan.chunks:
                chunk.counter.after(chunk.members, figures)
        elif not self._through:
            raise AssertionError(f"{type(optimizer).__name__} left its loop over groups early")
        for counter in self._plan.counters:
            counter.end(figures)

    # --- chunks ---------------------------------------------------------------------------------

    def _planned(self) -> _Plan:
        """The chunks of the optimizer's groups as they are now."""
        optimizer = self._training.optimizer
        sizes = [len(group["params"]) for group in optimizer.param_groups]
        apart = type(optimizer) in APART
        how: dict[str, Any] = {"memory_limit_bytes": self._memory, "steps_apart": apart}
        if not apart:
            kept = Torch(host=True)
            how["counter"] = "torch, kept in the host's memory"
            how["why"] = f"{type(optimizer).__name__} may step parameters by one another"
            return _Plan([_Chunk(0, self._members, kept)], [kept], False, sizes, how)
        groups = [self._known(group["params"]) for group in optimizer.param_groups]
        kernels = self._kernels(how)
        if kernels is None:
            cuda_members: set[int] = set()
        else:
            every = (m for group in groups for m in group)
            cuda_members = {m.about.index for m in every if Cuda.takes(m, self._device)}
        limit = self._limit(len(cuda_members), kernels is not None)
        packed = [
            (number, members)
            for number, group in enumerate(groups)
            for members in pack(group, limit, lambda m: m.about.index in cuda_members)
        ]
        own, host = Torch(), Torch(host=True)
        by_kernels = [c for _, c in packed if _fits(c, limit) and c[0].about.index in cuda_members]
        counters: list[Counter] = [own, host]
        if kernels is not None and by_kernels:
            slots = 2 * self._block
            counters.append(Cuda(self._members, by_kernels, self._device, slots, kernels))
        chunks = []
        for number, members in packed:
            counter: Counter = own if _fits(members, limit) else host
            if any(members is c for c in by_kernels):
                counter = counters[-1]
            chunks.append(_Chunk(number, members, counter))
        how["chunks"] = len(chunks)
        how["parameters_by_kernels"] = sum(map(len, by_kernels))
        how["chunk_bytes"] = max((_bytes(c.members) for c in chunks), default=0)
        how["kept_on_host"] = [m.about.path for c in chunks if c.counter is host for m in c.members]
        return _Plan(chunks, counters, True, sizes, how)

    def _known(self, tensors: Sequence[torch.Tensor]) -> list[Parameter]:
        if any(id(t) not in self._by_id for t in tensors):
            raise InputError(
                "the optimizer was given a parameter after the training began",
                fix="give it every parameter at the start, frozen ones too",
            )
        return [self._by_id[id(t)] for t in tensors]

    def _kernels(self, how: dict[str, Any]) -> Kernels | None:
        """The kernels, where the device takes them and torch can compile them."""
        how["counter"] = "operators of torch"
        if self._device.type != "cuda" or torch.version.hip:
            return None
        try:
            kernels = Kernels()
        except (AttributeError, OSError, RuntimeError) as e:
            how["why"] = f"torch cannot compile kernels here ({str(e).splitlines()[0]})"
            return None
        how["counter"] = "kernels"
        return kernels

    def _limit(self, tensors: int, kernels: bool) -> int:
        """Bytes of a chunk: what is left of the memory."""
        elements = sum(m.about.elements or 0 for m in self._members)
        tiles = tensors + elements // TILE
        tables_ = int(self._figures.nbytes) + 56 * len(self._members) + 40 * tiles
        flags = 2 * sum(m.about.rows or 0 for m in self._members)
        return self._memory - tables_ - flags - (0 if kernels else _FOR_PIECES)

    # --- results --------------------------------------------------------------------------------

    def _fetch(self) -> None:
        """Start fetching the block that is full, and write the one before, which has arrived."""
        before, self._block_before = self._block_before, None
        if self._pending:
            slots = [s.slot for s in self._pending if s.slot is not None]
            event = None
            if slots:
                part = slice(slots[0], slots[-1] + 1)
                self._fetched[part].copy_(self._figures[part], non_blocking=True)
            if self._device.type == "cuda":
                event = torch.cuda.Event()
                event.record()
            self._block_before = self._pending, event
            self._pending = []
        if before is not None:
            steps, event = before
            if event is not None:
                event.synchronize()
            self._take(steps)

    def _take(self, steps: list[Step]) -> None:
        """Copy what was fetched. Tables are made of many steps at once, or when all is over: that
        takes the host longer than to note a step."""
        figures = np.empty((len(steps), len(self._members), FIGURES))
        for at, step in enumerate(steps):
            if step.slot is None:
                figures[at] = self._unchanged_host
                continue
            fetched = self._fetched[step.slot].numpy()
            figures[at] = fetched[:-1]
            known = fetched[:-1, 2] >= 0
            figures[at, known, 2] /= fetched[-1, 0] ** 2
        self._held += steps
        self._held_figures.append(figures)
        if len(self._held) >= HELD:
            self._write()

    def _write(self) -> None:
        if not self._held:
            return
        figures = np.concatenate(self._held_figures)
        about = [m.about for m in self._members]
        origin = {"source": self._source, "rank": self._training.rank}
        self._table.write_table(rows(about, self._held, figures, origin))
        for step, of_step in zip(self._held, figures, strict=True):
            counts = of_step[:, 0].astype(int).tolist()
            self._log.write(log.line(step.unix_time, step.number, counts))
        self._log.flush()
        self._held, self._held_figures = [], []


def plugin(context: Context) -> ParameterChanges:
    """The plug-in of `layerline train --profile parameters`."""
    return ParameterChanges(context.folder)


def pack(
    group: Sequence[Parameter], limit: int, own_kind: Callable[[Parameter], bool]
) -> list[list[Parameter]]:
    """A group's parameters in their order, in chunks of at most `limit` bytes and of one kind. A
    parameter that is larger is a chunk of its own."""
    chunks: list[list[Parameter]] = []
    filled, kind = 0, None
    for member in group:
        size = -(-member.local.nbytes // 16) * 16
        if not chunks or filled + size > limit or own_kind(member) != kind:
            chunks.append([])
            filled, kind = 0, own_kind(member)
        chunks[-1].append(member)
        filled += size
    return chunks


def _bytes(members: Sequence[Parameter]) -> int:
    return sum(int(m.local.nbytes) for m in members)


def _fits(members: Sequence[Parameter], limit: int) -> bool:
    return len(members) > 1 or _bytes(members) <= limit
