"""Is the rank that was slowed named, with its cause? A tiny Llama on CPU ranks over gloo, by
`layerline train`, again and again, a delay planted in one rank: in its matrix products, then in
its data (`support/ranks/planted`)::

    python tests/bench/bench_straggler.py [--what data] [--runs 10] [--ranks 4] [--seconds 0.1]

Printed for each run: who is named and why; how much of a step the others wait for it; how far the
replay with nothing changed is from the steps as they were. Exit 1 unless all are right, and all
replays within 1 %.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "support/ranks"))

from joined import of_files  # noqa: E402

from layerline.analysis.model.ranks import Job  # noqa: E402
from layerline.analysis.report.ranks.answer import named  # noqa: E402

CAUSES = {"matmul": "compute", "data": "data"}
WITHIN = 0.01


def train(run: Path, ranks: int, plant: str) -> list[Path]:
    """The traces of a job with a delay planted in it."""
    command = [
        *(sys.executable, "-P", "-m", "layerline.core.cli.command", "train", "llama"),
        *("--model", "tiny", "--device", "cpu", "--nproc", str(ranks), "--run", str(run)),
        *("--profile", "torch", "--steps", "6"),
    ]
    environment = {**os.environ, "PLANT": plant, "PYTHONPATH": str(TESTS / "support/ranks/planted")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return sorted(run.glob("captures/*.trace.json.gz"))


def replayed(job: Job) -> float:
    """How far the median step of the replay with nothing changed is from that of the capture."""
    by_step = defaultdict(list)
    for row in job.ranks.to_pylist():
        by_step[row["iteration"]].append(row["duration_ns"])
    recorded = median(fmean(of) for of in by_step.values())
    return max(abs(w.unchanged_ns / recorded - 1) for w in job.what_if)


def main(given: argparse.Namespace, folder: Path) -> int:
    """Print a line a run; gives the exit status."""
    wrong = 0
    for what in given.what.split(","):
        right = 0
        for number in range(given.runs):
            slow = number % given.ranks
            job = of_files(train(folder / "run", given.ranks, f"{what}:{slow}:{given.seconds}"))
            shutil.rmtree(folder / "run")
            worst, apart = named(job), replayed(job)
            good = worst is not None and (worst.rank, worst.cause) == (slow, CAUSES[what])
            right += good
            wrong += not (good and apart <= WITHIN)
            found = "nobody" if worst is None else f"rank {worst.rank}, {worst.cause}"
            share = 0.0 if worst is None else worst.share
            sys.stdout.write(
                f"{what} of rank {slow}: {found}{'' if good else ' WRONG'}, {share:.1%} of"
                f" {job.step_ns / 1e6:.0f} ms; replay {apart:.4%} apart;"
                f" load {os.getloadavg()[0]:.1f}\n"
            )
            sys.stdout.flush()
        sys.stdout.write(f"{what}: {right} of {given.runs}\n")
    return int(wrong > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--what", default=",".join(CAUSES))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.1, help="of a step")
    with tempfile.TemporaryDirectory() as made:
        sys.exit(main(parser.parse_args(), Path(made)))
