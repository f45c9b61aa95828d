"""Reading an nsys capture to its layers: Layerline beside other ways, on the same file, in turns.

    python tests/bench/bench_nsys.py [CAPTURE.sqlite] [--nodes nodes.json] [--kernels 1000000]
                                     [--rounds 3] [--nsys NSYS] [--nsys-ai NSYS_AI] [--skip-nsys]

Every side is a process of its own, started one after the other, `rounds` times; compared are the
medians of wall time, CPU time and peak memory of the whole process (imports included):

- layerline: `layerline layers CAPTURE --nodes ...`, read, attributed, resolved, written;
- columns: the columns that this needs, read as they are through ADBC's SQLite driver, no more;
- nsys: `nsys stats`, its report of ranges projected onto the GPU (if nsys is found);
- nsys-ai: its map of ranges and kernels (if it is found).

Without CAPTURE the project's own H100 capture is repeated until it has `kernels` kernels.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "nsys"
SHIFTED = (
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "NVTX_EVENTS",
)
COLUMNS = """
import sys
import adbc_driver_sqlite.dbapi as adbc
queries = (
    'select start, "end", correlationId, globalPid from CUPTI_ACTIVITY_KIND_KERNEL',
    "select start, correlationId, globalTid, nameId from CUPTI_ACTIVITY_KIND_RUNTIME",
    'select start, "end", eventType, globalTid, endGlobalTid, textId, domainId from NVTX_EVENTS',
)
with adbc.connect(f"file:{sys.argv[1]}?mode=ro") as connection, connection.cursor() as cursor:
    for query in queries:
        cursor.execute(query)
        cursor.fetch_arrow_table()
"""


@dataclass(frozen=True)
class Figures:
    """One run: seconds of wall and CPU time, peak memory in MiB."""

    wall: float
    cpu: float
    mib: float


def run(command: list[str], folder: Path) -> Figures:
    """Run a command in a process of its own; SystemExit with its last line where it fails."""
    log = folder / "log"
    with log.open("wb") as out:
        begin = time.perf_counter()
        here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])}
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=here
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise SystemExit(f"{command[0]}: exit code {process.returncode}: {last}")
    return Figures(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def grow(source: Path, target: Path, kernels: int) -> None:
    """Repeat a capture, each copy later and with correlation ids of its own."""
    shutil.copyfile(source, target)
    db = sqlite3.connect(target)
    db.executescript("pragma journal_mode = off; pragma synchronous = off")
    have = {r[0] for r in db.execute("select name from sqlite_master where type = 'table'")}
    tables = [t for t in SHIFTED if t in have]
    bounds = [db.execute(f'select min(start), max("end") from {t}').fetchone() for t in tables]
    span = max(b[1] for b in bounds) - min(b[0] for b in bounds) + 1000
    ids = 1 + max(
        db.execute(f"select max(correlationId) from {t}").fetchone()[0]
        for t in tables
        if t != "NVTX_EVENTS"
    )
    times = max(1, kernels // db.execute(f"select count(*) from {SHIFTED[0]}").fetchone()[0])
    for table in tables:
        names = [r[1] for r in db.execute(f"pragma table_info({table})")]
        step = {"start": span, "end": span, "correlationId": ids}
        shown = [f'"{n}" + k.n * {step[n]}' if n in step else f'"{n}"' for n in names]
        # Each copy follows the one before, as a longer capture would be written.
        db.execute(
            f"insert into {table} with recursive k(n) as (select 1 union all select n + 1 from k "
            f"where n + 1 < {times}) select {', '.join(shown)} from k cross join "
            f"(select * from {table}) where {times} > 1"
        )
    db.commit()
    db.close()


def nsys_report(nsys: str) -> str | None:
    """The report of this nsys that maps kernels to ranges (2022.4 has the last only)."""
    done = subprocess.run([nsys, "stats", "--help-reports"], capture_output=True, text=True)
    text = done.stdout + done.stderr
    names = ("nvtx_gpu_proj_sum", "nvtx_gpu_proj_trace", "nvtx_kern_sum", "nvtxkernsum")
    return next((n for n in names if n in text), None)


def sides(arguments: argparse.Namespace, capture: Path, nodes: Path) -> dict[str, list[str]]:
    """The commands to compare, by what they are called."""
    python = sys.executable
    adbc = importlib.metadata.version("adbc-driver-sqlite")
    layers = [python, "-m", "layerline.core.cli.command", "--quiet", "layers"]
    out = str(capture.with_name("layers.parquet"))
    found = {
        "layerline": [*layers, str(capture), "--nodes", str(nodes), "-o", out],
        f"columns (ADBC {adbc})": [python, "-P", "-c", COLUMNS, str(capture)],
    }
    nsys = arguments.nsys or shutil.which("nsys")
    report = nsys_report(nsys) if nsys and not arguments.skip_nsys else None
    if nsys and report:
        text = subprocess.run([nsys, "--version"], capture_output=True, text=True).stdout
        number = re.search(r"\d+\.\d+\.\d+", text)
        command = [nsys, "stats", "--report", report, "--format", "csv", str(capture)]
        found[f"nsys {number.group() if number else '?'} {report}"] = command
    nsys_ai = arguments.nsys_ai or shutil.which("nsys-ai")
    if nsys_ai:
        found["nsys-ai"] = [nsys_ai, "skill", "run", "nvtx_kernel_map", str(capture)]
    return found


def main() -> None:
    """Run all sides in turns and show the medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("capture", type=Path, nargs="?")
    parser.add_argument("--nodes", type=Path, default=DATA / "h100_tensorrt86.nodes.json")
    parser.add_argument("--kernels", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nsys")
    parser.add_argument("--nsys-ai")
    parser.add_argument("--skip-nsys", action="store_true")
    arguments = parser.parse_args()
    show = sys.stdout.write
    with tempfile.TemporaryDirectory(prefix="layerline-bench-") as name:
        folder = Path(name)
        capture = folder / "capture.sqlite"
        if arguments.capture is None:
            grow(DATA / "h100_tensorrt86_fp16.sqlite", capture, arguments.kernels)
        else:
            # Other tools may write into what they read or beside it: give them a copy.
            shutil.copyfile(arguments.capture, capture)
        commands = sides(arguments, capture, arguments.nodes.resolve())
        figures: dict[str, list[Figures]] = {}
        for number in range(arguments.rounds):
            for side, command in commands.items():
                # The slow ones once: minutes, and not what the noise is about.
                if number and side.startswith("nsys"):
                    continue
                try:
                    figures.setdefault(side, []).append(run(command, folder))
                except SystemExit as e:
                    show(f"{side}: failed: {e}\n")
        size = capture.stat().st_size >> 20
        show(f"{size} MiB, Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}, ")
        show(f"{len(os.sched_getaffinity(0))} CPUs, load {os.getloadavg()[0]:.1f}\n")
        base = figures["layerline"]
        for side, runs in figures.items():
            medians = [
                statistics.median(getattr(r, f) for r in runs) for f in ("wall", "cpu", "mib")
            ]
            ratio = medians[0] / statistics.median(r.wall for r in base)
            share = medians[1] / statistics.median(r.cpu for r in base)
            show(
                f"{side:40s} wall {medians[0]:8.2f} s ({ratio:6.2f} x)  cpu {medians[1]:8.2f} s "
                f"({share:6.2f} x)  peak {medians[2]:7.0f} MiB  n {len(runs)}\n"
            )


if __name__ == "__main__":
    main()
