"""`layerline job slurm | pbs`: a training job as a batch script, shown or submitted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ...core.cli.groups import Group
from ...core.cli.options import FilePath, examples
from ...core.errors import InputError, ToolMissing
from ...core.files import write_text
from ...core.tool_commands import words
from ..train.command import check_words
from . import instances
from .script import Job, Pbs, Slurm, mapped, variables

TRAIN = "train"
# What the job decides for all nodes; of a single `layerline train` they are options.
OURS = ("--nproc", "--nnodes", "--rdzv-id", "--rdzv-endpoint", "--run")


_SLURM = "layerline job slurm --nodes 2 --per-node 8 train llama --profile torch"
_PBS = "layerline job pbs --nodes 2 --per-node 4 train -- python own.py --steps 20"


@click.group(cls=Group, epilog=examples(_SLURM, _PBS))
def job() -> None:
    """Write, and submit, the batch script of a training job.

    The job runs `layerline train` with the arguments that it takes.
    """


def _common(time: str, time_help: str, queue: str) -> Callable[[Any], Any]:
    """Options of every scheduler."""
    options = [
        click.argument("arguments", nargs=-1, type=click.UNPROCESSED, required=True),
        click.option("--name", default="layerline", show_default=True, help="The job's name."),
        click.option(
            "--nodes",
            type=click.IntRange(1, 100_000),
            default=1,
            show_default=True,
            help="How many nodes to ask for.",
        ),
        click.option(
            "--per-node",
            type=click.IntRange(1, 1024),
            help="Ranks on each node.  [default: the GPUs of --instance, else 1]",
        ),
        click.option("--run", default="runs/job", show_default=True, help="The run directory."),
        click.option(
            "--chdir",
            type=FilePath(file_okay=False),
            default=Path(),
            help="The directory where the job runs, on every node.  [default: here]",
        ),
        click.option(
            "--logs",
            type=FilePath(file_okay=False),
            default=Path("logs"),
            show_default=True,
            help="The folder for what the job prints.",
        ),
        click.option(time, "time", metavar="TIME", help=time_help),
        click.option("--account", help="The account that pays."),
        click.option(queue, "queue", help=f"The {queue.removeprefix('--')} to wait in."),
        click.option(
            "--instance",
            metavar="TYPE",
            help="The AWS instance type, e.g. p5.48xlarge: sets what NCCL over EFA needs.",
        ),
        click.option(
            "--env", multiple=True, metavar="NAME=VALUE", help="A variable to export; repeatable."
        ),
        click.option(
            "--setup",
            multiple=True,
            metavar="LINE",
            help="A line of shell to run first, e.g. 'module load conda'; repeatable.",
        ),
        click.option(
            "--directive",
            multiple=True,
            metavar="LINE",
            help="One more directive for the scheduler, e.g. --directive '--mem=0'; repeatable.",
        ),
        click.option(
            "--layerline",
            metavar="COMMAND",
            help="How a node starts layerline.  [default: as here; in a container `layerline`]",
        ),
        click.option(
            "--statistics/--no-statistics",
            default=True,
            help="Print nsys's statistics of the captures at the end.",
        ),
        click.option(
            "--report/--no-report", default=True, help="Make the page at the end of the job."
        ),
        click.option(
            "-o", "--output", type=FilePath(dir_okay=False), help="Write the script to a file."
        ),
        click.option("--submit", is_flag=True, help="Submit the script."),
        click.option("--dry-run", is_flag=True, help="Print the script (the default)."),
    ]

    def with_options(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


# Options end where the first argument stands: what follows is `layerline train`'s.
_SETTINGS = {"allow_interspersed_args": False}


@job.command(
    context_settings=_SETTINGS,
    epilog=examples(
        _SLURM,
        "layerline job slurm --nodes 4 --per-node 8 --time 30 --submit train llama",
    ),
)
@_common("--time", "The time limit, as sbatch takes it: 1-00:00:00, 30.", "--partition")
@click.option("--qos", help="The quality of service.")
@click.option("--constraint", help="Features that the nodes must have.")
@click.option("--gpus-per-node", metavar="[TYPE:]N", help="GPUs to ask for on each node.")
@click.option(
    "--cpus-per-task", type=click.IntRange(min=1), help="CPUs for the ranks of each node."
)
@click.option(
    "--exclusive/--shared",
    default=True,
    show_default=True,
    help="Ask for whole nodes, or share them.",
)
@click.option(
    "--auto-resume",
    "restarts",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="Put the job back into the queue up to N times, when a node or a rank fails or the time "
    "ends. Training goes on from its newest complete checkpoint.",
)
@click.option(
    "--warning",
    type=click.IntRange(1, 65535),
    default=120,
    show_default=True,
    help="How many seconds before the end of the time --auto-resume acts.",
)
@click.option("--container-image", help="The Enroot image: FILE.sqsh, or docker://IMAGE (pyxis).")
@click.option(
    "--container-mounts", multiple=True, metavar="SOURCE:TARGET", help="What to mount in it."
)
@click.option(
    "--container-mount-home/--no-container-mount-home",
    default=True,
    show_default=True,
    help="Whether the home directory is there too.",
)
def slurm(
    arguments: tuple[str, ...], submit: bool, output: Path | None, dry_run: bool, **given: Any
) -> None:
    """Write a job for Slurm: torchrun on each node, or in a container."""
    image = given["container_image"]
    if image is None and given["container_mounts"]:
        raise click.UsageError("--container-mounts is of no use without --container-image")
    given["container_mounts"] = mapped(given["container_mounts"])
    made = Slurm(**_shared(given, arguments, in_container=image is not None))
    _done(made.script(), made, submit, output, dry_run, "SBATCH", "sbatch")


@job.command(
    context_settings=_SETTINGS,
    epilog=examples(
        _PBS,
        "layerline job pbs --nodes 2 --per-node 4 --queue debug --submit train llama",
    ),
)
@_common("--walltime", "The time limit, as qsub takes it: 01:00:00.", "--queue")
@click.option(
    "--chunk",
    metavar="RESOURCES",
    help="What to ask for on each node, after `select=N:`; e.g. ngpus=4:system=polaris.",
)
@click.option("--place", default="scatter", show_default=True, help="How the nodes are placed.")
@click.option("--filesystems", help="The file systems that the job needs, e.g. home:eagle.")
@click.option(
    "--keep",
    default="doe",
    show_default=True,
    help="qsub -k: which output is kept as it is written.",
)
@click.option("--join", default="oe", show_default=True, help="qsub -j: which outputs are joined.")
@click.option("--out", type=FilePath(), help="The file or folder of the output.  [default: --logs]")
@click.option(
    "--err", type=FilePath(), help="The file or folder of errors, where they are not joined."
)
@click.option(
    "--cpu-bind",
    metavar="BINDING",
    help="The binding for mpiexec, e.g. verbose,list:24-31:16-23:8-15:0-7, or depth.",
)
@click.option("--depth", type=click.IntRange(min=1), help="CPUs of each rank, for mpiexec.")
def pbs(
    arguments: tuple[str, ...], submit: bool, output: Path | None, dry_run: bool, **given: Any
) -> None:
    """Write a job for PBS: mpiexec starts each rank on its CPUs."""
    given["out"] = (given["out"] or given["logs"]).absolute()
    given["err"] = given["err"] and given["err"].absolute()
    made = Pbs(**_shared(given, arguments, in_container=False))
    _done(made.script(), made, submit, output, dry_run, "QSUB", "qsub")


def _shared(
    given: dict[str, Any], arguments: tuple[str, ...], *, in_container: bool
) -> dict[str, Any]:
    """Options as a Job has them."""
    if arguments[0] != TRAIN:
        raise click.UsageError(
            f"{arguments[0]!r} is not {TRAIN}: a job runs `layerline {TRAIN} WORKLOAD …` or "
            f"`layerline {TRAIN} -- python own.py …`"
        )
    train = list(arguments[1:])
    if not train:
        raise click.UsageError(f"name what to train, as `{TRAIN} llama`")
    own = train[: train.index("--")] if "--" in train else train
    for option in OURS:
        if any(word == option or word.startswith(f"{option}=") for word in own):
            fix = {"--nproc": "--per-node", "--run": "--run"}.get(option, "--nodes")
            raise click.UsageError(f"give {fix} before {TRAIN} instead of {option} after it")
    check_words(train)
    instance = given.pop("instance")
    gpus = instances.gpus(instance) if instance else None
    command = given.pop("layerline")
    shared = {
        "train": train,
        "per_node": given["per_node"] or gpus or 1,
        "variables": variables(given.pop("env"), instance),
        "setup": list(given["setup"]),
        "directives": list(given.pop("directive")),
        "chdir": given["chdir"].absolute(),
        "logs": given["logs"].absolute(),
        "layerline": _layerline(command, in_container),
    }
    return {**given, **shared}


def _layerline(command: str | None, in_container: bool) -> list[str]:
    """How a node starts this program: with this interpreter, on a file system that nodes share."""
    if command is not None:
        return words("", command)
    if in_container:
        return ["layerline"]
    return [sys.executable, "-P", "-m", "layerline.core.cli.command"]


def _done(
    script: str,
    made: Job,
    submit: bool,
    output: Path | None,
    dry_run: bool,
    variable: str,
    tool: str,
) -> None:
    if submit and dry_run:
        raise click.UsageError("--submit or --dry-run, not both")
    if output is not None:
        write_text(output, script)
    if not submit:
        if output is None:
            click.echo(script, nl=False)
        return
    argv = words(variable, tool)
    if shutil.which(argv[0]) is None:
        raise ToolMissing(
            f"{argv[0]} is not on the PATH", fix=f"submit where it is, or name it with {variable}=…"
        )
    made.logs.mkdir(parents=True, exist_ok=True)  # a log without its folder is lost
    path = output or made.logs / f"{made.name}.sh"
    if output is None:
        write_text(path, script)
    done = subprocess.run([*argv, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
        raise InputError(f"{argv[0]} refused it: {said[-1]}", file=path)
    click.echo(done.stdout.strip())
