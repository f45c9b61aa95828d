"""The `layerline` command: one group, each command loaded only when it is used."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from typing import Any

from ..errors import LayerlineError, one_line
from . import streams
from .interrupts import at_once

with at_once():
    import click

    from . import progress
    from .groups import Group, with_quiet
    from .options import examples

# Under each heading of the help: command name, and the module that holds its click command with
# the command's name there. A stage's command lives in the stage; a command of its own file keeps
# its options beside it.
SECTIONS = {
    "From a model to the page, in this order": {
        "export": "layerline.export.command:export",
        "engines": "layerline.engines.command:engines",
        "profile": "layerline.profile.command:profile",
        "report": "layerline.analysis.commands.report:report",
    },
    "More about a run": {
        "accuracy": "layerline.profile.accuracy.command:accuracy",
        "sweep": "layerline.profile.sweep.command:sweep",
        "ncu": "layerline.profile.ncu.command:ncu",
        "timeline": "layerline.analysis.commands.timeline:timeline",
        "graph": "layerline.analysis.commands.graph:graph",
    },
    "Training, on one rank or many": {
        "train": "layerline.profile.train.command:train",
        "job": "layerline.profile.jobs.command:job",
        "ranks": "layerline.analysis.commands.ranks:ranks",
        "memory": "layerline.analysis.commands.memory:memory",
        "parameters": "layerline.analysis.commands.parameters:parameters",
    },
    "Your own models and files": {
        "read": "layerline.analysis.commands.read:read",
        "layers": "layerline.analysis.commands.layers:layers",
        "init": "layerline.export.init:init",
        "nodes": "layerline.export.foreign_file:nodes",
        "metrics": "layerline.analysis.commands.metrics:metrics",
    },
    "Comparing and gates": {
        "compare": "layerline.analysis.commands.compare:compare",
        "gate": "layerline.analysis.commands.gate:gate",
    },
    "Sharing, and this machine": {
        "scrub": "layerline.analysis.commands.scrub:scrub",
        "doctor": "layerline.core.cli.doctor:doctor",
    },
}
COMMANDS = {name: where for section in SECTIONS.values() for name, where in section.items()}


class LazyGroup(Group):
    """Commands are imported when asked for, so that analysis starts fast."""

    sections = {heading: tuple(commands) for heading, commands in SECTIONS.items()}  # noqa: RUF012

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and give one command."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        with at_once():
            command: click.Command = getattr(importlib.import_module(module), name)
        return with_quiet(command)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=examples(
        "make report                            # all four stages, on GPT-2",
        "layerline report runs/gpt2-1x128 --open",
        "layerline COMMAND --help               # options and examples of a command",
    ),
)
@click.version_option(package_name="layerline")
@click.option("-q", "--quiet", is_flag=True, help="Show errors only, no progress.")
def cli(quiet: bool) -> None:
    """Find out what each layer of a model costs, from the nn.Module to the kernel that ran.

    A run is a directory in which the commands leave what they make: name it as RUN.
    """
    progress.set_quiet(quiet)


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; ends the process with its exit code."""
    _end_orderly()
    streams.tolerant()
    try:
        code = cli.main(args=arguments, standalone_mode=False, prog_name="layerline")
    except LayerlineError as e:
        code = _fail(e.line(), e.exit_code)
    except click.exceptions.NoArgsIsHelpError as e:  # a group alone: its help is the message
        click.echo(e.format_message(), err=True)
        code = 2
    except click.UsageError as e:
        hint = f"; see `{e.ctx.command_path} --help`" if e.ctx else ""
        code = _fail(e.format_message() + hint, 2)
    except click.ClickException as e:
        code = _fail(e.format_message(), 2)
    except (click.Abort, KeyboardInterrupt):
        code = 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away: no error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    except OSError as e:
        code = _fail(f"{e.filename or ''}: {e.strerror or e}".lstrip(": "), 2)
    except MemoryError:
        code = _fail("out of memory; use a smaller model, batch or sequence", 2)
    sys.exit(code if isinstance(code, int) else 0)


def _end_orderly() -> None:
    """End as after Ctrl-C where the process is told to end: half files go, and so do workers,
    which lead sessions of their own and would go on measuring."""

    def end(number: int, _frame: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        return
    for name in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(name) is signal.SIG_DFL:  # nohup ignores SIGHUP
            signal.signal(name, end)


def _fail(line: str, code: int) -> int:
    print(f"error: {one_line(line)}", file=sys.stderr)  # noqa: T201
    return code


if __name__ == "__main__":
    main()
