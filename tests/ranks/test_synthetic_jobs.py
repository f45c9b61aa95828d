"""Jobs of which everything is known: what was planted is recovered exactly."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from joined import of_files
from rank_traces import LAUNCH, LEAST, Plan, Truth, Work, write

from layerline.analysis.model.ranks import Job
from layerline.analysis.report.ranks import answer as ranks_answer
from layerline.analysis.report.ranks import page

PARTS = ranks_answer.PART_COLUMNS


def joined(plan: Plan) -> tuple[Job, Truth]:
    with TemporaryDirectory() as folder:
        paths, truth = write(Path(folder), plan)
        return of_files(paths), truth


def even(ranks: int = 3, steps: int = 3, collectives: int = 2, **more: object) -> Plan:
    """Every rank does the same."""
    work = [[[Work(100) for _ in range(ranks)] for _ in range(collectives)] for _ in range(steps)]
    return Plan(work, [40] * collectives, **more)


@st.composite
def plans(draw: st.DrawFn, *, slow_hosts: bool = False) -> Plan:
    ranks = draw(st.integers(2, 4))
    steps = draw(st.integers(1, 3))
    collectives = draw(st.integers(1, 3))
    times = st.integers(LEAST, 400)
    late = st.one_of(st.just(0), st.integers(LAUNCH + 1, 300))
    issue = st.integers(1, 200) if slow_hosts else st.just(1)
    work = [
        [
            [Work(draw(times), draw(late), issue=draw(issue)) for _ in range(ranks)]
            for _ in range(collectives)
        ]
        for _ in range(steps)
    ]
    return Plan(
        work,
        [draw(st.integers(LEAST, 200)) for _ in range(collectives)],
        ahead=[draw(st.integers(-(10**6), 10**6)) for _ in range(ranks)],
        numbered=draw(st.booleans()),
        base=draw(st.sampled_from([0, 1_700_000_000_000_000_000])),
        synchronised=slow_hosts and draw(st.booleans()),
    )


@settings(max_examples=40, deadline=None, report_multiple_bugs=False)
@given(plans())
def test_clocks_waits_transfers_and_sums_are_those_that_were_planted(plan: Plan) -> None:
    job, truth = joined(plan)
    for r, clock in job.clocks.items():
        apart = clock.offset - job.clocks[0].offset
        assert abs(apart - 1000 * (plan.ahead[r] - plan.ahead[0])) <= 1
        if len(plan.work) * len(plan.transfer) >= 3:
            assert clock.uncertainty == 0
    rows = job.collectives.to_pylist()
    assert len(rows) == plan.ranks * len(plan.work) * len(plan.transfer)
    seen: dict[int, list[int]] = {}
    for row in sorted(rows, key=lambda x: (x["rank"], x["start_ns"])):
        count = seen.setdefault(row["rank"], [0])
        s, c = divmod(count[0], len(plan.transfer))
        count[0] += 1
        start = truth.start[row["rank"], s, c]
        assert row["iteration"] == plan.first_step + s
        assert abs(row["wait_ns"] - 1000 * (truth.latest(s, c) - start)) <= 1
        assert abs(row["transfer_ns"] - 1000 * plan.transfer[c]) <= 1
        assert row["matched_by"] == ("sequence" if plan.numbered else "order")
        assert truth.start[row["late_rank"], s, c] == truth.latest(s, c)
    for row in job.ranks.to_pylist():
        assert sum(row[p] for p in PARTS) == row["duration_ns"]
        work = plan.work[row["iteration"] - plan.first_step]
        assert row["compute_ns"] == 1000 * sum(c[row["rank"]].compute for c in work)
        assert abs(row["transfer_ns"] - 1000 * sum(plan.transfer)) <= len(plan.transfer)
        late = [c[row["rank"]].late for c in work]
        assert row["idle_host_ns"] == 1000 * sum(x - LAUNCH for x in late if x)
        assert row["idle_launch_ns"] == 1000 * LAUNCH * sum(x > 0 for x in late)


@settings(max_examples=20, deadline=None, report_multiple_bugs=False)
@given(plans())
def test_a_replay_with_nothing_changed_and_the_critical_path_take_what_the_steps_took(
    plan: Plan,
) -> None:
    job, truth = joined(plan)
    lengths = [
        truth.end[0, s, len(plan.transfer) - 1] - (truth.end[0, s - 1, len(plan.transfer) - 1]
                                                   if s else 1_000_000)
        for s in range(len(plan.work))
    ]  # fmt: skip
    for assumed in job.what_if:
        rare = assumed.name == "no straggler" and not job.straggler.usual
        average = (statistics.mean if rare else statistics.median)(lengths)
        assert abs(assumed.unchanged_ns - 1000 * average) <= len(lengths)
        assert assumed.step_ns <= assumed.unchanged_ns + 1
    path = sum(job.path.values()) * len(plan.work)
    assert abs(path - 1000 * sum(lengths)) <= 20 * len(job.path)
    moved = sum(ns for (_, part), ns in job.path.items() if part == "transfer")
    assert abs(moved - 1000 * sum(plan.transfer)) <= 20


@settings(max_examples=40, deadline=None, report_multiple_bugs=False)
@given(plans(slow_hosts=True))
def test_with_slow_hosts_a_replay_with_nothing_changed_still_takes_what_the_steps_took(
    plan: Plan,
) -> None:
    job, _ = joined(plan)
    by_step: dict[int, list[int]] = {}
    for row in job.ranks.to_pylist():
        by_step.setdefault(row["iteration"], []).append(row["duration_ns"])
        assert 0 <= row["unready_ns"] <= row["wait_ns"]
    lengths = [statistics.mean(v) for v in by_step.values()]
    for assumed in job.what_if:
        rare = assumed.name == "no straggler" and not job.straggler.usual
        average = (statistics.mean if rare else statistics.median)(lengths)
        assert abs(assumed.unchanged_ns - average) <= 1
        assert assumed.step_ns <= assumed.unchanged_ns + 1
        for now, was in zip(assumed.by_step, lengths, strict=True):
            assert now <= was + 1


@pytest.mark.parametrize(
    ("field", "cause"), [("compute", "compute"), ("late", "host"), ("data", "data")]
)
def test_the_planted_cause_of_a_late_rank_is_named_and_its_cost_told(
    field: str, cause: str
) -> None:
    plan = even(ranks=4, steps=4)
    for step in plan.work:
        setattr(step[1][2], field, getattr(step[1][2], field) + 60)
    job, _ = joined(plan)
    worst = ranks_answer.named(job)
    assert worst is not None
    assert (worst.rank, worst.cause, worst.wait_ns) == (2, cause, 60_000)
    # A step is 2 x (100 + 40) and what was planted.
    assert worst.share == pytest.approx(60 / 340)
    assert job.waits == {(0, 2): 60_000, (1, 2): 60_000, (3, 2): 60_000}
    without = next(w for w in job.what_if if w.name == "no straggler")
    assert (without.step_ns, without.unchanged_ns) == (280_000, 340_000)
    free = next(w for w in job.what_if if w.name == "free communication")
    assert free.step_ns == 260_000


def slow_hosts(lag: int, collectives: int, steps: int = 3) -> Plan:
    """Hosts that take 100 for each kernel and collective; that of rank 1 begins a step later."""
    work = [
        [[Work(20, issue=100), Work(20, issue=100)] for _ in range(collectives)]
        for _ in range(steps)
    ]
    for step in work:
        step[0][1] = Work(20, issue=100 + lag // 2)
    return Plan(work, [20] * collectives, synchronised=True)


def test_a_wait_that_hides_the_own_host_is_not_the_late_ranks_fault() -> None:
    """Kind: tensor parallelism bound by launches, where one host is a little behind: its peer waits
    in every collective, and would wait for its own host in each without it."""
    job, truth = joined(slow_hosts(lag=60, collectives=5))
    waits = [truth.latest(s, c) - truth.start[0, s, c] for s in range(3) for c in range(5)]
    assert waits == [60] * 15
    assert job.waits == {(0, 1): 5 * 60_000}
    worst = job.straggler
    assert worst is not None
    # But for what lies between a call and its kernel.
    assert (worst.rank, worst.cause) == (1, "host")
    assert 60_000 <= worst.wait_ns <= 60_000 + 2 * 1000 * LAUNCH
    assert abs(worst.excess_ns["host"] - 60_000) <= 2 * 1000 * LAUNCH
    without = next(w for w in job.what_if if w.name == "no straggler")
    assert 60_000 - 2 * 1000 * LAUNCH <= without.unchanged_ns - without.step_ns <= 60_000
    unready = {(r["rank"], r["iteration"]): r["unready_ns"] for r in job.ranks.to_pylist()}
    assert {300_000 - v for (rank, _), v in unready.items() if rank == 0} == {worst.wait_ns}
    assert {v for (rank, _), v in unready.items() if rank == 1} == {0}
    said = ranks_answer.answer(job)
    assert (
        "In 78.7 % of the time in which ranks wait, their own hosts have nothing more" in said.line
    )


def test_without_steps_a_wait_that_hides_the_own_host_is_no_fault_either(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, slow_hosts(lag=60, collectives=5))
    for path in paths:
        trace = json.loads(path.read_text())
        events = trace["traceEvents"]
        trace["traceEvents"] = [e for e in events if "iteration" not in e["name"]]
        path.write_text(json.dumps(trace))
    worst = of_files(paths).straggler
    assert worst is not None
    assert worst.rank == 1
    assert 3 * 60_000 <= worst.wait_ns <= 3 * (60_000 + 2 * 1000 * LAUNCH)


def test_what_a_step_saves_and_the_next_ones_lose_is_not_saved_and_no_step_is_longer() -> None:
    """Kind: a rank is late in one step; while the others wait, their hosts get ahead. Without it
    they do not, and the steps after it take as long as the hosts do."""
    plan = slow_hosts(lag=0, collectives=2)
    plan.synchronised = False
    plan.work[0][0][1].compute = 600
    job, _ = joined(plan)
    by_step: dict[int, list[int]] = {}
    for row in job.ranks.to_pylist():
        by_step.setdefault(row["iteration"], []).append(row["duration_ns"])
    was = [statistics.mean(v) for v in by_step.values()]
    without = next(w for w in job.what_if if w.name == "no straggler")
    assert without.step_ns < without.unchanged_ns
    assert all(a <= b + 1 for a, b in zip(without.by_step, was, strict=True))
    # The hosts take as long for all steps together as they did, from 60 before the first begins.
    hosts = 3 * 2 * (2 * 100 + 3 + 8)
    assert sum(without.by_step) >= 1000 * (hosts - 60)


def test_where_no_call_is_recorded_what_a_wait_hides_of_the_host_is_unknown(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, slow_hosts(lag=60, collectives=5))
    for path in paths:
        trace = json.loads(path.read_text())
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e["cat"] != "cuda_runtime"]
        path.write_text(json.dumps(trace))
    job = of_files(paths)
    assert set(job.ranks["unready_ns"].to_pylist()) == {None}
    # Nor is the step of a communication known, so nobody can be blamed, nor cleared.
    said = ranks_answer.answer(job)
    share = 100 * 3 * 300_000 / sum(job.ranks["duration_ns"].to_pylist())
    assert (said.heading, said.stress) == (
        "Who makes the others wait is not known:",
        f"they wait {share:.1f} % of a step, and no call tells in which",
    )


def test_where_a_rank_marks_no_steps_no_wait_before_the_others_first_step_is_in_vain(
    tmp_path: Path,
) -> None:
    """All of a capture is then compared; the rank that marks steps is told for its steps alone."""
    paths, _ = write(tmp_path, slow_hosts(lag=60, collectives=5))
    for path, gone in zip(paths, (("iteration/5", "iteration/6"), ("iteration",)), strict=True):
        trace = json.loads(path.read_text())
        events = trace["traceEvents"]
        trace["traceEvents"] = [e for e in events if not any(g in e["name"] for g in gone)]
        path.write_text(json.dumps(trace))
    job = of_files(paths)
    marked = job.ranks.to_pylist()[0]
    assert 0 < marked["unready_ns"] <= marked["wait_ns"] == 300_000
    # What rank 1 costs is told of the whole capture: all that rank 0 waits and not in vain.
    assert job.straggler is not None
    assert job.straggler.wait_ns == 3 * 300_000 - marked["unready_ns"]


def test_a_wait_in_vain_is_told_of_the_step_in_which_the_rank_waited(tmp_path: Path) -> None:
    """Kind: one communication is of different steps on its ranks, as a send that is received in the
    next step. Here all that rank 1 does is one step further than what rank 0 does."""
    plan = slow_hosts(lag=0, collectives=5)
    plan.work[1][0][0].issue += 30
    paths, _ = write(tmp_path, plan)
    trace = paths[1].read_text()
    for step in (7, 6, 5):
        trace = trace.replace(f"iteration/{step}", f"iteration/{step + 1}")
    paths[1].write_text(trace)
    found = {(r["rank"], r["iteration"]): r for r in of_files(paths).ranks.to_pylist()}
    waited = {at: (r["wait_ns"], r["unready_ns"] > 0) for at, r in found.items()}
    assert waited == {
        (0, 6): (0, False), (0, 7): (0, False), (1, 6): (0, False), (1, 7): (300_000, True)
    }  # fmt: skip


def test_where_hosts_hold_up_their_devices_no_rank_is_blamed() -> None:
    job, _ = joined(slow_hosts(lag=30, collectives=20))
    assert ranks_answer.named(job) is None
    said = ranks_answer.answer(job)
    assert said.heading == "The ranks' hosts hold up their devices:"
    without_host = next(w for w in job.what_if if w.name == "free communication")
    # A device that is waited for by its own host gains nothing from links that take no time.
    assert without_host.unchanged_ns - without_host.step_ns <= 20_000


def test_the_work_that_takes_a_late_rank_longer_is_named_with_its_ratio() -> None:
    plan = even(ranks=3, steps=2)
    for step in plan.work:
        for collective in step:
            collective[1].compute = 150
    job, _ = joined(plan)
    answer = ranks_answer.answer(job)
    assert answer.line.startswith("Its matmuls take 1.50× the others' time.")


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    job, _ = joined(even(ranks=4, steps=1, collectives=1, elements=[1_000_000]))
    # all-reduce of 4 MB in 40 us on 4 ranks: 2 x 3/4 x 4e6 bytes / 40e-6 s
    assert job.collectives["bus_bandwidth"].to_pylist() == [pytest.approx(1.5e11)] * 4
    assert job.collectives["bytes"].to_pylist() == [4_000_000] * 4


def test_a_collective_whose_partner_is_lost_is_listed_and_the_others_keep_theirs() -> None:
    job, _ = joined(even(ranks=2, dropped=[(1, 1, 0)]))
    alone = [r for r in job.collectives.to_pylist() if r["instance"] is None]
    assert [(r["rank"], r["iteration"], r["wait_ns"]) for r in alone] == [(0, 6, None)]
    assert sum(r["matched_by"] == "sequence" for r in job.collectives.to_pylist()) == 10
    unknown = {(r["rank"], r["iteration"]): r["communication_ns"] for r in job.ranks.to_pylist()}
    assert unknown[0, 6] == 40_000
    assert unknown[0, 5] == 0


def test_without_numbers_a_step_in_which_ranks_differ_is_not_matched_at_all() -> None:
    job, _ = joined(even(ranks=2, dropped=[(1, 1, 0)], numbered=False))
    by_step = {r["iteration"]: r["matched_by"] for r in job.collectives.to_pylist()}
    assert by_step == {5: "order", 6: None, 7: "order"}
    assert any("step 6" in note and "rank 1 1" in note for note in job.notes)
    said = ranks_answer.answer(job)
    assert said.heading == "In 1 of 3 steps it is not known who waits for whom:"
    assert said.stress.endswith(" of all time is communication without a known partner")


def test_where_no_step_is_matched_the_share_is_of_a_step() -> None:
    job, _ = joined(even(ranks=2, dropped=[(1, step, 0) for step in range(3)], numbered=False))
    said = ranks_answer.answer(job)
    assert said.heading == "Who waits for whom is not known:"
    assert said.stress.endswith(" of a step is communication without a known partner")


def test_what_if_names_the_straggler_or_does_not_tell_of_it() -> None:
    def page_of(plan: Plan) -> str:
        job, _ = joined(plan)
        return page.render(job, ranks_answer.answer(job), "job")

    late = even(ranks=2)
    for step in late.work:
        step[0][1].compute = 200
    assert "<td>no straggler (rank 1)</td>" in page_of(late)
    one_after_the_other = even(ranks=2)
    for step in one_after_the_other.work:
        step[0][1].compute = step[1][0].compute = 200
    drawn = page_of(one_after_the_other)
    assert "No one rank holds up the others" in drawn
    assert "free communication" in drawn
    assert "no straggler" not in drawn


def test_a_rank_that_is_missing_is_named_and_waits_are_told_of_those_that_are_there(
    tmp_path: Path,
) -> None:
    paths, _ = write(tmp_path, even(ranks=3))
    job = of_files([paths[0], paths[2]])
    assert job.missing == [1]
    answer = ranks_answer.answer(job)
    assert answer.chips[0].text == "2 of 3 ranks: without rank 1"
    assert answer.chips[0].ok is False
    assert set(job.collectives["matched_by"].to_pylist()) == {"sequence"}


def test_idle_time_of_queued_work_is_dependency_and_not_the_hosts() -> None:
    plan = even(ranks=2, steps=1, collectives=1)
    plan.work[0][0][0].compute = 160
    with TemporaryDirectory() as folder:
        paths, _ = write(Path(folder), plan)
        trace = json.loads(paths[1].read_text())
        # The collective of rank 1 was launched before its kernel ended, and begins 10 us late.
        for event in trace["traceEvents"]:
            if event["name"].startswith("nccl"):
                event["ts"] += 10
                event["dur"] -= 10
        paths[1].write_text(json.dumps(trace))
        job = of_files(paths)
    row = next(r for r in job.ranks.to_pylist() if r["rank"] == 1)
    assert row["idle_dependency_ns"] == 10_000
    assert row["idle_host_ns"] == row["idle_launch_ns"] == 0
