"""A gate of jobs with several ranks: each rank is judged, and the one that is slower is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rank_traces
from rank_traces import Plan, Work
from run_by_hand import outcome

from layerline.core.files import write_json

US = 1_000
STEP, COMPUTE, TRANSFER = 900, 300, 100


def job(path: Path, slower: int = 0, more: int = 0, ranks: int = 2) -> Path:
    """A run; on rank 1 each compute takes `slower` microseconds more, on all ranks `more`."""
    of_rank = [Work(COMPUTE + more + (slower if r == 1 else 0)) for r in range(ranks)]
    plan = Plan(work=[[of_rank, of_rank]] * 3, transfer=[TRANSFER, TRANSFER])
    (path / "captures").mkdir(parents=True)
    traces, _ = rank_traces.write(path / "captures", plan)
    for rank, trace in enumerate(traces):
        stem = f"train.fp32.rank{rank:04d}"
        trace.rename(path / f"captures/{stem}.trace.json")
        samples = [(STEP + 2 * (more + slower)) * US] * 8
        write_json(path / f"captures/{stem}.latency.json", {"latency_ns": samples})
        meta = {"device": "cuda", "gpu": "H100", "global_batch": 2 * ranks, "ranks": ranks}
        write_json(path / f"captures/{stem}.meta.json", meta)
    return path


def runs(at: Path, **how: int) -> list[Path]:
    """Three runs, each a microsecond from the next."""
    return [job(at / str(i), more=i, **how) for i in range(3)]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    file = tmp_path / "base.json"
    assert outcome("gate", "--save", file, *runs(tmp_path / "a")) == 0
    return file


def test_the_same_job_again_is_not_slower(base: Path, tmp_path: Path, capsys: Any) -> None:
    assert outcome("gate", base, *runs(tmp_path / "b")) == 0
    out = capsys.readouterr().out
    assert "eager/fp32/step/rank0000" in out and "eager/fp32/step/rank0001" in out


def test_the_rank_that_computes_more_is_named_though_all_steps_grow(
    base: Path, tmp_path: Path, capsys: Any
) -> None:
    new = runs(tmp_path / "b", slower=60)
    assert outcome("gate", base, *new, "-o", tmp_path / "x.md") == 1
    rows = [r for r in (tmp_path / "x.md").read_text().splitlines() if r.endswith("| slower |")]
    assert [r.split("|")[1].strip() for r in rows if "compute" in r] == [
        "eager/fp32/step/rank0001 kind compute"
    ]
    assert sum("latency" in r for r in rows) == 2
    # By itself, without the steps that it makes wait.
    capsys.readouterr()
    assert outcome("gate", base, *new, "--side", "eager/fp32/step/rank0000") == 1
    assert "kind compute" not in capsys.readouterr().out


def test_a_rank_that_is_gone_and_another_number_of_ranks_are_said(
    base: Path, tmp_path: Path, capsys: Any
) -> None:
    assert outcome("gate", base, *runs(tmp_path / "b", ranks=1)) == 1
    out = capsys.readouterr().out
    assert "rank0001: the baseline has it and the new side does not" in out
    assert "ranks 2 → 1" in out


def test_one_job_each_cannot_be_told_and_says_what_would_tell(tmp_path: Path, capsys: Any) -> None:
    assert outcome("gate", job(tmp_path / "a"), job(tmp_path / "b")) == 4
    out = capsys.readouterr().out
    assert "to do: name several runs of each" in out and "--processes" not in out
