"""The exchange at the heart of sequence parallelism, alone: all-gather, two matrix products,
reduce-scatter, again and again.

A rank has rows of the input (sequence / ranks, hidden), columns of the first weight
(hidden, hidden / ranks) and rows of the second (hidden / ranks, hidden)::

    all_gather       (sequence / ranks, hidden) -> (sequence, hidden)
    matmul_1         -> (sequence, hidden / ranks)
    matmul_2         -> (sequence, hidden), of which the ranks' sum is the result
    reduce_scatter   -> (sequence / ranks, hidden)
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from ...core.cli.progress import log
from ...core.errors import InputError
from ..plugin import Plugin
from ..training import Phase, Training
from .group import join
from .options import known
from .step import set_matmul

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PARTS = ("all_gather", "matmul_1", "matmul_2", "reduce_scatter")
MOMENTS = len(PARTS) + 1  # of an iteration


@dataclass(frozen=True)
class SequenceParallelOptions:
    """`warmup` iterations come before those that are told of."""

    sequence: int = 4608
    hidden: int = 9216
    warmup: int = 10
    precision: str = "float32"
    seed: int = 0


# By the names that torch 2.13 gave them.
_all_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
_reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)


class AllGather(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(x.shape[0] * dist.get_world_size(), *x.shape[1:])
        _all_gather(out, x)
        return out


class ReduceScatter(nn.Module):  # type: ignore[misc]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = x.new_empty(x.shape[0] // dist.get_world_size(), *x.shape[1:])
        _reduce_scatter(out, x)
        return out


class Exchange(nn.Module):  # type: ignore[misc]
    """The four parts, each a module, so that whoever watches modules sees them. `clock` is called
    before the first and after each."""

    def __init__(self, hidden: int, ranks: int) -> None:
        super().__init__()
        self.all_gather = AllGather()
        self.matmul_1 = nn.Linear(hidden, hidden // ranks, bias=False)
        self.matmul_2 = nn.Linear(hidden // ranks, hidden, bias=False)
        self.reduce_scatter = ReduceScatter()

    def forward(self, x: torch.Tensor, clock: Callable[[], None]) -> torch.Tensor:
        clock()
        for part in PARTS:
            x = getattr(self, part)(x)
            clock()
        return x


class Clock:
    """Moments of the device, as events on its stream, or of the CPU; read when all is done."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._moments: list[Any] = []

    def __call__(self) -> None:
        if self._cuda:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._moments.append(event)
        else:
            self._moments.append(time.perf_counter())

    def seconds(self, first: int) -> list[float]:
        """Of each moment from number `first` on, since that one."""
        moments = self._moments[first:]
        if self._cuda:
            torch.cuda.synchronize()
            return [moments[0].elapsed_time(moment) / 1e3 for moment in moments]
        return [moment - moments[0] for moment in moments]


