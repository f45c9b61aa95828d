"""nsys around a worker: one capture of a few iterations, exported by nsys itself.

Leaves ``NAME.nsys-rep`` and ``NAME.sqlite`` in captures/, untouched. The command is

    nsys profile --trace=cuda,cudnn,cublas,osrt,nvtx --sample=none --cpuctxsw=none
        --capture-range=cudaProfilerApi --capture-range-end=stop --output=NAME WORKER JOB
    nsys export --type=sqlite --output=NAME.sqlite NAME.nsys-rep

CPU sampling and context switches are off: they swell a capture and nothing here reads them. The
worker warms up before it starts the capture, so the capture holds the measured iterations only.
NSYS replaces or prefixes the command, e.g. ``NSYS='sudo env PATH=/opt/nsys/bin nsys'``; files that
root then owns are copied, so that they belong to the user.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core import machine
from ..core.cli.progress import progress
from ..core.errors import InputError, ToolMissing, one_line
from ..core.files import replacing
from ..core.tool_commands import words
from ..engines import launch
from ..engines.backend import Worker

# Libraries and the system too, for the host side: they slow the host down, not the kernels.
TRACES = "cuda,cudnn,cublas,osrt,nvtx"
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


def prefix(output: Path) -> list[str]:
    """What goes before the worker's command. `output` without a suffix."""
    return [
        *command(),
        "profile",
        f"--trace={TRACES}",
        "--sample=none",
        "--cpuctxsw=none",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--force-overwrite=true",
        f"--output={output}",
    ]


def export_command(report: Path, sqlite: Path) -> list[str]:
    """nsys's own export of a report to SQLite."""
    return [
        *(*command(), "export", "--type=sqlite", "--force-overwrite=true"),
        *(f"--output={sqlite}", str(report)),
    ]


def capture(
    worker: Worker,
    job: Mapping[str, Any],
    report: Path,
    sqlite: Path,
    *,
    what: str,
    timeout: float,
) -> dict[str, Any]:
    """Run a worker's job under nsys and export the report; gives the worker's answer, with the
    `command` and the `machine` before and after.

    `what` is shown while it runs. LayerlineError where nsys or the worker fails; no report is left
    then.
    """
    before = machine.state()
    with replacing(report) as temporary, tempfile.TemporaryDirectory(prefix="layerline-") as folder:
        stem = Path(folder, "capture")
        with progress(f"{what} under nsys"):
            answer = launch.call(worker, job, prefix=prefix(stem), timeout=timeout)
        written = stem.with_suffix(".nsys-rep")
        check(written, answer["printed"])
        temporary.write_bytes(written.read_bytes())
    export(report, sqlite)
    states = {"before": before, "after": machine.state()}
    return {**answer, "command": prefix(Path("NAME")), "machine": states}


def export(report: Path, sqlite: Path) -> None:
    """Export a report. InputError with what nsys printed, where it fails."""
    with replacing(sqlite) as temporary:
        done = subprocess.run(
            export_command(report, temporary), capture_output=True, text=True, check=False
        )
        if done.returncode or not temporary.exists():
            raise InputError(
                f"nsys cannot export it: {_last_line(done.stdout + done.stderr)}", file=report
            )
        own(temporary)


def check(report: Path, printed: str) -> None:
    """Check that nsys wrote the report. ToolMissing with the remedy where tracing is forbidden."""
    if report.exists():
        own(report)
        return
    for pattern, fix in REFUSALS.items():
        if re.search(pattern, printed):
            raise ToolMissing(f"nsys may not trace here: {_last_line(printed)}", fix=fix)
    raise ToolMissing(
        f"nsys wrote no report: {_last_line(printed)}",
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
