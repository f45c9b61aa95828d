"""Starting a worker: the job in, the result out, its errors as ours, and no orphan left."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from ..core.files import full, read_json, write_json
from .backend import Worker

PROTOCOL = 1
WORKERS = Path(__file__).parent / "workers"
ERRORS: dict[int, type[LayerlineError]] = {1: CheckFailed, 2: InputError, 3: ToolMissing}
GRACE_SECONDS = 5.0
LOOK_SECONDS = 0.05  # between two looks at a worker that is at work
# What faulthandler prints of a crash: the innermost line of Python of the thread that crashed.
_CRASH = re.compile(
    r"Fatal Python error: (?P<what>[^\n]*)\n.*?Current thread [^\n]*\n(?P<place>[^\n]*)", re.DOTALL
)


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
        with stderr_path.open("wb") as stderr:
            code = _run(_started(command, worker, stderr), timeout)
        printed = _printed(stderr_path)
        return {**_result(command, result_path, code, printed, timeout), "printed": printed}


class Serving:
    """A worker that stays: it is started before it is needed and does one job after the other.

    It is given a FIFO instead of a job's file and reads the paths of jobs there, one a line, until
    that is closed. So its start, with all that it imports, can be awaited where nothing is
    measured. It starts with `start`, or with the first job; an error ends it, whatever the error
    leaves behind goes with it, and the next job starts it again.
    """

    def __init__(self, worker: Worker, prefix: Sequence[str] = ()) -> None:
        self._command = [*prefix, *worker.command]
        self._worker = worker
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count()
        self._ready: Path | None = None

    def __enter__(self) -> Serving:
        return self

    def __exit__(self, *error: object) -> None:
        self.end()

    def start(self, ready: Mapping[str, Any] | None = None) -> None:
        """Start it where it does not run, and give it `ready` to do, the answer to which nobody
        waits for: the next job's answer comes after it."""
        if self._process is not None:
            return
        self._folder = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="layerline-jobs-"))
        )
        jobs = self._folder / "jobs"
        os.mkfifo(jobs)
        # Both ways: opening it does not wait for the worker. It is closed to the worker's children.
        self._jobs = os.open(jobs, os.O_RDWR | os.O_CLOEXEC)
        self._stack.callback(os.close, self._jobs)
        with self.stderr.open("wb") as stderr:
            self._process = _started([*self._command, str(jobs)], self._worker, stderr)
        self._ready = None if ready is None else self._give(ready)

    @property
    def stderr(self) -> Path:
        """What it prints."""
        return self._folder / "stderr"

    def _give(self, job: Mapping[str, Any]) -> Path:
        number = next(self._numbers)
        path, result = (self._folder / f"{number}.{kind}.json" for kind in ("job", "result"))
        write_json(path, {**job, "protocol": PROTOCOL, "result": str(result)})
        os.write(self._jobs, f"{path}\n".encode())
        return result

    def call(self, job: Mapping[str, Any], timeout: float | None = None) -> dict[str, Any]:
        """Do one job, as `call` of this module does."""
        self.start()
        return self._answer(self._give(job), timeout)

    def ready(self, timeout: float | None = None) -> None:
        """Wait until it has done what `start` gave it. Errors as of `call`."""
        if self._process is not None and self._ready is not None:
            self._answer(self._ready, timeout)

    def _answer(self, result: Path, timeout: float | None) -> dict[str, Any]:
        assert self._process is not None
        until = None if timeout is None else time.monotonic() + timeout
        try:
            while not result.exists() and self._process.poll() is None:
                if until is not None and time.monotonic() > until:
                    break
                time.sleep(LOOK_SECONDS)
            code = self._process.poll()
            if result.exists():  # also one that was written just before the end
                code = 0
            printed = _printed(self.stderr)
            command = [*self._command, str(result)]
            return {**_result(command, result, code, printed, timeout), "printed": printed}
        except BaseException:
            self.end()
            raise

    def finish(self, timeout: float | None = None) -> str:
        """Let it end by itself after its last job, and wait; gives what it printed last."""
        if self._process is None:
            return ""
        os.write(self._jobs, b"\n")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout)
        printed = _printed(self.stderr)
        self.end()
        return printed

    def end(self) -> None:
        """End it where it runs, whatever it does."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            _end(process)
        self._stack.close()


def _printed(path: Path) -> str:
    """The end of what a worker printed; nothing where its folder is gone."""
    if not path.exists():
        return ""
    return path.read_bytes()[-4000:].decode(errors="replace")


def _started(command: Sequence[str], worker: Worker, stderr: Any) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **worker.environment}
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stderr,
            stderr=stderr,
            env={name: value for name, value in environment.items() if value is not None},
            start_new_session=True,
        )
    except OSError as e:
        raise ToolMissing(
            f"{command[0]}: cannot be started ({e.strerror or e})", fix="is it installed?"
        ) from None


def _run(process: subprocess.Popen[bytes], timeout: float | None) -> int | None:
    """The exit status; None when the time was over. Whatever happens, the process is gone."""
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
        if no_room := full(Path(tempfile.gettempdir())):
            raise no_room
        how = f"signal {-code}" if code < 0 else f"exit status {code}"
        raise InputError(f"{name} ended without a result ({how}): {_last_words(printed)}")
    result = read_json(path)
    if not isinstance(result, dict) or result.get("protocol") != PROTOCOL:
        raise InputError(f"{name} answered out of protocol {PROTOCOL}")
    if result.get("ok") is True:
        return result
    error = result["error"]
    raise ERRORS[error["exit_code"]](error["what"], file=error.get("file"), fix=error["fix"])


def _last_words(printed: str) -> str:
    """The last line of what a process printed; where Python's faulthandler said where it crashed,
    that, with the line before it."""
    crash = _CRASH.search(printed)
    before = printed if crash is None else printed[: crash.start()]
    lines = [line.strip() for line in before.splitlines() if line.strip()]
    if crash is None:
        return lines[-1] if lines else "it said nothing"
    return "; ".join([*lines[-1:], f"{crash['what']} in {crash['place'].strip()}"])


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
