"""What kernels take longer beside communication: jobs of which that is planted, and by hand."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined import of_files
from nsys_build import Export
from rank_traces import LAUNCH, Plan, Truth, Work, make

from layerline.analysis.captures import rank_nsys, rank_partials
from layerline.analysis.model.ranks import PARTS, WORK, Job
from layerline.analysis.ranks import beside
from layerline.analysis.report.ranks import answer, page, text
from layerline.analysis.report.ranks import beside as beside_

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
# Kinds of work: name, grid and what a call takes alone, us. The last says no grid.
KINDS = (("elementwise", [8, 1, 1], 7), ("elementwise", [9, 1, 1], 11), ("norm", None, 5))
Extra = tuple[int, int, int, int, int, int]  # rank, step, collective, kind, alone, beside
ENOUGH = 3


@st.composite
def extras(draw: st.DrawFn) -> tuple[list[Extra], int, int]:
    """Calls of each kind, alone and beside, in what a rank does before a collective and beside it;
    and how many steps and by how much beside is longer, us."""
    steps = draw(st.integers(1, 3))
    at = st.tuples(
        st.integers(0, 1), st.integers(0, steps - 1), st.integers(0, 1), st.integers(0, 2),
        st.integers(0, 3), st.integers(0, 3),
    )  # fmt: skip
    return draw(st.lists(at, max_size=8)), steps, draw(st.integers(-4, 20))


def launched(rank: list[dict[str, Any]], step: int, kind: int, start: int, took: int) -> None:
    """A kernel on a stream of its own, launched by another thread at the step's beginning."""
    number, (name, grid, _) = 10_000 + len(rank), KINDS[kind]
    ranges = [e for e in rank if e["name"] == f"layerline/iteration/{step}"]
    shape = {} if grid is None else {"grid": grid, "block": [128, 1, 1]}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2,
            "ts": ranges[0]["ts"] + 1, "dur": 1, "args": {"correlation": number}}  # fmt: skip
    about = {"correlation": number, "stream": number, "device": 0, **shape}
    rank += [call, {**call, "cat": "kernel", "name": name, "tid": number, "ts": start, "dur": took,
                    "args": about}]  # fmt: skip


def planted(plan: Plan, those: Sequence[Extra], longer: int) -> tuple[Job, Truth]:
    """The job with these extra kernels. A call alone ends when the collective begins at the latest;
    one beside begins before it ends, be it by a microsecond."""
    traces, truth = make(plan)
    for rank, step, collective, kind, alone, beside_count in those:
        events, work = traces[rank]["traceEvents"], plan.work[step][collective][rank]
        begin, end = truth.start[rank, step, collective], truth.end[rank, step, collective]
        base = KINDS[kind][2]
        for k in range(alone):
            start = begin - base - k
            assert start >= begin - work.compute
            launched(events, plan.first_step + step, kind, start, base)
        for k in range(beside_count):
            # The first overlaps at its end alone.
            start = begin - (base + longer) + 1 if k == 0 else end - 1 - k - base - longer
            launched(events, plan.first_step + step, kind, start, base + longer)
    return of_traces(traces), truth


def of_traces(traces: Sequence[dict[str, Any]]) -> Job:
    with TemporaryDirectory() as folder:
        paths = []
        for r, trace in enumerate(traces):
            paths.append(Path(folder, f"job.rank{r}.json"))
            paths[-1].write_text(json.dumps(trace))
        return of_files(paths)


def even(steps: int) -> Plan:
    work = [[[Work(100) for _ in range(2)] for _ in range(2)] for _ in range(steps)]
    return Plan(work, [90, 80])


@settings(max_examples=40, deadline=None, report_multiple_bugs=False)
@given(extras())
def test_a_planted_slow_down_is_recovered_exactly(
    what: tuple[list[Extra], int, int],
) -> None:
    those, steps, longer = what
    plan = even(steps)
    job, _ = planted(plan, those, longer)
    alone: dict[tuple[int, int], int] = defaultdict(int)
    for rank, _step, _collective, kind, count, _beside in those:
        alone[rank, kind] += count
    for row in job.ranks.to_pylist():
        assert sum(row[f"{p}_ns"] for p in PARTS) == row["duration_ns"]
        step = row["iteration"] - plan.first_step
        mine = [e for e in those if e[:2] == (row["rank"], step)]
        every = {kind: sum(e[5] for e in mine if e[3] == kind) for kind in range(len(KINDS))}
        # Without modules only work of the same grid is the same.
        compared = {k: n for k, n in every.items()
                    if alone[row["rank"], k] >= ENOUGH and KINDS[k][1]}  # fmt: skip
        took = {k: 1000 * n * (KINDS[k][2] + longer) for k, n in every.items()}
        assert [row[name] for name in beside.COLUMNS] == [
            sum(every.values()),
            sum(took.values()),
            sum(compared.values()),
            sum(took[k] for k in compared),
            1000 * longer * sum(compared.values()) if any(compared.values()) else None,
        ]


def work(*rows: dict[str, Any]) -> pa.Table:
    usual = {"name": "gemm", "phase": "forward", "iteration": 1, "beside_count": 0, "beside_ns": 0}
    made = [{**usual, "alone": [], **row} for row in rows]
    return pa.Table.from_pylist(made, WORK)


