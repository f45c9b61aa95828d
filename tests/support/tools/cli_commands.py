"""The commands of the command line."""

from __future__ import annotations

from collections.abc import Iterator

import click

from layerline.core.cli.command import cli

Named = tuple[tuple[str, ...], click.Command]


def commands(group: click.Group = cli, above: tuple[str, ...] = ()) -> Iterator[Named]:
    """Every command that there is, with the words that lead to it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*above, name))
        else:
            yield (*above, name), command
