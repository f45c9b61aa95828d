"""Groups of commands: their help, and what every command takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

from . import progress

_WHOLE = 10_000  # characters: no summary is cut


class Group(click.Group):
    """A group whose help shows each command's whole summary. `sections`: names of commands under
    the heading that they stand under; without, they stand under "Commands"."""

    sections: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, section by section, their summaries in one column."""
        names = self.list_commands(ctx)
        widest = max(map(len, names))
        for heading, members in (self.sections or {"Commands": names}).items():
            found = [(name, self.get_command(ctx, name)) for name in members]
            rows = [
                (name.ljust(widest), command.get_short_help_str(_WHOLE))
                for name, command in found
                if command is not None
            ]
            with formatter.section(heading):
                formatter.write_dl(rows)


def with_quiet(command: click.Command) -> click.Command:
    """The command, with ``-q`` among its options: it works after a command as before it."""
    if isinstance(command, click.Group):
        for one in command.commands.values():
            with_quiet(one)
    elif not any("--quiet" in p.opts for p in command.params):
        command.params.append(_quiet())
    return command


def _quiet() -> click.Option:
    def heard(_context: click.Context, _parameter: click.Parameter, value: bool) -> None:
        if value:
            progress.set_quiet(True)

    return click.Option(
        ["-q", "--quiet"],
        is_flag=True,
        expose_value=False,
        callback=heard,
        help="Show errors only, no progress.",
    )
