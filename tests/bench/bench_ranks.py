"""The ranks of a job explained: `layerline ranks` beside HolisticTraceAnalysis, in turns.

    python tests/bench/bench_ranks.py [--ranks 8] [--mib 20] [--rounds 3] [--hta-python PYTHON]

The job is grown from two real ranks (`data/h200_ranks/fsdp`): each of `--ranks` has the step of one
of these again and again, `--mib` MiB of JSON a rank. Layerline's side is the whole command, tables
and page too; HTA's reads the traces and makes its temporal breakdown and its overlap of computation
and communication. Each run is a process of its own; told are its seconds, imports too, and the
memory of its largest process. HTA may live in another environment (--hta-python); without it only
Layerline runs.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_torch_trace import has_hta
from grow_trace import MIB, written

from layerline.core.own_ranges import ITERATION

SOURCES = sorted((Path(__file__).parents[1] / "data/h200_ranks/fsdp").glob("*.trace.json.gz"))
OURS = "from layerline.core.cli.command import main; main()"
HTA = """
import json, logging, sys
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
of = TraceAnalysis(trace_dir=sys.argv[1])
parts = of.get_temporal_breakdown(visualize=False)
of.get_comm_comp_overlap(visualize=False)
print(json.dumps(parts.sort_values("rank").to_dict("records")[0], default=float))
"""
# Runs a program, and tells its seconds and the memory of the largest of its processes.
WATCHED = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True)
wall = time.perf_counter() - began
mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
print(json.dumps({"wall": wall, "mb": mb, "code": done.returncode, "out": done.stdout[-4000:]}))
"""


def job(folder: Path, ranks: int, mib: int) -> int:
    """Write the traces of a job of so many ranks; gives their bytes."""
    total = 0
    for rank in range(ranks):
        source = SOURCES[rank % len(SOURCES)]
        with gzip.open(source, "rt", encoding="utf-8") as f:
            trace = json.load(f)
        path = folder / f"rank{rank}.json"
        written(path, _of_rank(trace, rank, ranks), mib, _of_copy)
        total += path.stat().st_size
    return total


def _of_rank(trace: dict[str, Any], rank: int, ranks: int) -> dict[str, Any]:
    """The trace as that of a rank of a job of `ranks`, all in one group."""
    everyone = list(range(ranks))
    head = trace["distributedInfo"] | {"rank": rank, "world_size": ranks}
    head["pg_config"] = [g | {"pg_size": ranks, "ranks": everyone} for g in head["pg_config"]]
    for event in trace["traceEvents"]:
        if "Group size" in (args := event.get("args", {})):
            args |= {"Group size": ranks, "Process Group Ranks": str(everyone)}
            if "Rank" in args:
                args["Rank"] = rank
    return trace | {"distributedInfo": head}


def _of_copy(event: dict[str, Any], copy: int) -> dict[str, Any]:
    """The event in a later step."""
    if found := re.fullmatch(rf"{ITERATION}(\d+)", str(event.get("name"))):
        event["name"] = f"{ITERATION}{int(found[1]) + copy}"
    return event


def run(python: str, program: str, *arguments: str) -> dict[str, Any]:
    """One run; its figures."""
    command = [sys.executable, "-c", WATCHED, python, "-P", "-c", program, *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, Any] = json.loads(done.stdout)
    if figures["code"]:
        raise SystemExit(f"{python} ended with {figures['code']}: {figures['out'][-300:]}")
    return figures


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--mib", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta-python", default=sys.executable)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        traces, out = Path(name, "traces"), Path(name, "out")
        traces.mkdir()
        size = job(traces, options.ranks, options.mib)
        print(f"{options.ranks} ranks, {size / MIB:.0f} MiB of traces")
        sides = {"layerline": (sys.executable, OURS, "ranks", str(traces), "-q", "-o", str(out))}
        if has_hta(options.hta_python):
            sides["HTA"] = (options.hta_python, HTA, str(traces))
        else:
            print("HTA is not installed (pip install HolisticTraceAnalysis): skipped")
        runs: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
        for _ in range(options.rounds):
            for side, command in sides.items():
                runs[side].append(run(*command))
        table = pq.read_table(out / "ranks.parquet")
    middle = {}
    for side, each in runs.items():
        middle[side] = {k: statistics.median(f[k] for f in each) for k in ("wall", "mb")}
        walls = " ".join(f"{f['wall']:.1f}" for f in each)
        print(f"{side}: {middle[side]['wall']:.1f} s ({walls}), {middle[side]['mb']:.0f} MiB")
    first = table.filter(pc.equal(table["rank"], 0))
    compute = pc.sum(first["compute_ns"]).as_py() / 1e6
    print(f"compute of rank 0: layerline {compute:.1f} ms in {len(first)} steps", end="")
    if "HTA" in middle:
        theirs = json.loads(runs["HTA"][0]["out"].strip().splitlines()[-1])
        print(f", HTA {theirs['compute_time(us)'] / 1e3:.1f} ms")
        ratio = {k: middle["HTA"][k] / middle["layerline"][k] for k in ("wall", "mb")}
        print(f"HTA over layerline: {ratio['wall']:.1f} x seconds, {ratio['mb']:.1f} x memory")
    else:
        print()


if __name__ == "__main__":
    main()
