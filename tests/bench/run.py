"""All benchmarks: Layerline beside other tools, both sides in one run, as one table.

    python tests/bench/run.py [--small] [--rounds 3] [--hta-python PYTHON] [--skip-nsys]

The files are grown from the captures in tests/data: a profiler trace of 500 MiB and an nsys
capture of 1,008,000 kernels (`--small`: a tenth). They need 1.5 GB in the temporary folder
(TMPDIR) and some minutes. A tool that is not installed is named and is no error; HTA may live in
another environment. Sides take turns; shown are medians of wall time and peak memory, and how
many runs they are of: peers that take minutes run once.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import bench_torch_trace  # noqa: E402
import grow_trace  # noqa: E402

MIB, KERNELS = 500, 1_008_000
SLOW_MIB = 200  # from here on HTA runs once
_LINE = re.compile(
    r"(?P<side>\S.*?)\s+wall\s+(?P<wall>[\d.]+) s .*peak\s+(?P<mib>\d+) MiB\s+n (?P<n>\d+)"
)


@dataclass(frozen=True)
class Side:
    """One tool on one file: median wall seconds, median peak MiB, number of runs."""

    what: str
    tool: str
    wall: float
    mib: float
    runs: int


def traces(options: argparse.Namespace, folder: Path) -> Iterator[Side]:
    """Loading a profiler trace into a table; imports not counted. Ours first."""
    mib = MIB // 10 if options.small else MIB
    trace = folder / "trace.json"
    grow_trace.grow(trace, mib)
    once = 1 if mib >= SLOW_MIB else None
    runs = bench_torch_trace.measure(trace, options.rounds, options.hta_python, once)
    what = f"torch trace, {trace.stat().st_size >> 20} MiB"
    trace.unlink()
    for name, median in bench_torch_trace.medians(runs).items():
        tool = str(runs[name][0]["version"])
        yield Side(what, tool, median["wall"], median["mb"], len(runs[name]))


def captures(options: argparse.Namespace) -> Iterator[Side]:
    """From an nsys capture to its layers; whole processes. Ours first."""
    kernels = KERNELS // 10 if options.small else KERNELS
    script = HERE / "bench_nsys.py"
    command = [sys.executable, str(script), "--kernels", str(kernels)]
    command += ["--rounds", str(options.rounds), *(["--skip-nsys"] if options.skip_nsys else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = [m for line in done.stdout.splitlines() if (m := _LINE.match(line))]
    if done.returncode or not found:
        raise SystemExit(f"{script.name} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    for m in found:
        what = f"nsys capture, {kernels:,} kernels"
        yield Side(what, m["side"], float(m["wall"]), float(m["mib"]), int(m["n"]))


def show(sides: list[Side]) -> None:
    """One row for each tool; ratios are theirs over ours."""
    ours = sides[0]
    for side in sides:
        ratio = f"{side.wall / ours.wall:7.2f} x {side.mib / ours.mib:7.2f} x"
        print(
            f"{side.what:32s} {side.tool:44s} {side.wall:8.2f} s {side.mib:7.0f} MiB "
            f"{'' if side is ours else ratio:>19s}  n {side.runs}",
            flush=True,
        )


def main() -> None:
    """Run all and print the table as it comes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tenth of the size")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta-python", default=sys.executable)
    parser.add_argument("--skip-nsys", action="store_true")
    options = parser.parse_args()
    cpus = len(os.sched_getaffinity(0))
    print(f"Python {sys.version.split()[0]}, {cpus} CPUs, load {os.getloadavg()[0]:.1f}")
    print(f"{'what':32s} {'tool':44s} {'wall':>10s} {'peak':>11s} {'time and memory':>19s}")
    missing = []
    with tempfile.TemporaryDirectory(prefix="layerline-bench-") as name:
        found = list(traces(options, Path(name)))
    show(found)
    if len(found) == 1:
        missing.append("HolisticTraceAnalysis (another environment: --hta-python)")
    found = list(captures(options))
    show(found)
    missing += [t for t in ("nsys", "nsys-ai") if not any(s.tool.split()[0] == t for s in found)]
    if missing:
        print(f"not measured, for it is not there or failed: {', '.join(missing)}")


if __name__ == "__main__":
    main()
