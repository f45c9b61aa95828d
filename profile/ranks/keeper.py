"""Around one rank: starts its program, under a profiler where the rank is chosen; keeps its output,
and what became of it.

``python -m layerline.profile.ranks.keeper PLAN.json``, as torchrun, srun or mpiexec start it. The
program leads a session of its own and dies with the keeper; whatever it leaves behind (workers of
a data loader) is ended with it. Told to end (SIGTERM: another rank failed), a program that handles
SIGTERM is told so and has the plan's `grace` seconds to leave its captures. Then, and at once where
it does not, it is sent SIGABRT, for which Python prints where its threads are (PYTHONFAULTHANDLER).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import IO

import msgspec

from ...core.errors import InputError, LayerlineError
from ...core.files import folder
from ...core.ranks import identity as ranks_
from ...core.ranks.identity import Rank
from . import outcome as outcome_
from .outcome import Outcome
from .plan import Plan
from .processes import adopt_orphans, dying_with_parent, end_children, end_with_parent

LAST_WORDS = 3.0
_POLL = 0.05


def main(path: Path) -> int:
    """Run the plan's program as this rank; gives the exit status."""
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=Plan)
        rank = ranks_.identity(os.environ)
        if rank is None:
            raise InputError("no launcher says which rank this is", fix="start it with torchrun")
        return keep(plan, rank)
    except LayerlineError as e:
        print(f"error: {e.line()}", file=sys.stderr)  # noqa: T201
        return e.exit_code


def keep(plan: Plan, rank: Rank) -> int:
    """The exit status of the plan's program as this rank; 128 + N after signal N."""
    place = folder(Path(plan.folder))
    profiled = ranks_.chosen(plan.ranks)(rank)
    environment = plan.environment_of(rank, os.environ, profiled=profiled)
    command = plan.command_of(rank, profiled=profiled)
    ending = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(name, _setter(ending))
    end_with_parent()
    adopt_orphans()
    host = ranks_.host()
    with (place / f"{outcome_.stem(rank.rank, host)}.log").open("wb") as log:
        process = _start(command, environment)
        known = Outcome(
            rank=rank.rank, ranks=rank.ranks, local=rank.local, host=host, process=process.pid,
            profiled=profiled, started_ns=time.time_ns(),
        )  # fmt: skip
        outcome_.write(place, known)
        assert process.stdout is not None
        prefix = f"[rank{rank.rank}] ".encode() if rank.ranks != 1 else b""
        reader = threading.Thread(target=_tee, args=(process.stdout, log, prefix), daemon=True)
        reader.start()
        told = _wait(process, ending, plan.grace)
        end_children()
        reader.join(LAST_WORDS)
    code = process.returncode
    ended = msgspec.structs.replace(known, ended_ns=time.time_ns(), code=code, told=told)
    outcome_.write(place, ended)
    return code if code >= 0 else 128 - code


def _setter(event: threading.Event) -> Callable[[int, FrameType | None], None]:
    return lambda _number, _frame: event.set()


def _start(command: list[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, start_new_session=True,
            preexec_fn=dying_with_parent(signal.SIGKILL),
        )  # fmt: skip
    except OSError as e:
        raise InputError(
            f"{command[0]} cannot be started ({e.strerror or e})", fix="is it installed?"
        ) from None


def _tee(output: IO[bytes], log: IO[bytes], prefix: bytes) -> None:
    """Each line into the log, and to stdout with the rank before it; Kineto's own marks, which no
    level of its log keeps out, into the log alone."""
    for line in output:
        log.write(line)
        log.flush()
        if line.startswith(b"USDT:"):
            continue
        with contextlib.suppress(OSError):  # whoever read it is gone
            sys.stdout.buffer.write(line if line.startswith(b"[rank") else prefix + line)
            sys.stdout.buffer.flush()


def _wait(process: subprocess.Popen[bytes], ending: threading.Event, grace: float) -> bool:
    """Wait for the program's end; whether it was ended from outside."""
    while process.poll() is None:
        if ending.wait(_POLL):
            break
    if process.poll() is not None:
        return False
    if _handles(process.pid, signal.SIGTERM):
        _signal(process, signal.SIGTERM)
        if _ended(process, grace):
            return True
    _signal(process, signal.SIGABRT)
    if not _ended(process, LAST_WORDS):
        _signal(process, signal.SIGKILL)
        process.wait()
    return True


def _handles(process: int, number: int) -> bool:
    """Whether a process catches a signal, by the kernel's word (proc(5), SigCgt)."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("SigCgt:"):
                return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)


def _ended(process: subprocess.Popen[bytes], seconds: float) -> bool:
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    return process.poll() is not None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
