"""Jobs on a real Slurm of two nodes, from sbatch to what they leave."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import slurm
from paths import ROOT

from layerline.core.capture_names import CaptureName

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(slurm.missing() is not None, reason=slurm.missing() or ""),
]
LAYERLINE = [sys.executable, "-P", "-m", "layerline.core.cli.command"]
PROGRAM = ROOT / "tests/support/ranks/rank_program.py"


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with slurm.cluster() as variables:
        yield variables


def submitted(environment: dict[str, str], folder: Path, *arguments: object) -> str:
    """Submit a job; gives its number."""
    command = [*LAYERLINE, "job", "slurm", "--submit", *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()[-1]


def log_of(folder: Path, job: str) -> str:
    found = list((folder / "logs").glob(f"*_{job}.out"))
    return found[0].read_text() if found else ""


def ended(
    environment: dict[str, str], folder: Path, job: str, *, restarts: int = 0, seconds: float = 240
) -> str:
    """Wait until a job has started again so many times and is over; gives what it printed.

    One that waits to start again is told to, after the seconds that a node takes to clear away what
    ran before: started in the same second, it fails without a word. It is CANCELLED before it
    waits, so its script must have said that it runs before a state is believed.
    """
    end, waits = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        started = log_of(folder, job).count(f"job {job} on ")
        said = subprocess.run(
            ["scontrol", "show", "job", job], env=environment, capture_output=True, text=True
        ).stdout
        waits += "Reason=BeginTime" in said
        if waits > 10:
            subprocess.run(["scontrol", "update", f"JobId={job}", "StartTime=now"], env=environment)
        states = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")
        if started > restarts and any(f"JobState={state}" in said for state in states):
            return log_of(folder, job)
        time.sleep(0.5)
    raise AssertionError(f"job {job} is not over:\n{said}\n{log_of(folder, job)}")


def test_two_nodes_train_and_leave_a_trace_of_each_rank(environment, tmp_path):
    name = "a name; with $(touch planted) `touch planted` 'all'"
    job = submitted(
        environment, tmp_path, "--nodes", 2, "--name", name, "--run", "runs/x", "train",
        "--profile", "torch", "--", sys.executable, "-P", PROGRAM, "well",
    )  # fmt: skip
    printed = ended(environment, tmp_path, job)
    assert "rank 0 of 2 is done" in printed
    assert "rank 1 of 2 is done" in printed
    captures = sorted((tmp_path / "runs/x/captures").iterdir())
    names = [CaptureName.parse(path) for path in captures if path.name.endswith(".trace.json.gz")]
    # torchrun numbers its nodes as they stand in the alphabet and came, not as Slurm does.
    assert [n.rank for n in names] == [0, 1]
    assert {n.host for n in names} == {"node1", "node2"}
    assert not list(tmp_path.rglob("planted"))
    assert (tmp_path / "runs/x/report/ranks.html").exists(), printed


def test_the_command_of_the_readme_leaves_a_page(environment, tmp_path):
    job = submitted(
        environment, tmp_path, "--nodes", 2, "--per-node", 1, "--run", "runs/many", "train",
        "llama", "--profile", "torch",
    )  # fmt: skip
    printed = ended(environment, tmp_path, job)
    assert "llama: --model tiny, the default without a GPU" in printed
    assert (tmp_path / "runs/many/report/ranks.html").exists(), printed


def test_a_rank_that_dies_is_named_and_ends_the_job_on_the_other_node(environment, tmp_path):
    job = submitted(
        environment, tmp_path, "--nodes", 2, "--no-report", "train", "--profile", "torch",
        "--", sys.executable, "-P", PROGRAM, "killed",
    )  # fmt: skip
    printed = ended(environment, tmp_path, job)
    assert re.search(r"rank 1 of 2 \(host node[12], process \d+\) was killed \(SIGKILL\)", printed)
    assert "is done" not in printed


def test_a_job_that_failed_goes_on_from_its_checkpoint(environment, tmp_path):
    program = ROOT / "tests/support/ranks/resuming_program.py"
    job = submitted(
        environment, tmp_path, "--auto-resume", 1, "--no-report", "train", "--",
        sys.executable, "-P", program, tmp_path,
    )  # fmt: skip
    printed = ended(environment, tmp_path, job, restarts=1)
    begun = [line.rpartition(" ")[2] for line in printed.splitlines() if "begins at" in line]
    assert begun == ["0", "2"]
    assert printed.rstrip().endswith("done")


def test_the_time_that_is_nearly_over_puts_a_job_back(environment, tmp_path):
    waits = ["bash", "-c", 'echo "restart ${SLURM_RESTART_COUNT:-0}"; '
             '[ "${SLURM_RESTART_COUNT:-0}" = 1 ] || sleep 600']  # fmt: skip
    job = submitted(
        environment, tmp_path, "--auto-resume", 1, "--no-report", "--time", 2, "--warning", 100,
        "train", "--", *waits,
    )  # fmt: skip
    printed = ended(environment, tmp_path, job, restarts=1)
    assert "the time is nearly over: back into the queue (restart 1 of 1)" in printed
    assert "0: restart 1" in printed
