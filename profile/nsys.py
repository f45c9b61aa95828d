"""nsys around a worker: captures of a few iterations each, exported by nsys itself.

Leaves ``NAME.nsys-rep`` and ``NAME.sqlite`` in captures/, untouched. The command is

    nsys profile --trace=cuda,cudnn,cublas,osrt,nvtx --sample=none --cpuctxsw=none
        --capture-range=cudaProfilerApi --capture-range-end=stop --output=NAME WORKER JOBS
    nsys export --type=sqlite --output=NAME.sqlite NAME.nsys-rep

Where one worker does several captures, the end of a range is ``repeat:N``: nsys then writes
NAME.1, NAME.2, … in their order, all of them when the worker has ended (nsys 2025: the default
``defer``).

CPU sampling and context switches are off: they swell a capture and nothing here reads them. The
worker warms up before it starts the capture, so the capture holds the measured iterations only.
NSYS replaces or prefixes the command, e.g. ``NSYS='sudo env PATH=/opt/nsys/bin nsys'``; files that
root then owns are copied, so that they belong to the user.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core import machine
from ..core.capture_names import CaptureName
from ..core.cli.progress import progress
from ..core.errors import InputError, ToolMissing, one_line
from ..core.files import replacing
from ..core.own_ranges import PREFIX
from ..core.tool_commands import words
from ..engines.backend import Worker
from ..engines.launch import Serving

# Libraries and the system too, for the host side: they slow the host down, not the kernels.
TRACES = "cuda,cudnn,cublas,osrt,nvtx"
ON_DEVICE = "cuda,nvtx"  # of training, whose host is in question
MARK = f"{PREFIX}capture/"  # an NVTX mark: what a capture of several is of
INSTALL = "install Nsight Systems, or name it with NSYS=…"
# What nsys says when the machine does not let it trace, and what to do about it.
REFUSALS = {
    r"perf_event_paranoid": "set kernel.perf_event_paranoid to 2 or less",
    r"[Pp]ermission denied|not permitted": "run it as a user who may trace, e.g. NSYS='sudo nsys'",
    r"Unsupported driver|driver.{0,40}(too old|not supported)": "update the NVIDIA driver",
}


def command() -> list[str]:
    """The nsys command as the user has it; ToolMissing where there is none."""
    tool = words("NSYS", "nsys")
    if shutil.which(tool[0]) is None:
        raise ToolMissing(f"{tool[0]} is not on the PATH", fix=INSTALL)
    return tool


def missing() -> str | None:
    """Why nothing can be traced here, or None."""
    try:
        command()
    except ToolMissing as e:
        return e.what
    return None


def prefix(
    output: Path, count: int = 1, traces: str = TRACES, *, marked: bool = True,
    more: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """What goes before the worker's command. `output` without a suffix; of `count` captures where
    the program says what is captured (`marked`), else of all of it; `more` are further options."""
    ends = "stop" if count == 1 else f"repeat:{count}"
    window = ["--capture-range=cudaProfilerApi", f"--capture-range-end={ends}"]
    return [
        *command(),
        "profile",
        f"--trace={traces}",
        "--sample=none",
        "--cpuctxsw=none",
        *(window if marked else ()),
        *more,
        "--force-overwrite=true",
        f"--output={output}",
    ]


def export_command(report: Path, sqlite: Path, more: Sequence[str] = ()) -> list[str]:
    """nsys's own export of a report to SQLite."""
    return [
        *(*command(), "export", "--type=sqlite", "--force-overwrite=true"),
        *(f"--output={sqlite}", *more, str(report)),
    ]


