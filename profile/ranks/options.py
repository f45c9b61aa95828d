"""Options of `layerline train` for several ranks, and where its program's own words begin."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from ...core.cli.options import SECONDS
from ...core.errors import InputError
from ...core.ranks import identity as ranks_
from .launch import Agents

_PROGRAM = "layerline.program"


class WithProgram(click.Command):
    """A command after whose ``--`` another program stands, with arguments of its own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take what follows the first ``--``."""
        if "--" in args:
            at = args.index("--")
            ctx.meta[_PROGRAM] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


def program() -> list[str] | None:
    """What stood after ``--``; None where there was none."""
    found: list[str] | None = click.get_current_context().meta.get(_PROGRAM)
    if found == []:
        raise click.UsageError("there is nothing after --")
    return found


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options of several ranks. `around_all`: one nsys around all ranks of a node; `delay`
    and `duration`, in seconds, and `launches`, ``[SKIP:]COUNT``, say what nsys and ncu capture."""

    nproc: int | None
    nnodes: int
    rdzv_id: str | None
    rdzv_endpoint: str | None
    ranks: str
    timeout: float | None
    around_all: bool
    delay: float | None
    duration: float | None
    launches: str | None
    batches: int
    replay: str

    @property
    def several(self) -> bool:
        """Whether ranks are to be started, or this process is one."""
        return self.nproc is not None or ranks_.identity(os.environ) is not None

    def agents(self) -> Agents | None:
        """torchrun's, for this node; None where this process is a rank already. InputError for
        ranks that the job does not have."""
        ranks_.chosen(self.ranks)  # InputError where it names none
        if self.nproc is None and ranks_.identity(os.environ) is not None:
            return None
        agents = Agents(self.nproc or 1, self.nnodes, self.rdzv_id, self.rdzv_endpoint)
        if self.ranks[:1].isdigit():
            beyond = max(ranks_.numbers_of(self.ranks))
            if beyond >= agents.ranks:
                raise InputError(
                    f"there is no rank {beyond} among {agents.ranks}", fix="ranks count from 0"
                )
        return agents


def numbers(launches: str) -> tuple[int, int]:
    """``[SKIP:]COUNT``. InputError for other texts."""
    skip, _, count = launches.rpartition(":")
    if not (count.isdecimal() and int(count) and (skip or "0").isdecimal()):
        raise InputError(f"{launches!r} is not [SKIP:]COUNT", fix="e.g. --launches 500:20")
    return int(skip or 0), int(count)


def rank_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of `Asked`."""
    options = (
        click.option(
            "--nproc", type=click.IntRange(1, 1024), help="How many ranks to start on this machine."
        ),
        click.option(
            "--ranks",
            default="all",
            show_default=True,
            help="Which ranks to profile: all, 0,4, 0-3, or first-per-node[:N], which is local "
            "rank 0 of each node, or of the first N nodes.",
        ),
        click.option(
            "--nnodes",
            type=click.IntRange(1, 100_000),
            default=1,
            show_default=True,
            help="How many nodes take part; run this command on each.",
        ),
        click.option("--rdzv-id", help="The job's name for torchrun, the same on every node."),
        click.option(
            "--rdzv-endpoint", metavar="HOST:PORT", help="Where the nodes of torchrun meet."
        ),
        click.option(
            "--timeout",
            type=SECONDS,
            help="End the job so many seconds after its ranks have begun.",
        ),
        click.option(
            "--around-all",
            is_flag=True,
            help="Start one nsys for all ranks of a node, not one for each.",
        ),
        click.option("--delay", type=SECONDS, help="Let nsys start after so many seconds."),
        click.option("--duration", type=SECONDS, help="Let nsys capture so many seconds."),
        click.option(
            "--launches", metavar="[SKIP:]COUNT", help="Which kernels of each rank ncu measures."
        ),
        click.option(
            "--batches",
            type=click.IntRange(min=1),
            default=1,
            show_default=True,
            help="Run so many times, each for the next --launches.",
        ),
        click.option(
            "--replay",
            type=click.Choice(["kernel", "application"]),
            default="kernel",
            show_default=True,
            help="What ncu repeats where not all counters fit into one pass: a kernel or the job.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command
