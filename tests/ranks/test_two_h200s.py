"""Two ranks as they ran on two H200s: sequence parallel by both tools, the tiny Llama under FSDP.

What they must come to was worked out by tests/data/make_h200_ranks.py, which imports nothing of
Layerline: it asks of every piece of a step what ran in it.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pandas as pd
import pytest
from joined import of_captures
from paths import DATA

from layerline.analysis.captures import rank_partials
from layerline.analysis.model.ranks import PARTS, Job, RankCapture
from layerline.analysis.report.ranks import answer, text
from layerline.core.kernel_names import function_name

H200 = DATA / "h200_ranks"
ALL = [("exchange", "torch"), ("exchange", "nsys"), ("fsdp", "torch")]


@dataclass(frozen=True)
class Told:
    """What Layerline tells of a folder by a tool, and what was worked out apart."""

    captures: Sequence[RankCapture]
    job: Job
    steps: pd.DataFrame
    collectives: pd.DataFrame
    kernels: pd.DataFrame


def files(folder: str, tool: str, to: Path) -> list[Path]:
    """The captures of a folder by a tool, as the machine left them."""
    packed = "trace.json.gz" if tool == "torch" else "sql.gz"
    made = []
    for path in sorted((H200 / folder).glob(f"*.{packed}")):
        if tool == "torch":
            made.append(Path(shutil.copy(path, to)))
            continue
        made.append(to / path.name.replace(".sql.gz", ".sqlite"))
        with sqlite3.connect(made[-1]) as db:
            db.executescript(gzip.decompress(path.read_bytes()).decode())
        db.close()
    return made


def told(folder: str, tool: str, to: Path) -> Told:
    captures = [c for p in files(folder, tool, to) for c in rank_partials.captures(p)]
    names = ("steps", "collectives", "kernels")
    apart = [pd.read_csv(H200 / folder / f"{tool}.{name}.csv") for name in names]
    return Told(captures, of_captures(captures), *apart)


@pytest.fixture(scope="module", params=ALL, ids="-".join)
def each(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    folder, tool = request.param
    return told(folder, tool, tmp_path_factory.mktemp(f"{folder}-{tool}"))


def test_every_step_consists_of_what_was_worked_out(each: Told) -> None:
    rows = each.job.ranks.to_pandas().set_index(["rank", "iteration"])
    apart = each.steps.set_index(["rank", "step"])
    assert list(rows.index) == list(apart.index)
    names = [f"{part}_ns" for part in PARTS]
    assert (rows[names].sum(axis=1) == rows["duration_ns"]).all()
    for name in ("duration_ns", *names):
        expected = apart[name] if name in apart else 0 * apart["duration_ns"]
        assert list(rows[name]) == list(expected), name


def test_every_collective_waits_transfers_and_is_as_fast_as_was_worked_out(each: Told) -> None:
    rows = each.job.collectives.to_pandas().sort_values(["rank", "instance"])
    rows["number"] = rows.groupby("rank").cumcount()
    rows = rows.set_index(["number", "rank"]).sort_index()
    apart = each.collectives.set_index(["number", "rank"]).sort_index()
    assert list(rows.index) == list(apart.index)
    for name in ("operation", "bytes", "duration_ns", "wait_ns", "transfer_ns", "exposed_ns"):
        assert list(rows[name]) == list(apart[name]), name
    assert list(rows["late_rank"]) == list(apart["late_rank"])
    if each.captures[0].identity.tool == "nsys":
        # How many ranks a communicator has is not in a capture that began after it was made.
        assert rows["bus_bandwidth"].isna().all()
    else:
        # The transfer is rounded to a nanosecond there, and is some microseconds.
        assert list(rows["bus_bandwidth"] / 1e9) == pytest.approx(
            list(apart["bus_gb_s"]), rel=1e-3, abs=1e-3
        )


def test_every_kernel_takes_alone_and_beside_nccl_what_was_worked_out(each: Told) -> None:
    rows = []
    for capture in each.captures:
        work = capture.work.to_pandas()
        rows += [
            (capture.rank, function_name(w["name"]), w["count"], w["total_ns"], len(w["alone"]),
             sum(w["alone"]), w["beside_count"], w["beside_ns"])
            for w in work.to_dict("records")
        ]  # fmt: skip
    names = ["rank", "name", "calls", "ns", "alone", "alone_ns", "beside", "beside_ns"]
    found = pd.DataFrame(rows, columns=names).groupby(["rank", "name"]).sum().reset_index()
    assert found[names[:6]].to_dict("records") == each.kernels.to_dict("records")
    assert (found["alone"] + found["beside"] == found["calls"]).all()
    assert (found["alone_ns"] + found["beside_ns"] == found["ns"]).all()
    of_steps = each.job.ranks.to_pandas().groupby("rank")
    beside = each.kernels.assign(beside=each.kernels["calls"] - each.kernels["alone"])
    assert list(of_steps["beside_kernels"].sum()) == list(beside.groupby("rank")["beside"].sum())


def test_the_programs_own_clock_and_both_tools_tell_the_same_of_the_products(
    tmp_path: Path,
) -> None:
    """Of the exchange's 18 iterations by CUDA events, and of six under each tool: within 2 %."""
    for tool in ("torch", "nsys"):
        for capture in told("exchange", tool, tmp_path).captures:
            meta = H200 / f"exchange/train.bf16.rank{capture.rank:04d}@host1.meta.json"
            seconds = json.loads(meta.read_text())["seconds"]
            work = capture.work.to_pandas().groupby(["module", "iteration"])["total_ns"].sum()
            for name in ("matmul_1", "matmul_2"):
                own = median(seconds[name]) * 1e9
                assert work[name].median() == pytest.approx(own, rel=0.02), (tool, name)


def worked(trace: Path) -> float:
    """ns from a step's begin until its host waits for the device for the last time, without what it
    waited before: how long the host takes by itself."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    step = next(e for e in events if e["name"].startswith("layerline/iteration/"))
    until = step["ts"] + step["dur"]
    waits = sorted(
        (e["ts"], e["dur"])
        for e in events
        if e["name"].endswith("Synchronize") and step["ts"] <= e["ts"] < until
    )
    return 1000 * (waits[-1][0] - step["ts"] - sum(length for _, length in waits[:-1]))


def test_the_rank_whose_host_is_late_is_named_first(tmp_path: Path) -> None:
    """Of the tiny Llama, whose hosts are slow: rank 1 waits 79 % of a step in collectives, but its
    own host takes 55 ms of 73, so rank 0 costs no more than the rest."""
    found = told("fsdp", "torch", tmp_path)
    job = found.job
    own = worked(next(p for p in files("fsdp", "torch", tmp_path) if "rank0001" in p.name))
    step = found.steps["duration_ns"].mean()
    waited = found.steps["wait_ns"].sum() / step
    assert waited > 0.78
    assert job.straggler is not None
    assert (job.straggler.rank, job.straggler.cause) == (0, "host")
    assert job.straggler.share == pytest.approx(1 - own / step, abs=0.01)
    without = next(w for w in job.what_if if w.name == "no straggler")
    assert without.step_ns == pytest.approx(own, rel=0.03)
    in_vain = job.ranks.to_pandas()["unready_ns"].sum() / step
    assert in_vain == pytest.approx(waited - job.straggler.share, abs=0.001)
    lines = list(text.lines(job, answer.answer(job)))
    assert lines[0] == "Rank 0 makes the others wait 24.3 % of a step"
    assert lines[1].startswith("Its host takes ")