class Captures:
    """One nsys around a worker that stays (`launch.Serving`) and does `count` captures, a job each.

    What it printed is in the error where nsys or the worker fails; no report is left then.
    """

    def __init__(self, worker: Worker, count: int = 1, traces: str = TRACES) -> None:
        self._stack = contextlib.ExitStack()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="layerline-"))
        self._stem = Path(folder, "capture")
        self.count, self.traces = count, traces
        under = prefix(self._stem, count, traces)
        self.worker = self._stack.enter_context(Serving(worker, under))

    def __enter__(self) -> Captures:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def call(self, job: Mapping[str, Any], what: str, timeout: float) -> dict[str, Any]:
        """Do one capture; gives the worker's answer, with the `command`, the `machine` before and
        after, and the `seconds` it took. `what` is shown while it runs."""
        before, clock = machine.state(), time.perf_counter()
        with progress(f"{what} under nsys"):
            answer = self.worker.call(job, timeout)
        states = {"before": before, "after": machine.state()}
        seconds = round(time.perf_counter() - clock, 3)
        how = prefix(Path("NAME"), self.count, self.traces)
        return {**answer, "command": how, "machine": states, "seconds": seconds}

    def reports(self, timeout: float) -> list[Path]:
        """Let the worker end and nsys write; the reports in the order of the captures, as many as
        jobs were done. They go when the block ends. ToolMissing where nsys wrote others."""
        printed = self.worker.finish(timeout)
        found = sorted(self._stem.parent.glob("capture*.nsys-rep"), key=_number)
        if len(found) != self.count:
            raise _unwritten(printed, f"{len(found)} of {self.count} reports")
        for report in found:
            own(report)
        return found


def _number(report: Path) -> int:
    """The number that nsys gave a report of several, NAME.2.nsys-rep; 0 without one."""
    number = report.name.split(".")[-2]
    return int(number) if number.isdecimal() else 0


def keep(report: Path, to: Path) -> None:
    """Copy a report to where it stays."""
    with replacing(to) as temporary:
        shutil.copyfile(report, temporary)


def mark(name: CaptureName) -> str:
    """What a capture holds, as an NVTX mark in it: the same on all ranks, which one nsys may have
    in one report."""
    return f"{MARK}{name.task}.{name.precision}"


def export(report: Path, sqlite: Path, mark: str | None = None, more: Sequence[str] = ()) -> None:
    """Export a report; `more` are further options. InputError with what nsys printed, where it
    fails, and where the capture has marks of Layerline's and `mark` is not among them: it is
    another one then."""
    with replacing(sqlite) as temporary:
        done = subprocess.run(
            export_command(report, temporary, more), capture_output=True, text=True, check=False
        )
        if done.returncode or not temporary.exists():
            raise InputError(
                f"nsys cannot export it: {_last_line(done.stdout + done.stderr)}", file=report
            )
        own(temporary)
        marks = set() if mark is None else _marks(temporary)
        if marks and mark not in marks:
            raise InputError(
                f"holds {', '.join(sorted(marks))}, not {mark}", file=report, fix="profile again"
            )


def _marks(sqlite: Path) -> set[str]:
    """Marks of captures in an export; none where it has no table of NVTX events."""
    with contextlib.closing(sqlite3.connect(f"file:{sqlite}?mode=ro", uri=True)) as database:
        try:
            rows = database.execute(
                "SELECT text FROM NVTX_EVENTS WHERE text LIKE ?1 UNION SELECT value FROM StringIds "
                "WHERE id IN (SELECT textId FROM NVTX_EVENTS) AND value LIKE ?1",
                (f"{MARK}%",),
            )
            return {text for (text,) in rows}
        except sqlite3.DatabaseError:
            return set()


def _unwritten(printed: str, found: str) -> ToolMissing:
    """Why reports are missing, with the remedy where tracing is forbidden."""
    for pattern, fix in REFUSALS.items():
        if re.search(pattern, printed):
            return ToolMissing(f"nsys may not trace here: {_last_line(printed)}", fix=fix)
    return ToolMissing(
        f"nsys wrote {found}: {_last_line(printed)}",
        fix="run `nsys status --environment` to see what it lacks",
    )


def own(path: Path) -> None:
    """Make a file the user's that a tool run as root left, by copying it."""
    if path.stat().st_uid == os.geteuid():
        return
    with replacing(path) as mine:
        shutil.copyfile(path, mine)


def _last_line(printed: str) -> str:
    lines = [line for line in printed.splitlines() if line.strip()]
    return one_line(lines[-1])[:300] if lines else "it said nothing"
