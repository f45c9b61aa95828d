"""Reporting a run: this code beside that of another commit, on the same captures, in turns.

    python tests/bench/bench_report.py COMMIT RUN [RUN ...] [--rounds 5] [--timeline]

COMMIT is checked out beside (git worktree), each side gets a copy of each run, and `layerline
report --force` (--timeline: `layerline timeline`) is started as a process of its own, one side
after the other, `rounds` times; compared are the medians of wall time, CPU time and peak memory of
the whole process, imports included. Then what both wrote is compared: tables row by row, the
timeline byte by byte, texts and JSON apart from dates and from the sums of files that have dates.
Ends with 1 where something differs.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from bench_nsys import Figures

ROOT = Path(__file__).parents[2]
PACKAGES = ("core", "export", "engines", "profile", "analysis")
TIMELINE = "timeline.perfetto-trace"
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?")
# How busy the machine was when the report was made.
_MACHINE = re.compile(r"(load_1min|memory_available_bytes)[^\d]*[\d.]+")
# Of a report that has a date of its own.
_SHA = re.compile(r'"[0-9a-f]{64}"')


def packages(tree: Path, folder: Path) -> Path:
    """A folder in which the packages of `tree` are `layerline`, as the environment's are."""
    below = folder / "layerline"
    below.mkdir(parents=True)
    for name in PACKAGES:
        (below / name).symlink_to(tree / name)
    return folder


def start(path: Path, run: Path, timeline: bool) -> Figures:
    """One report; SystemExit with its last line where it fails."""
    command = [sys.executable, "-P", "-m", "layerline.core.cli.command"]
    command += ["timeline", str(run)] if timeline else ["report", "--force", "--run", str(run)]
    log = path / "log"
    before = os.times()
    with log.open("wb") as out:
        here = {**os.environ, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"}
        # Compiled once, as an installation is.
        here = {**here, "PYTHONPYCACHEPREFIX": str(path / "cache"), "PYTHONDONTWRITEBYTECODE": ""}
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=here)
        _, status, usage = os.wait4(process.pid, 0)
    wall = os.times().elapsed - before.elapsed
    process.returncode = os.waitstatus_to_exitcode(status)
    # 1: written, with a check that did not hold.
    if process.returncode not in (0, 1):
        last = log.read_text(errors="replace").strip().splitlines()[-1:]
        raise SystemExit(f"{run}: exit code {process.returncode}: {last}")
    # Processes that it started and waited for are in its usage.
    return Figures(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def differences(one: Path, other: Path, timeline: bool) -> Iterator[str]:
    """The files that differ between two copies of a run, by name."""
    import pyarrow.parquet as pq

    folders = ("report",) if timeline else ("report", "tables")
    names = {
        p.relative_to(run).as_posix()
        for run in (one, other)
        for folder in folders
        for p in (run / folder).glob("*")
    }
    chosen = [n for n in names if n.endswith(TIMELINE)] if timeline else [*names, "run.json"]
    for name in sorted(chosen):
        a, b = one / name, other / name
        if not a.exists() or not b.exists():
            yield f"{name} (on one side only)"
        elif name.endswith(".parquet"):
            if not pq.read_table(a).equals(pq.read_table(b)):
                yield name
        elif name.endswith(TIMELINE):
            if a.read_bytes() != b.read_bytes():
                yield name
        elif _undated(a, one) != _undated(b, other):
            yield name


def _undated(path: Path, run: Path) -> str:
    text = _DATE.sub("DATE", path.read_text()).replace(str(run), "RUN")
    text = _MACHINE.sub("MACHINE", text)
    return _SHA.sub("SHA", text) if path.name == "run.json" else text


def show(name: str, figures: dict[str, list[Figures]]) -> None:
    """Medians of each side, and ratios to the first."""
    first, *_ = figures.values()
    for side, found in figures.items():
        text = f"{name:24s} {side:16s} n {len(found)}"
        for what, unit in (("wall", "s"), ("cpu", "s"), ("mib", "MiB")):
            value = statistics.median(getattr(f, what) for f in found)
            base = statistics.median(getattr(f, what) for f in first)
            text += f"  {what} {value:8.2f} {unit} ({value / base:5.2f} x)"
        print(text, flush=True)


def main() -> None:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commit")
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timeline", action="store_true")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {len(os.sched_getaffinity(0))} CPUs")
    wrong = []
    with tempfile.TemporaryDirectory(prefix="layerline-bench-") as made:
        folder = Path(made)
        git = ["git", "-C", str(ROOT), "worktree"]
        tree = folder / "tree"
        subprocess.run([*git, "add", "--detach", "--quiet", tree, options.commit], check=True)
        try:
            sides = {
                options.commit[:12]: packages(tree, folder / "before"),
                "this": packages(ROOT, folder / "after"),
            }
            for run in options.runs:
                wrong += measure(sides, run, options)
        finally:
            subprocess.run([*git, "remove", "--force", tree], check=True)
    for text in wrong:
        print(f"differs: {text}")
    raise SystemExit(1 if wrong else 0)


def measure(sides: dict[str, Path], run: Path, options: argparse.Namespace) -> list[str]:
    """Both sides on one run; what differs."""
    copies = {side: path / run.resolve().name for side, path in sides.items()}
    for copy in copies.values():
        shutil.copytree(run, copy, ignore=shutil.ignore_patterns("*.nsys-rep", "*.engine"))
    figures: dict[str, list[Figures]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side, path in sides.items():
            figures[side].append(start(path, copies[side], options.timeline))
    show(run.name, figures)
    one, other = copies.values()
    found = [f"{run.name}/{text}" for text in differences(one, other, options.timeline)]
    for copy in copies.values():
        shutil.rmtree(copy)
    return found


if __name__ == "__main__":
    main()