@dataclass(frozen=True)
class Timing:
    """Seconds of this rank: of each part and of the whole, in each counted iteration, and of the
    loop of them. `elements` are those of the exchanged tensor, sequence x hidden; `flop` those of
    one rank in one iteration."""

    parts: dict[str, list[float]]
    iterations: list[float]
    loop: float
    elements: int
    flop: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON, with the rates."""
        count = len(self.iterations)
        return {
            "seconds": {**self.parts, "iteration": self.iterations, "loop": self.loop},
            "elements_per_second": self.elements * count / self.loop,
            "flop_per_second": self.flop * count / self.loop,
        }

    def lines(self) -> list[str]:
        """A table: median and extremes of each part in milliseconds, then the rates."""
        rows = [*self.parts.items(), ("iteration", self.iterations)]
        rates = self.as_dict()
        return [
            *(
                f"{name:<15} {1e3 * statistics.median(of):10.3f} ms"
                f"  ({1e3 * min(of):.3f} to {1e3 * max(of):.3f})"
                for name, of in rows
            ),
            f"{'loop':<15} {1e3 * self.loop:10.3f} ms  ({len(self.iterations)} iterations)",
            f"{rates['elements_per_second'] / 1e6:.3f} million elements (sequence x hidden) a"
            f" second, {rates['flop_per_second'] / 1e12:.3f} TFLOP/s on each rank",
        ]


@dataclass(kw_only=True)
class ExchangeTraining(Training):
    """An iteration is a step; nothing is learnt, so the loss is 0 and there is no update.
    `iterations` are told of."""

    options: SequenceParallelOptions
    clock: Clock
    iterations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.watchers["parts"] = _Parts(self)

    def length(self, warmup: int, steps: int) -> tuple[int, int]:
        """The warm-up is of the workload's own options."""
        self.iterations = steps
        return (self.options.warmup if steps else warmup), steps

    def gradients(self, phase: Phase) -> torch.Tensor:
        """One iteration."""
        with torch.no_grad(), phase("forward"):
            self.model(next(self.batches)["x"], self.clock)
        return torch.zeros(())

    def update(self) -> torch.Tensor | None:
        """Nothing to learn."""
        return None

    def timing(self) -> Timing:
        """Of the iterations after the warm-up."""
        each = MOMENTS
        first = self.options.warmup * each
        at = self.clock.seconds(first)[: self.iterations * each]
        begins = range(0, len(at), each)
        hidden, sequence = self.options.hidden, self.options.sequence
        return Timing(
            parts={
                name: [at[i + part + 1] - at[i + part] for i in begins]
                for part, name in enumerate(PARTS)
            },
            iterations=[at[i + each - 1] - at[i] for i in begins],
            loop=at[-1],
            elements=sequence * hidden,
            flop=2 * 2 * sequence * hidden * hidden // self.ranks,
        )


class _Parts(Plugin):
    """Tells the times of the parts after the last iteration that counts, and leaves them in the
    capture's meta file."""

    def __init__(self, training: ExchangeTraining) -> None:
        self._training = training
        self._timing: Timing | None = None

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """After the last one, the times of all."""
        yield
        training = self._training
        if number + 1 == training.options.warmup + training.iterations:
            self._timing = training.timing()
            for line in self._timing.lines() if training.rank == 0 else ():
                log(line)

    def facts(self) -> dict[str, Any]:
        """For the meta file."""
        return {} if self._timing is None else {"parts": self._timing.as_dict()}


def build(
    options: SequenceParallelOptions, device: torch.device, rank: int, ranks: int
) -> ExchangeTraining:
    """What this rank has of the exchange. InputError where it cannot be divided."""
    known("precision", options.precision, PRECISIONS)
    if options.warmup < 0:
        raise InputError(f"--warmup {options.warmup}: at least 0")
    for what, size in (("sequence", options.sequence), ("hidden", options.hidden)):
        if size < 1 or size % ranks:
            raise InputError(
                f"--{what} {size} cannot be divided among {ranks} ranks", fix="take a multiple"
            )
    join(device, rank, ranks)
    dtype = PRECISIONS[options.precision]
    set_matmul(options.precision)
    with torch.device("meta"):
        model = Exchange(options.hidden, ranks).to(dtype)
    model.to_empty(device=device)
    generator = torch.Generator(device).manual_seed(options.seed)

    def mine(rows: int, dimension: int) -> torch.Tensor:
        """This rank's part of a random matrix that all ranks make."""
        whole = torch.randn(rows, options.hidden, generator=generator, device=device)
        return whole.chunk(ranks, dimension)[rank].to(dtype)

    with torch.no_grad():
        for weight, dimension in ((model.matmul_1.weight, 0), (model.matmul_2.weight, 1)):
            weight.copy_(mine(options.hidden, dimension) / options.hidden**0.5)
    x = mine(options.sequence, 0).contiguous()
    return ExchangeTraining(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
        batches=itertools.repeat({"x": x}),
        loss=lambda output, batch: torch.zeros(()),
        device=device,
        precision="fp32" if options.precision == "float32" else "bf16",
        rank=rank,
        ranks=ranks,
        facts={"workload": "sequence-parallel", "batch": 1, **dataclasses.asdict(options)},
        options=options,
        clock=Clock(device),
    )
