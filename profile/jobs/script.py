"""Job scripts from templates, with every value quoted for whoever reads it.

A script has two readers: the shell, and the scheduler, which reads its directives before any shell
does. Values for the shell are quoted (`shlex.quote`). sbatch takes double quotes around a value and
backslashes in them; what would need one is refused, and so is what PBS, which has no quotes,
would split.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import jinja2

from ...core.errors import InputError
from . import instances

_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # a shell reads it: every value goes through a filter
)
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# As PBS Professional's reference guide has it for -N.
_PBS_NAME = re.compile(r"[A-Za-z0-9_+-][A-Za-z0-9_.+-]{0,229}")


def _printable(value: str, what: str) -> str:
    if not value.strip() or not value.isprintable():
        raise InputError(f"{what} {value!r} is empty or not printable", fix="give another")
    return value


def sbatch(value: str) -> str:
    """A value of a #SBATCH directive, in its quotes."""
    if '"' in _printable(value, "a directive's value") or "\\" in value:
        raise InputError(f"sbatch takes no quote and no backslash in {value!r}", fix="leave it out")
    return f'"{value}"'


def pbs(value: str) -> str:
    """A value of a #PBS directive: qsub has no quotes."""
    if re.search(r"[\s'\"\\;#$`&|<>()]", _printable(value, "a directive's value")):
        raise InputError(
            f"qsub takes no blank, quote or other character of the shell in {value!r}",
            fix="leave it out",
        )
    return value


def shell(value: Any) -> str:
    """One word for the shell."""
    if any(c != "\t" and not c.isprintable() for c in str(value)):
        raise InputError(f"{value!r} has characters that cannot be printed", fix="give another")
    text = str(value)
    # shlex leaves commas bare, which in an array look like separators.
    return (
        f"'{text}'" if re.fullmatch(r"[\w,.:=@%+/-]*,[\w,.:=@%+/-]*", text) else shlex.quote(text)
    )


def words(values: list[str]) -> str:
    """Words for the shell, one a line where an option begins."""
    lines: list[str] = []
    for value in values:
        if not lines or value.startswith("-"):
            lines.append(shell(value))
        else:
            lines[-1] += " " + shell(value)
    return "\n  ".join(lines)


def verbatim(line: str) -> str:
    """A line of the user's own shell code."""
    if "\n" in line or "\0" in line:
        raise InputError("--setup takes one line", fix="give it several times")
    return line


_ENVIRONMENT.filters.update(
    {"sbatch": sbatch, "pbs": pbs, "sh": shell, "words": words, "verbatim": verbatim}
)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What every scheduler is told. `train` are the arguments of `layerline train`, `layerline` its
    command's words, `setup` lines of shell before it. `time` as the scheduler writes it."""

    name: str
    nodes: int
    per_node: int
    run: str
    chdir: Path
    logs: Path
    train: list[str]
    layerline: list[str]
    time: str | None
    account: str | None
    queue: str | None
    setup: list[str]
    variables: dict[str, str]
    statistics: bool
    report: bool


@dataclass(frozen=True, kw_only=True)
class Slurm(Job):
    """`restarts`: how often it may be put back into the queue; `container_mounts` as
    ``SOURCE:TARGET``."""

    qos: str | None
    constraint: str | None
    gpus_per_node: str | None
    cpus_per_task: int | None
    exclusive: bool
    restarts: int
    warning: int
    directives: list[str]
    container_image: str | None
    container_mounts: list[str]
    container_mount_home: bool

    def script(self) -> str:
        """The batch script."""
        if re.search(r"[/%]", self.name):
            raise InputError(
                f"the job's name {self.name!r} is part of its log's name", fix="no / %"
            )
        return _render("slurm.sh.j2", self)


@dataclass(frozen=True, kw_only=True)
class Pbs(Job):
    """`chunk` follows the number of nodes in ``-l select=``, ``ngpus=4:system=polaris`` say."""

    chunk: str | None
    place: str | None
    filesystems: str | None
    keep: str | None
    join: str | None
    out: Path
    err: Path | None
    cpu_bind: str | None
    depth: int | None
    directives: list[str]

    def script(self) -> str:
        """The batch script."""
        if not _PBS_NAME.fullmatch(self.name):
            raise InputError(
                f"qsub takes no job named {self.name!r}",
                fix="begin with a letter, then letters, digits, _ . + - (230 at most)",
            )
        return _render("pbs.sh.j2", self)


def _render(template: str, job: Job) -> str:
    values = {field.name: getattr(job, field.name) for field in fields(job)}
    return _ENVIRONMENT.get_template(template).render(values)


def variables(given: tuple[str, ...], instance: str | None) -> dict[str, str]:
    """The variables that a script exports: NCCL's, of the instance type, and those of the user,
    ``NAME=VALUE``, which win."""
    found = {"NCCL_DEBUG": "WARN", **(instances.environment(instance) if instance else {})}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not NAME.fullmatch(name):
            raise InputError(f"--env {text} is not NAME=VALUE", fix="e.g. --env NCCL_DEBUG=INFO")
        found[name] = value
    return found


def mapped(mounts: tuple[str, ...]) -> list[str]:
    """Mounts as pyxis takes them. InputError for a comma, which separates them there."""
    for mount in mounts:
        if "," in mount or not 2 <= len(mount.split(":")) <= 3:
            raise InputError(f"{mount} is no SOURCE:TARGET[:ro]", fix="give each mount by itself")
    return list(mounts)
