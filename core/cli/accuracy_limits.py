"""--min-cosine and --min-top1: what agreement with the reference is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from ..accuracy.limits import LIMITS
from ..capture_names import PRECISIONS
from .options import listed


def _limits(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> dict[str, float]:
    """By precision, "" for all: from ``0.99`` and ``fp16=0.99``."""
    found: dict[str, float] = {}
    for text in listed(values):
        precision, equals, number = text.rpartition("=")
        if equals and precision not in PRECISIONS:
            raise click.BadParameter(f"{precision!r} is not one of {', '.join(PRECISIONS)}")
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not -1 <= value <= 1:
            raise click.BadParameter(f"{number!r} is no number from -1 to 1")
        found[precision] = value
    return found


def limit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds both options; their values are those of `Asked`."""
    for name, what in (
        ("top1", "share of positions whose largest entry is the same"),
        ("cosine", "cosine of an engine's outputs with eager fp32's"),
    ):
        default = ", ".join(f"{p}={getattr(limits, name):g}" for p, limits in LIMITS.items())
        command = click.option(
            f"--min-{name}",
            multiple=True,
            callback=_limits,
            metavar="[PRECISION=]VALUE",
            help=f"The least {what}; below it an engine is wrong.  [default: {default}]",
        )(command)
    return command
