"""Run a parallel workload by itself, one process a rank, as torchrun starts them.

::

    torchrun --nproc-per-node 2 -m layerline.workloads.run llama --model tiny --steps 20

Every field of a workload's options is an option here.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click
import torch
import torch.distributed as dist

from ..core.errors import InputError, LayerlineError
from .loop import train
from .parallel.group import chosen_device
from .parallel.options import Options, converted
from .parallel.report import Journal, Report
from .parallel.sequence_parallel import ExchangeTraining
from .parallel.step import ParallelTraining
from .plugin import Plugin

# Workload: the module with its `build`, and the name of its options.
WORKLOADS = {
    "llama": ("layerline.workloads.parallel.llama", "LlamaOptions"),
    "gpt-layouts": ("layerline.workloads.parallel.layouts", "LayoutOptions"),
    "sequence-parallel": (
        "layerline.workloads.parallel.sequence_parallel",
        "SequenceParallelOptions",
    ),
}


def parse(kind: type[Any], arguments: Sequence[str]) -> tuple[Any, argparse.Namespace]:
    """The workload's options, and those of the run."""
    parser = argparse.ArgumentParser(prog="layerline.workloads.run", allow_abbrev=False)
    for field in dataclasses.fields(kind):
        switch = field.default is False
        how: dict[str, Any] = {"action": "store_true"} if switch else {"default": None}
        parser.add_argument(f"--{field.name.replace('_', '-')}", dest=f"of_{field.name}", **how)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--json", action="store_true", help="reports as JSON lines")
    parser.add_argument("--capture", help="FIRST or FIRST-LAST step inside the CUDA profiler API")
    given = parser.parse_args(arguments)
    values = {k.removeprefix("of_"): v for k, v in vars(given).items() if k.startswith("of_")}
    return converted(kind, {k: v for k, v in values.items() if v is not None}), given


def main(arguments: Sequence[str]) -> int:
    """Train; gives the process's exit code."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    try:
        if not arguments or arguments[0] not in WORKLOADS:
            raise InputError(f"the workload is one of {', '.join(WORKLOADS)}")
        place, name = WORKLOADS[arguments[0]]
        module = importlib.import_module(place)
        options, given = parse(getattr(module, name), arguments[1:])
        _train(module, options, given, rank, ranks)
    except LayerlineError as e:
        click.echo(f"error: {f'rank {rank}: ' if ranks > 1 else ''}{e.line()}", err=True)
        return e.exit_code
    return 0


class Window(Plugin):
    """Steps `first` to `last` inside the CUDA profiler API, for nsys and ncu to record those only
    (``nsys profile --capture-range=cudaProfilerApi``)."""

    def __init__(self, chosen: str) -> None:
        first, _, last = chosen.partition("-")
        if not (first.isdigit() and (last or first).isdigit()):
            raise InputError(f"--capture {chosen}: neither a step nor two with - between them")
        self.first, self.last = int(first), int(last or first)

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """The device has done all before when it starts, and all of the step when it stops."""
        if number == self.first:
            torch.cuda.synchronize()
            torch.cuda.profiler.start()
        yield
        if number == self.last:
            torch.cuda.synchronize()
            torch.cuda.profiler.stop()


def _train(module: Any, options: Any, given: argparse.Namespace, rank: int, ranks: int) -> None:
    training = module.build(options, chosen_device(given.device), rank, ranks)
    watching = [Window(given.capture)] if given.capture else []
    if isinstance(training, ExchangeTraining):
        for _ in train(training, options.warmup + options.iterations, watching):
            pass
        timing = training.timing()
        lines = [json.dumps(timing.as_dict())] if given.json else timing.lines()
    else:
        _learn(training, options, given, watching)
        lines = []
    if rank == 0:
        for line in lines:
            click.echo(line)
    dist.destroy_process_group()


def _learn(
    training: ParallelTraining,
    options: Options,
    given: argparse.Namespace,
    watching: Sequence[Plugin],
) -> None:
    def tell(report: Report) -> None:
        click.echo(json.dumps(dataclasses.asdict(report)) if given.json else report.line())
        sys.stdout.flush()

    journal = Journal(options, tell)
    first = journal.resume(training)
    if first and training.rank == 0:
        click.echo(f"goes on after step {first}", err=True)
    for _ in train(training, given.steps, [*watching, journal], first=first):
        pass
    journal.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
