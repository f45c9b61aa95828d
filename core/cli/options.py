"""Kinds of option values that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

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


class FilePath(click.Path):
    """A path, as a `pathlib.Path`. Empty text, of an unset variable of a script, is an error: as a
    path it would be the current directory, which nobody named."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"path_type": Path, **more})

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Fails as every option does."""
        if not str(value).strip():
            self.fail("the path is empty.", param, ctx)
        path = super().convert(value, param, ctx)
        try:
            Path(os.fsdecode(path)).resolve()
        except (OSError, RuntimeError):  # which of them depends on the version of Python
            self.fail(f"{value} is a link that leads back to itself.", param, ctx)
        return path


_RUN = "layerline.run"


def run_argument(
    name: str = "run_path", *, metavar: str = "RUN", required: bool = True, many: bool = False
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds the run directory: the argument RUN, or ``--run RUN`` as scripts write it.

    The value is a path, None where none is given, or with `many` a tuple. `metavar` says what may
    stand there instead of a run. UsageError where both are given, or neither and it is `required`.
    """

    def remembered(context: click.Context, _option: click.Parameter, value: Path | None) -> None:
        context.meta[_RUN] = value

    def chosen(context: click.Context, argument: click.Parameter, value: Any) -> Any:
        named = context.meta.pop(_RUN, None)
        if named is not None:
            if value:
                raise click.UsageError(f"name the run once: as {metavar} or with --run", context)
            return (named,) if many else named
        if required and not value:
            raise click.MissingParameter(ctx=context, param=argument)
        return value

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        kind = FilePath()
        command = click.option(
            "--run",
            "run_option",
            type=kind,
            is_eager=True,
            expose_value=False,
            callback=remembered,
            metavar="RUN",
            help="The run directory, as an option.",
        )(command)
        return click.argument(
            name,
            type=kind,
            metavar=metavar,
            required=False,
            nargs=-1 if many else 1,
            callback=chosen,
        )(command)

    return added


def examples(*lines: str) -> str:
    """The end of a command's help: command lines as they can be typed."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


SECONDS = Finite(min=0, min_open=True, max=LONGEST_SECONDS)


def no_use(names: Collection[str], why: str) -> None:
    """UsageError where the command line gives one of these parameters of the running command, and
    they are of no use there: it would be ignored without a word."""
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in names and given(name) and context.params.get(name) not in (None, "", (), False):
            option = max(parameter.opts, key=len)
            raise click.UsageError(f"{option} is of no use {why}", context)


def given(name: str) -> bool:
    """Whether the command line gives this parameter of the running command."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def once_each(files: Iterable[Path]) -> None:
    """UsageError where one file is named twice: its rows would count twice, or its copy be lost."""
    seen: set[Path] = set()
    for path in files:
        real = path.resolve()
        if real in seen:
            raise click.UsageError(f"{path} is named twice")
        seen.add(real)


def listed(values: Iterable[str]) -> tuple[str, ...]:
    """The values of a repeatable option that may be joined by commas, each once, in their order.

    Empty text is as if the option was not given (an unset variable of a script); commas with
    nothing between them are an error.
    """
    given = [v for v in values if v.strip()]
    parts = [part.strip() for v in given for part in v.split(",") if part.strip()]
    if given and not parts:
        raise click.BadParameter(f"there is nothing in {' '.join(given)!r}")
    return tuple(dict.fromkeys(parts))


def names(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """A callback of a repeatable option: each name once, without blanks around it, in the order
    given; a name that is empty is an error."""
    unique = tuple(dict.fromkeys(v.strip() for v in values))
    if "" in unique:
        raise click.BadParameter("a name is empty")
    return unique
