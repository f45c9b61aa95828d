"""Which rank of a job a process is, by the environment that its launcher gave it; which ranks a
user means.

Sources, the innermost launcher first: a torchrun under srun has a rank of its own, and its
``SLURM_PROCID`` is only the node's task.

- torchrun (docs.pytorch.org, Environment Variables): RANK, WORLD_SIZE, LOCAL_RANK, GROUP_RANK …
- Open MPI's mpirun: OMPI_COMM_WORLD_RANK …
- mpiexec of Cray PALS and of MPICH: PMI_RANK …, PALS_RANKID …, MPI_LOCALRANKID …
- srun (man srun, OUTPUT ENVIRONMENT VARIABLES): SLURM_PROCID … A batch script itself and the shell
  of an interactive step have these variables too, and are no ranks.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ..errors import InputError

# Ids from here up are steps that Slurm makes itself (slurm.h: SLURM_INTERACTIVE_STEP 0xfffffffa).
_OWN_STEPS = 0xFFFFFFF0
DEFAULT_PORT = 29500  # torch.distributed.run's own


@dataclass(frozen=True)
class _Launcher:
    name: str
    rank: tuple[str, ...]
    ranks: tuple[str, ...]
    local: tuple[str, ...]
    local_ranks: tuple[str, ...]
    node: tuple[str, ...]


_LAUNCHERS = (
    _Launcher(
        "torchrun", ("RANK",), ("WORLD_SIZE",), ("LOCAL_RANK",), ("LOCAL_WORLD_SIZE",),
        ("GROUP_RANK",),
    ),
    _Launcher(
        "Open MPI", ("OMPI_COMM_WORLD_RANK",), ("OMPI_COMM_WORLD_SIZE",),
        ("OMPI_COMM_WORLD_LOCAL_RANK",), ("OMPI_COMM_WORLD_LOCAL_SIZE",), (),
    ),
    _Launcher(
        "mpiexec", ("PMI_RANK", "PALS_RANKID", "PMIX_RANK"), ("PMI_SIZE", "PALS_SIZE"),
        ("PALS_LOCAL_RANKID", "PMI_LOCAL_RANK", "MPI_LOCALRANKID"),
        ("PMI_LOCAL_SIZE", "PALS_LOCAL_SIZE", "MPI_LOCALNRANKS"), ("PALS_NODEID",),
    ),
    _Launcher(
        "srun", ("SLURM_PROCID",), ("SLURM_STEP_NUM_TASKS",), ("SLURM_LOCALID",), (),
        ("SLURM_NODEID",),
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Rank:
    """`rank` of `ranks` in the job, `local` of `local_ranks` on its node, which is number `node`;
    None where the launcher `by` does not say."""

    rank: int
    ranks: int | None
    local: int | None
    local_ranks: int | None
    node: int | None
    by: str


def identity(environment: Mapping[str, str]) -> Rank | None:
    """The rank of the process with this environment; None where no launcher started it.
    InputError where the variables contradict one another or are no numbers."""
    for launcher in _LAUNCHERS:
        if launcher.name == "srun" and not _is_task(environment):
            continue
        rank = _number(environment, launcher.rank)
        if rank is not None:
            return _rank(environment, launcher, rank)
    return None


def _rank(environment: Mapping[str, str], launcher: _Launcher, rank: int) -> Rank:
    ranks = _number(environment, launcher.ranks)
    local = _number(environment, launcher.local)
    local_ranks = _number(environment, launcher.local_ranks)
    node = _number(environment, launcher.node)
    if launcher.name == "srun" and node is not None:
        local_ranks = tasks_of(environment.get("SLURM_STEP_TASKS_PER_NODE", ""), node)
    if ranks is not None and rank >= ranks:
        raise _contradiction(launcher.rank[0], rank, launcher.ranks[0], ranks)
    if local is not None and local_ranks is not None and local >= local_ranks:
        raise _contradiction(launcher.local[0], local, launcher.local_ranks[0], local_ranks)
    if node is None and local_ranks and ranks and not ranks % local_ranks:
        node = rank // local_ranks if local == rank % local_ranks else None
    return Rank(rank, ranks, local, local_ranks, node, launcher.name)


def _contradiction(first: str, value: int, second: str, other: int) -> InputError:
    fix = "see that one launcher started this process, or unset what is left of another"
    return InputError(f"{first} is {value} and {second} is {other}", fix=fix)


def _number(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The number that these variables agree on; empty is unset."""
    found = {name: environment[name] for name in names if environment.get(name, "").strip()}
    for name, text in found.items():
        if not re.fullmatch(r"[0-9]{1,9}", text.strip()):
            raise InputError(f"{name}={text} is no number of a rank", fix="unset or correct it")
    numbers = {name: int(text) for name, text in found.items()}
    if len(set(numbers.values())) > 1:
        (first, value), (second, other) = list(numbers.items())[:2]
        raise _contradiction(first, value, second, other)
    return next(iter(numbers.values()), None)


