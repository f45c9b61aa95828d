"""A real job on CPU ranks over gloo, one of which is slowed: named, with its cause."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from joined import of_files
from paths import TESTS

from layerline.analysis.report.ranks import answer as ranks_answer

pytest.importorskip("torch")
JOB = TESTS / "support/ranks/training_job.py"


def train(folder: Path, ranks: int, *options: str) -> list[Path]:
    """The traces of a job, by rank."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), str(JOB), str(folder), *options]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return sorted(folder.glob("*.json"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slow", "cause", "layout", "ranks"),
    [("matmul", "compute", "ddp", 4), ("data", "data", "fsdp", 2)],
)
def test_the_rank_that_was_slowed_is_named_with_its_cause(
    slow: str, cause: str, layout: str, ranks: int, tmp_path: Path
) -> None:
    paths = train(tmp_path, ranks, "--slow", slow, "--rank", "1", "--layout", layout)
    job = of_files(paths)
    assert (job.missing, job.world) == ([], ranks)
    rows = job.collectives.to_pylist()
    assert {r["matched_by"] for r in rows} == {"order"}
    assert all(r["instance"] is not None and r["bytes"] for r in rows)
    for row in job.ranks.to_pylist():
        assert sum(row[p] for p in ranks_answer.PART_COLUMNS) == row["duration_ns"]
        assert row["compute_ns"] > 0
    worst = ranks_answer.named(job)
    assert worst is not None
    assert (worst.rank, worst.cause) == (1, cause)
    if slow == "matmul":
        assert worst.work == "matmuls"
    if layout == "fsdp":
        # Four layers of 256 x 256 and a bias: gathered forward and backward, reduced once.
        part = (256 * 256 + 256) * 4 // ranks
        by_operation = {
            (m["module"], m["operation"]): (m["per_step"], m["bytes"])
            for m in job.modules.to_pylist()
        }
        assert by_operation["1", "reduce-scatter"] == (1, part)
        assert by_operation["1", "all-gather"][1] == part * by_operation["1", "all-gather"][0]
