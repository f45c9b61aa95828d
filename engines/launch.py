"""Starting a worker: the job in, the result out, its errors as ours, and no orphan left."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from ..core.files import read_json, write_json
from .backend import Worker

PROTOCOL = 1
ERRORS: dict[int, type[LayerlineError]] = {1: CheckFailed, 2: InputError, 3: ToolMissing}
GRACE_SECONDS = 5.0


def call(
    worker: Worker,
    job: Mapping[str, Any],
    *,
    prefix: Sequence[str] = (),
    timeout: float | None = None,
) -> dict[str, Any]:
    """Run one job and give its checked result, with the end of what was printed as `printed`.
    `prefix` is a tool to run the worker under.

    Raises what the worker reports as LayerlineError with its exit code; InputError also where it
    dies, hangs beyond `timeout` seconds, or answers out of protocol.
    """
    with tempfile.TemporaryDirectory(prefix="layerline-job-") as folder:
        job_path, result_path = Path(folder, "job.json"), Path(folder, "result.json")
        write_json(job_path, {**job, "protocol": PROTOCOL, "result": str(result_path)})
        stderr_path = Path(folder, "stderr")
        command = [*prefix, *worker.command, str(job_path)]
        environment = {**os.environ, **worker.environment}
        kept = {name: value for name, value in environment.items() if value is not None}
        with stderr_path.open("wb") as stderr:
            code = _run(command, kept, stderr, timeout)
        printed = stderr_path.read_bytes()[-4000:].decode(errors="replace")
        return {**_result(command, result_path, code, printed, timeout), "printed": printed}


def _run(
    command: Sequence[str], environment: Mapping[str, str], stderr: Any, timeout: float | None
) -> int | None:
    """The exit status; None when the time was over. Whatever happens, the process is gone."""
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env=environment,
            start_new_session=True,
        )
    except OSError as e:
        raise ToolMissing(
            f"{command[0]}: cannot be started ({e.strerror or e})", fix="is it installed?"
        ) from None
    try:
        return process.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the worker and what it started: it leads a session of its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _result(
    command: Sequence[str], path: Path, code: int | None, printed: str, timeout: float | None
) -> dict[str, Any]:
    name = Path(command[-2]).name
    if code is None:
        raise InputError(f"{name} did not end within {timeout:g} s", fix="ask for less")
    if not path.exists():
        if code == -signal.SIGKILL:
            raise InputError(
                f"{name} was killed, most likely for want of memory",
                fix="use a smaller model, batch or sequence",
            )
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        lines = [line.strip() for line in printed.splitlines() if line.strip()] or [
            "it said nothing"
        ]
        raise InputError(f"{name} ended without a result ({how}): {lines[-1]}")
    result = read_json(path)
    if not isinstance(result, dict) or result.get("protocol") != PROTOCOL:
        raise InputError(f"{name} answered out of protocol {PROTOCOL}")
    if result.get("ok") is True:
        return result
    error = result["error"]
    raise ERRORS[error["exit_code"]](error["what"], file=error.get("file"), fix=error["fix"])


def shell_line(command: Sequence[str], job: Mapping[str, Any] | None = None) -> str:
    """A command as a line for a shell; its job, one more argument, is shown below it."""
    if job is None:
        return shlex.join(command)
    whole = {"protocol": PROTOCOL, **job, "result": "RESULT.json"}
    return f"{shlex.join(command)} JOB.json\n    JOB.json: {json.dumps(whole)}"


def job(
    task: str,
    engine: Path,
    inputs: Path,
    precision: str,
    *,
    threads: int,
    options: Mapping[str, Any],
    raw: Path | None = None,
    plan: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A job of protocol 1; `plan` has warmup, iterations, target and seconds for measurements."""
    return {
        "task": task,
        "engine": str(engine),
        "inputs": str(inputs),
        "precision": precision,
        "threads": threads,
        "raw": None if raw is None else str(raw),
        "options": dict(options),
        **(plan or exactly(1)),
    }


def exactly(iterations: int, warmup: int = 0) -> dict[str, Any]:
    """A job's plan of so many iterations, however precise they are."""
    limits = {"min": iterations, "max": iterations}
    return {"warmup": warmup, "iterations": limits, "target": 1.0, "seconds": 60}