def _is_task(environment: Mapping[str, str]) -> bool:
    step = environment.get("SLURM_STEP_ID", "")
    return step.isdecimal() and int(step) < _OWN_STEPS


def tasks_of(per_node: str, node: int) -> int | None:
    """How many tasks Slurm starts on a node, by its short form ``2(x3),1``; None where it does not
    say."""
    at = 0
    for part in per_node.split(","):
        found = re.fullmatch(r"(\d+)(?:\(x(\d+)\))?", part)
        if found is None:
            return None
        at += int(found[2] or 1)
        if node < at:
            return int(found[1])
    return None


def torch_environment(rank: Rank, environment: Mapping[str, str]) -> dict[str, str]:
    """What ``init_process_group`` reads, for a process that another launcher than torchrun started.
    InputError where it cannot be told: a size, or the first rank's host."""
    if rank.by == "torchrun":
        return {}
    if rank.ranks is None:
        raise InputError(
            f"{rank.by} does not say how many ranks there are", fix="set RANK and WORLD_SIZE"
        )
    given = {"RANK": rank.rank, "WORLD_SIZE": rank.ranks, "LOCAL_RANK": rank.local or 0}
    if rank.local_ranks is not None:
        given["LOCAL_WORLD_SIZE"] = rank.local_ranks
    if rank.node is not None:
        given["GROUP_RANK"] = rank.node
    return {
        **{name: str(value) for name, value in given.items()},
        "MASTER_ADDR": _master(rank, environment),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(port(environment)),
    }


def _master(rank: Rank, environment: Mapping[str, str]) -> str:
    if given := environment.get("MASTER_ADDR"):
        return given
    if rank.ranks == (rank.local_ranks or 0) or rank.ranks == 1:
        return "127.0.0.1"
    if rank.by == "srun" and (launched := environment.get("SLURM_LAUNCH_NODE_IPADDR")):
        return launched  # where srun runs: the batch script's node, the job's first
    nodes = environment.get("PBS_NODEFILE")
    if nodes and Path(nodes).is_file():
        return Path(nodes).read_text().split()[0]
    raise InputError("the host of rank 0 is not known", fix="set MASTER_ADDR")


def port(environment: Mapping[str, str]) -> int:
    """A port that jobs on one machine do not share, by the number of the job."""
    job = environment.get("SLURM_JOB_ID") or environment.get("PBS_JOBID") or ""
    number = re.match(r"\d+", job)
    return DEFAULT_PORT + (int(number[0]) % 10000 if number else 0)


def host() -> str:
    """This node's name as it may stand in a file's: letters, digits and dashes. Slurm's own name
    where it gives one: a machine may be several nodes."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    return re.sub(r"[^A-Za-z0-9-]+", "-", name.split(".")[0]) or "unknown"


Chosen = Callable[[Rank], bool]


def chosen(text: str) -> Chosen:
    """Which ranks ``all``, ``0,4``, ``0-3`` or ``first-per-node[:N]`` means: the last is local rank
    0 of every node, or of the first N. InputError for other texts."""
    if text == "all":
        return lambda rank: True
    if found := re.fullmatch(r"first-per-node(?::([1-9]\d*))?", text):
        nodes = int(found[1]) if found[1] else None
        return lambda rank: _first(rank, nodes)
    numbers = numbers_of(text)
    return lambda rank: rank.rank in numbers


def numbers_of(text: str) -> frozenset[int]:
    """The numbers of ``0,4,8-11``."""
    numbers: set[int] = set()
    for part in text.split(","):
        found = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part.strip())
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise InputError(
                f"{text!r} names no ranks", fix="write all, 0,4, 0-3 or first-per-node:2"
            )
        numbers.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return frozenset(numbers)


def spelled(ranks: Sequence[int]) -> str:
    """``0-3,8`` for 0, 1, 2, 3, 8; with a step ``0-12:4``."""
    ordered = sorted(set(ranks))
    gaps = {b - a for a, b in pairwise(ordered)}
    if len(ordered) > 2 and len(gaps) == 1 and (step := gaps.pop()) > 1:
        return f"{ordered[0]}-{ordered[-1]}:{step}"
    runs: list[list[int]] = []
    for r in ordered:
        if runs and r == runs[-1][1] + 1:
            runs[-1][1] = r
        else:
            runs.append([r, r])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _first(rank: Rank, nodes: int | None) -> bool:
    if rank.local is None or (nodes is not None and rank.node is None):
        raise InputError(
            f"{rank.by} does not say on which node a rank is", fix="name ranks, as 0,4"
        )
    return rank.local == 0 and (nodes is None or (rank.node or 0) < nodes)
