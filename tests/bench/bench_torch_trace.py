"""Reading a profiler trace: Layerline beside HolisticTraceAnalysis, on the same file, in turns.

    python tests/bench/bench_torch_trace.py TRACE.json[.gz] [--rounds 3] [--hta-python PYTHON]

Both are started as processes of their own, one after the other, `rounds` times; what is compared
is the median of the time from the call to the loaded tables (imports not counted) and of the
peak memory. HTA may live in another environment (--hta-python); without it only Layerline runs.
HTA wants a folder of one trace per rank and a distributedInfo: a copy with one is made beside.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

OURS = """
import resource, sys, time, json
from pathlib import Path
from importlib.metadata import version
from layerline.analysis.readers.torch import trace
cpu, wall = time.process_time(), time.perf_counter()
rows = len(trace.read(Path(sys.argv[1])).main)
print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
    "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "rows": rows,
    "version": "layerline, msgspec " + version("msgspec")}))
"""
HTA = """
import logging, resource, sys, time, json
from importlib.metadata import version
logging.disable(logging.CRITICAL)
from hta.common.trace import Trace
cpu, wall = time.process_time(), time.perf_counter()
trace = Trace(trace_files={0: sys.argv[1]}, trace_dir="")
trace.parse_traces(use_multiprocessing=False)
trace.align_and_filter_trace()
rows = len(trace.get_trace(0))
print(json.dumps({"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu,
    "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, "rows": rows,
    "version": "HolisticTraceAnalysis " + version("HolisticTraceAnalysis")}))
"""


def run(python: str, program: str, trace: Path) -> dict[str, float | str]:
    """One run in a process of its own; its figures."""
    done = subprocess.run(
        [python, "-P", "-c", program, str(trace)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{python}: {done.stderr.strip().splitlines()[-1:]}")
    figures: dict[str, float | str] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def has_hta(python: str) -> bool:
    """Whether this interpreter has HTA."""
    done = subprocess.run([python, "-c", "import hta"], capture_output=True, check=False)
    return done.returncode == 0


def with_rank(trace: Path, folder: Path) -> Path:
    """A copy that HTA takes: an object that begins with distributedInfo."""
    copy = folder / "rank0.json"
    with trace.open("rb") as source, copy.open("wb") as out:
        head = source.read(1 << 20)
        if b"distributedInfo" not in head and head.lstrip().startswith(b"{"):
            out.write(b'{"distributedInfo": {"rank": 0},')
            head = head.lstrip()[1:]
        out.write(head)
        while block := source.read(1 << 20):
            out.write(block)
    return copy


def measure(
    trace: Path, rounds: int, hta_python: str, hta_rounds: int | None = None
) -> dict[str, list[dict[str, float | str]]]:
    """The figures of every run of "layerline" and, where it is installed, "HTA"."""
    with tempfile.TemporaryDirectory(dir=trace.resolve().parent) as folder:
        programs = {"layerline": (sys.executable, OURS, rounds)}
        if has_hta(hta_python):
            programs["HTA"] = (hta_python, HTA, rounds if hta_rounds is None else hta_rounds)
            trace = with_rank(trace, Path(folder))
        runs: dict[str, list[dict[str, float | str]]] = {name: [] for name in programs}
        for number in range(rounds):
            for name, (python, program, most) in programs.items():
                if number < most:
                    runs[name].append(run(python, program, trace))
    return runs


def medians(runs: dict[str, list[dict[str, float | str]]]) -> dict[str, dict[str, float]]:
    """Median of wall and CPU seconds and of peak MiB, by side."""
    return {
        name: {k: statistics.median(float(f[k]) for f in found) for k in ("wall", "cpu", "mb")}
        for name, found in runs.items()
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta-python", default=sys.executable)
    options = parser.parse_args()
    runs = measure(options.trace, options.rounds, options.hta_python)
    found = medians(runs)
    print(f"{options.trace} {options.trace.stat().st_size >> 20} MiB")
    for name, m in found.items():
        walls = " ".join(f"{float(f['wall']):.1f}" for f in runs[name])
        print(
            f"{name}: {m['wall']:.2f} s wall ({walls}), {m['cpu']:.2f} s CPU, {m['mb']:.0f} MiB, "
            f"{runs[name][0]['rows']} rows; {runs[name][0]['version']}"
        )
    if "HTA" in found:
        ratio = {k: found["HTA"][k] / found["layerline"][k] for k in ("wall", "cpu", "mb")}
        print(
            f"HTA over layerline: {ratio['wall']:.1f} x wall, {ratio['cpu']:.1f} x CPU, "
            f"{ratio['mb']:.1f} x memory"
        )
    else:
        print("HTA is not installed (pip install HolisticTraceAnalysis): skipped")


if __name__ == "__main__":
    main()
