"""Kinds of option values that several commands share."""

from __future__ import annotations

import math
from typing import Any

import click

# What the operating system takes as a time to wait: poll counts milliseconds in 32 bits.
LONGEST_SECONDS = 2_000_000


class Finite(click.FloatRange):
    """A number within a range. FloatRange alone lets NaN through, which fits every range, and
    infinity, which JSON does not have."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number. Fails as every option does."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no finite number.", param, ctx)
        return number


SECONDS = Finite(min=0, min_open=True, max=LONGEST_SECONDS)


def names(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """A callback of a repeatable option: each name once, without blanks around it, in the order
    given; a name that is empty is an error."""
    found = tuple(dict.fromkeys(v.strip() for v in values))
    if "" in found:
        raise click.BadParameter("a name is empty")
    return found
