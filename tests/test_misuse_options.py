"""Options that name nothing, or that nothing has a use for, are refused in one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from layerline.core.cli import cli
from layerline.core.options import FilePath

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


PATHS = [
    (words, command, parameter)
    for words, command in commands()
    for parameter in command.params
    if isinstance(parameter.type, click.Path)
]


def test_paths_are_found_in_the_commands_that_take_them() -> None:
    found = {" ".join([*words, parameter.name or ""]) for words, _, parameter in PATHS}
    assert {"metrics extract output", "report run_path", "engines timing_cache"} <= found


@pytest.mark.parametrize(
    ("words", "command", "parameter"), PATHS, ids=[f"{' '.join(w)} {p.name}" for w, _, p in PATHS]
)
def test_an_empty_path_is_refused_wherever_a_path_is_taken(
    words: tuple[str, ...],
    command: click.Command,
    parameter: click.Parameter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert isinstance(parameter.type, FilePath), "a path that may be empty"
    monkeypatch.chdir(tmp_path)
    given = []
    for other in command.params:
        value = "" if other is parameter else "somewhere"
        if isinstance(other, click.Argument):
            given.append(value)
        elif other is parameter:
            given += [other.opts[0], value]
    result = CliRunner().invoke(cli, [*words, *given])
    assert result.exit_code == 2
    told = result.output.splitlines()[-1]
    assert told.startswith("Error: Invalid value for ") and "the path is empty" in told
    assert list(tmp_path.iterdir()) == []
