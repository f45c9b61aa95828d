"""Starting the ranks of a job on this node: torchrun with a keeper around each rank, or one keeper
where srun or mpiexec started the ranks already.

Whatever happens, no process of the job is left: keepers die with torchrun, programs with their
keepers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import msgspec

from ...core.cli.progress import log
from ...core.errors import InputError, one_line
from ...core.files import folder, listing, write_text
from ...core.ranks import identity as ranks_
from . import diagnosis, outcome
from .outcome import Outcome
from .plan import Plan
from .processes import dying_with_parent

NODE = (sys.executable, "-P", "-m", "layerline.profile.ranks.node")
KEEPER = ("-P", "-m", "layerline.profile.ranks.keeper")
# Longer than torchrun waits for its ranks (30 s), and the node for what is left (30 s).
GRACE = 75.0
# Within which ranks begin, or the time counts all the same: torchrun waits 600 s for other nodes.
STARTING = 900.0
_POLL = 0.2


@dataclass(frozen=True)
class Agents:
    """torchrun on each of `nodes` nodes with `each` ranks; they meet at `endpoint` under `id`."""

    each: int
    nodes: int = 1
    id: str | None = None
    endpoint: str | None = None

    def __post_init__(self) -> None:
        if self.nodes > 1 and (self.id is None or self.endpoint is None):
            raise InputError(
                f"{self.nodes} nodes need a place to meet",
                fix="give --rdzv-id and --rdzv-endpoint HOST:PORT, the same on every node",
            )

    @property
    def ranks(self) -> int:
        """Of the whole job."""
        return self.each * self.nodes

    def command(self, plan: Path) -> list[str]:
        """torchrun's, for this node (docs.pytorch.org, torchrun)."""
        meeting = ["--standalone"]
        if self.endpoint is not None:
            meeting = ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.endpoint}"]
            meeting += [f"--rdzv-id={self.id or 'layerline'}"]
        return [
            *(sys.executable, "-P", "-m", "torch.distributed.run"),
            *(f"--nnodes={self.nodes}", f"--nproc-per-node={self.each}", *meeting),
            *("--max-restarts=0", "--no-python", sys.executable, *KEEPER, str(plan)),
        ]

    def environment(self) -> dict[str, str]:
        """This process's, and threads for each rank: torchrun gives one, with a warning."""
        threads = max(1, len(os.sched_getaffinity(0)) // self.each)
        return {"OMP_NUM_THREADS": str(threads), **os.environ}


def run(
    plan: Plan,
    agents: Agents | None,
    *,
    around: Sequence[str] = (),
    timeout: float | None = None,
) -> list[Outcome]:
    """Run the plan's ranks on this node and give how they ended. `around`: a tool around all of
    them. Without `agents` this process is a rank already, of srun or mpiexec. The `timeout` counts
    from when all ranks of this node have begun: what starts them, from a cold disk, may take longer
    than what they do.

    InputError with the rank, the cause and what to try where a rank does not end well; what the
    others left is kept.
    """
    place = folder(Path(plan.folder))
    if agents is not None:
        for earlier in _here(place, ".*"):  # of another tool's run in the same job
            earlier.unlink()
    path = place / f"plan.{ranks_.host()}.{os.getpid()}.json"
    write_text(path, msgspec.json.encode(plan).decode() + "\n")
    if agents is None:
        command = [sys.executable, *KEEPER, str(path)]
        environment = dict(os.environ)
    else:
        command, environment = agents.command(path), agents.environment()
    agent_log = path.with_suffix(".log")
    try:
        with agent_log.open("wb") as stderr:
            late = _run(
                [*NODE, *around, *command],
                environment,
                stderr,
                timeout,
                lambda: agents is None or len(_here(place)) >= agents.each,
            )
    finally:
        path.unlink(missing_ok=True)
    return _judged(plan, agents, agent_log, timeout if late else None)


def _judged(
    plan: Plan, agents: Agents | None, agent_log: Path, timeout: float | None
) -> list[Outcome]:
    place = Path(plan.folder)
    known = outcome.read(place)
    # Ranks of other nodes may still be on their way.
    known = [r for r in known if r.ended_ns is not None or r.host == ranks_.host()]
    here = [r for r in known if r.host == ranks_.host()]
    failed = diagnosis.failure(place, known, timeout)
    expected = agents.each if agents else 1
    if failed is None and (len(here) < expected or not all(r.well for r in here)):
        failed = not_started(agent_log)
    if failed is None:
        agent_log.unlink(missing_ok=True)
        return known
    kept = sorted({r.rank for r in known if r.profiled and _captures(plan, r)})
    more = f"; captures of {diagnosis.numbers(kept)} are kept" if kept else ""
    raise InputError(f"{failed.what}{more}", file=place, fix=failed.fix)


def _here(place: Path, suffix: str = ".json") -> list[Path]:
    """The files of this host's ranks; that of an outcome is there once the rank has begun."""
    return [p for p in listing(place) if p.match(f"rank*.{ranks_.host()}{suffix}")]


def _captures(plan: Plan, of: Outcome) -> list[Path]:
    mark = f".rank{of.rank:04d}@{of.host}."
    return [p for p in listing(Path(plan.captures)) if mark in p.name and p.stat().st_size]


def not_started(agent_log: Path) -> diagnosis.Failure:
    """Why the launcher did not start all ranks, by what it printed."""
    printed = agent_log.read_text(errors="replace")
    own = diagnosis.OWN.findall(printed)  # of a keeper, with what to do
    lines = [line for line in printed.splitlines() if line.strip()]
    errors = own or [line for line in lines if "error" in line.lower()] or lines
    last = one_line(errors[-1])[:300] if errors else "it said nothing"
    fix = "" if own else "see that the nodes reach one another"
    return diagnosis.Failure(f"not all ranks started: {last}", fix)


def _run(
    command: Sequence[str],
    environment: dict[str, str],
    stderr: IO[bytes],
    timeout: float | None,
    begun: Callable[[], bool],
) -> bool:
    """Run to the end; whether the time was over before, from when it had `begun`. The process is
    gone in any case."""
    try:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stderr=stderr,
            start_new_session=True, preexec_fn=dying_with_parent(signal.SIGTERM),
        )  # fmt: skip
    except OSError as e:
        raise InputError(f"{command[0]} cannot be started ({e.strerror or e})") from None
    try:
        starting = time.monotonic() + STARTING
        while timeout is not None and process.poll() is None and not begun():
            if time.monotonic() > starting:
                break
            time.sleep(_POLL)
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        log(f"not done within {timeout:g} s: asking each rank where it is")
        return True
    finally:
        if process.poll() is None:
            _end(process)
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def job_id(environment: dict[str, str]) -> str:
    """A name of this job that all its processes agree on, where a scheduler gives one; else by
    the time."""
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "PALS_APID"):
        if given := environment.get(name):
            restart = environment.get("SLURM_RESTART_COUNT", "0") if "SLURM" in name else "0"
            return "".join(c if c.isalnum() else "-" for c in f"{given}.{restart}")
    return time.strftime("%Y%m%d-%H%M%S") + f"-{os.getpid()}"