def test_the_closest_work_that_ran_alone_often_enough_is_what_a_call_is_compared_with() -> None:
    table = work(
        {"module": "h.0.fc", "grid": "4", "alone": [10, 12]},
        {"module": "h.0.fc", "grid": "4", "alone": [30], "iteration": 2, "beside_count": 2,
         "beside_ns": 50},
        {"module": "h.1.fc", "grid": "4", "alone": [14], "beside_count": 1, "beside_ns": 40},
        {"module": "h.0.proj", "grid": "4", "alone": [100, 100, 100]},
        {"module": None, "grid": "4", "beside_count": 1, "beside_ns": 20},
        {"module": "h.2.fc", "grid": "5", "beside_count": 1, "beside_ns": 7},
        {"module": "h.1.fc", "grid": "4", "phase": "backward", "beside_count": 1, "beside_ns": 9},
    )  # fmt: skip
    # Of h.0.fc 10, 12, 30; of h.*.fc also 14; of any place with that grid also three times 100.
    expected = beside.alone_ns(table).tolist()
    assert expected[:3] == [12, 12, statistics.median([10, 12, 30, 14])]
    assert expected[3:5] == [100, statistics.median([10, 12, 30, 14, 100, 100, 100])]
    assert expected[5:] == pytest.approx([float("nan")] * 2, nan_ok=True)
    of = beside.by_step(table, [1, 2])
    assert list(of[1].values()) == [4, 76, 2, 60, (40 - 13) + (20 - 30)]
    assert list(of[2].values()) == [2, 50, 2, 50, 50 - 2 * 12]
    assert beside.by_step(table, [None])[None]["slowed_ns"] == 17 + 26


def test_unknown_places_and_shapes_are_no_same_work() -> None:
    some = {"alone": [10, 10, 10], "beside_count": 1, "beside_ns": 20}
    table = work({"module": None, "grid": None, **some})
    assert list(beside.by_step(table, [1])[1].values()) == [1, 20, 0, 0, None]
    named = work({"module": "fc", "grid": None, **some})
    assert beside.by_step(named, [1])[1]["slowed_ns"] == 10


def test_what_runs_only_beside_communication_costs_nobody_knows_what() -> None:
    job, _ = planted(even(2), [(0, s, 0, 0, 0, 3) for s in (0, 1)], 5)
    assert job.ranks["slowed_ns"].to_pylist() == [None] * 4
    [said] = [line for line in text.lines(job, answer.answer(job)) if "beside" in line]
    assert said == (
        "3 kernels ran beside communication, none of them also alone: what that costs is not known"
    )


def test_the_rank_that_it_costs_most_is_told_and_each_rank_on_the_page() -> None:
    job, _ = planted(even(2), [(1, 0, 0, 0, 3, 3), (1, 1, 1, 0, 0, 3), (0, 0, 0, 0, 3, 1)], 7)
    assert beside_.of_ranks(job)[1] == beside_.Slowed(3, 3, 21_000, 2.0)
    lines = list(text.lines(job, answer.answer(job)))
    assert "rank 1 computes 21.0 µs longer beside communication (2.00× over 3 kernels)" in lines
    shown = page.render(job, answer.answer(job), "job")
    assert "Rank 1 computes 21.0 µs longer beside communication" in shown
    assert "3.50 µs (2.00× over 0.5 kernels)" in shown


def test_what_a_rank_computes_beside_its_wait_is_no_excess_of_the_late_one() -> None:
    """The late rank computes 80 us more until the collective and its host is late for 60; the other
    computes those 80 us while it waits for 140."""
    plan = Plan([[[Work(100), Work(180, late=60)]]] * 3, [90])
    traces, truth = make(plan)
    for step in range(3):
        start = truth.start[0, step, 0]
        launched(traces[0]["traceEvents"], plan.first_step + step, 0, start, 80)
    worst = of_traces(traces).straggler
    assert worst is not None
    assert (worst.rank, worst.cause, worst.wait_ns) == (1, "host", 60_000)
    some = {cause: ns for cause, ns in worst.excess_ns.items() if ns}
    assert some == {"host": 1000 * (60 - LAUNCH), "launch": 1000 * LAUNCH}


def test_where_nothing_runs_on_a_device_nothing_is_told(tmp_path: Path) -> None:
    event = {"ph": "X", "pid": 1, "tid": 1, "cat": "cpu_op", "args": {}}
    trace = {"traceEvents": [{**event, "name": "aten::mm", "ts": 10, "dur": 5}]}
    path = tmp_path / "job.rank0.json"
    path.write_text(json.dumps(trace))
    [capture] = rank_partials.captures(path)
    assert capture.work.select(["beside_count", "beside_ns", "alone"]).to_pylist() == [
        {"beside_count": None, "beside_ns": None, "alone": None}
    ]
    job = of_files([path])
    assert {job.ranks[name].null_count for name in beside.COLUMNS} == {1}
    assert beside_.line(beside_.of_ranks(job)) is None


def test_a_report_of_nsys_tells_it_too_of_each_device_apart(tmp_path: Path) -> None:
    """One process on two GPUs: only what is on the first runs beside its communication."""
    export = Export()
    shape = {"gridX": 4, "gridY": 2, "gridZ": 1}
    for start in (1000, 2000, 3000):
        export.launch(start - 500, 100, name="gemm", start=start, **shape)
    export.launch(4000, 1000, name=NCCL, start=5000, streamId=20, **shape)
    export.launch(4100, 160, name="gemm", start=5200, **shape)
    export.launch(4200, 170, name="gemm", start=5400, deviceId=1, **shape)
    path = tmp_path / "job.rank0.sqlite"
    export.write(path)
    [capture] = rank_nsys.read(path)
    [row] = capture.work.to_pylist()
    figures = [row[name] for name in ("grid", "count", "beside_count", "beside_ns")]
    assert figures == ["4x2x1", 5, 1, 160]
    assert sorted(row["alone"]) == [100, 100, 100, 170]
    assert beside.by_step(capture.work, [None])[None]["slowed_ns"] == 60
