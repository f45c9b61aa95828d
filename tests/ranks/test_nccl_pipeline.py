"""A pipeline of two ranks over NCCL: what sends and receives that were issued as a group are.

As torch 2.11 traces it: `batch_isend_irecv` leaves a `record_param_comms` for each send and each
receive, which launch nothing; the one kernel of all of them is launched within the range
``nccl:coalesced``, which has no arguments and is open until nobody holds its work. One step of 1F1B
with 3 micro-batches is written down here, in microseconds; every expected value is worked out from
these numbers by hand.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from joined import of_files

from layerline.analysis.model.ranks import Job
from layerline.analysis.report.ranks.answer import answer
from layerline.analysis.report.ranks.text import lines

# A forward takes 100 and a backward 200; a message, like the sum at the end, ends 10 after the last
# has begun. Rank 1 is 50 late with each forward. Device, then (start, end) of each.
ACTIONS = (
    {"0F0": (3, 103), "0F1": (103, 203), "0B0": (473, 673), "0F2": (673, 773), "0B1": (833, 1033),
     "0B2": (1193, 1393)},
    {"1F0": (163, 263), "1B0": (263, 463), "1F1": (523, 623), "1B1": (623, 823), "1F2": (883, 983),
     "1B2": (983, 1183)},
)  # fmt: skip
MESSAGES = (
    [("send", 103, 113), ("send recv", 203, 473), ("send recv", 773, 833), ("recv", 1033, 1193)],
    [("recv", 15, 113), ("send recv", 463, 473), ("send recv", 823, 833), ("send", 1183, 1193)],
)
SUMS = ((1393, 1403), (1193, 1403))
STEPS, PERIOD, AHEAD = 4, 1500, 40  # rank 1's clock is AHEAD
LAUNCH = 3  # from a call to its kernel
NAME = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
ELEMENTS = 4_194_304


def event(cat: str, name: str, start: int, end: int, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": start,
            "dur": end - start, "args": args}  # fmt: skip


def ran(
    name: str, call: int, start: int, end: int, stream: int, called: int | None = None, **args: Any
) -> list[dict[str, Any]]:
    """A kernel and its call."""
    called = start - LAUNCH if called is None else called
    return [
        event("cuda_runtime", "cudaLaunchKernelExC", called, called + 1, 1, correlation=call),
        event("kernel", name, start, end, stream, correlation=call, stream=stream, device=0,
              **args),
    ]  # fmt: skip


def asked(operation: str, moment: int, rank: int) -> dict[str, Any]:
    """The record of a send or a receive."""
    peer = {"Dst Rank" if operation == "send" else "Src Rank": 1 - rank}
    about = {
        "Collective name": operation, "In msg nelems": ELEMENTS, "Out msg nelems": ELEMENTS,
        "Group size": 2, "dtype": "BFloat16", "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1]",
    }  # fmt: skip
    return event("cpu_op", "record_param_comms", moment, moment + 1, 1, **about, **peer)


def waits(rank: int, base: int) -> list[dict[str, Any]]:
    """The host waits for its device before each call; before a forward of rank 1 until the last
    message is there, and then it is late."""
    forwards = {s for name, (s, _) in ACTIONS[rank].items() if rank == 1 and "F" in name}
    starts = {s for s, _ in ACTIONS[rank].values()} | {s for _, s, _ in MESSAGES[rank]}
    events, before = [], 6
    for start in sorted(starts | {SUMS[rank][0]}):
        until = start - LAUNCH - 7
        if start in forwards:
            until = max((e for _, _, e in MESSAGES[rank] if e < start), default=until)
        if until > before:
            events.append(event("cuda_runtime", "cudaStreamSynchronize", base + before,
                                base + until, 1))  # fmt: skip
        before = start + 3
    return [*events, event("cuda_runtime", "cudaDeviceSynchronize", base + before,
                           base + PERIOD - 8, 1)]  # fmt: skip


def trace(rank: int, named: bool) -> dict[str, Any]:
    """`named`: the actions say their stage, as torch's 1F1B does within our own ranges; else, as in
    its GPipe, they do not, and begin with the message before them."""
    events, call = [], 0
    for step in range(STEPS):
        base = 10_000 + PERIOD * step
        events.append(event("user_annotation", f"layerline/iteration/{step}", base,
                            base + PERIOD, 1))  # fmt: skip
        before = -1
        for action, (start, end) in ACTIONS[rank].items():
            word = {"F": "Forward", "B": "Backward"}[action[1]]
            text = f"PP:{action}" if named else f"{word} {action[2]}"
            asked_at = [
                m - LAUNCH - 6 for _, m, _ in MESSAGES[rank] if before < m - LAUNCH - 6 < start
            ]
            begins = start - LAUNCH if named else min([start - LAUNCH, *asked_at])
            events.append(event("user_annotation", text, base + begins, base + start - LAUNCH + 2,
                                1))  # fmt: skip
            before = start
            call += 1
            events += ran("gemm", 100 * step + call, base + start, base + end, 7)
        for operations, start, end in MESSAGES[rank]:
            called = base + start - LAUNCH
            for order, operation in enumerate(operations.split()):
                events.append(asked(operation, called - 6 + 2 * order, rank))
            # Held until the next action has begun.
            events.append(event("user_annotation", "nccl:coalesced", called - 1, called + 5, 1))
            call += 1
            events += ran(NAME, 100 * step + call, base + start, base + end, 17)
        start, end = (base + moment for moment in SUMS[rank])
        about = {"Collective name": "allreduce", "In msg nelems": 1, "Out msg nelems": 1,
                 "Group size": 2, "dtype": "Float", "Process Group Name": "0"}  # fmt: skip
        events.append(event("cpu_op", "record_param_comms", start - LAUNCH - 1, start - LAUNCH + 2,
                            1, **about))  # fmt: skip
        call += 1
        events += ran("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100 * step + call, start, end, 9)
        events += waits(rank, base)
    groups = [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]},
        # As DeviceMesh makes them: the pipeline's own is the default group.
        {"pg_name": str(1 + rank), "pg_desc": "mesh_dp", "ranks": [rank]},
        {"pg_name": str(3 + rank), "pg_desc": "mesh_tp", "ranks": [rank]},
    ]
    about = {"backend": "nccl", "rank": rank, "world_size": 2, "pg_config": groups}
    moved = [{**e, "ts": e["ts"] + AHEAD * rank} for e in events]
    return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": moved}


def job_of(folder: Path, named: bool = True) -> Job:
    paths = []
    for rank in (0, 1):
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(trace(rank, named)))
        paths.append(path)
    return of_files(paths)


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return job_of(tmp_path_factory.mktemp("pipeline"))


def rows(job: Job, rank: int, iteration: int = 1) -> list[dict[str, Any]]:
    return [r for r in job.collectives.to_pylist()
            if (r["rank"], r["iteration"]) == (rank, iteration)]  # fmt: skip


def test_every_message_of_a_group_has_its_partner_and_the_kernel_is_told_once(job: Job) -> None:
    every = job.collectives.to_pylist()
    assert {r["operation"] for r in every} == {"send", "recv", "all-reduce"}
    assert {r["matched_by"] for r in every} == {"order"}
    assert {r["group"] for r in every} == {"0:0-1"}
    # Operation, duration, wait, transfer and what of it is exposed; behind 0F1 the first is hidden.
    figures = [
        [tuple(r[k] if isinstance(r[k], str) or r[k] is None else r[k] // 1000
               for k in ("operation", "duration_ns", "wait_ns", "transfer_ns", "exposed_ns"))
         for r in rows(job, rank)]
        for rank in (0, 1)
    ]  # fmt: skip
    assert figures == [
        [
            ("send", 10, 0, 10, 0),
            ("send", 270, 260, 10, 270), ("recv", 270, 260, 10, None),
            ("send", 60, 50, 10, 60), ("recv", 60, 50, 10, None),
            ("recv", 160, 150, 10, 160), ("all-reduce", 10, 0, 10, 10),
        ],
        [
            ("recv", 98, 88, 10, 98),
            ("send", 10, 0, 10, 10), ("recv", 10, 0, 10, None),
            ("send", 10, 0, 10, 10), ("recv", 10, 0, 10, None),
            ("send", 10, 0, 10, 10), ("all-reduce", 210, 200, 10, 210),
        ],
    ]  # fmt: skip
    partners = [{r["instance"]: (r["operation"], r["peer"]) for r in rows(job, k)} for k in (0, 1)]
    assert set(partners[0]) == set(partners[1])
    opposite = {"send": "recv", "recv": "send", "all-reduce": "all-reduce"}
    assert all(partners[1][k][0] == opposite[o] for k, (o, _) in partners[0].items())


def test_what_is_exposed_adds_up_to_the_steps_wait_and_transfer(job: Job) -> None:
    for rank, exposed in ((0, 500_000), (1, 338_000)):
        assert sum(r["exposed_ns"] or 0 for r in rows(job, rank)) == exposed
        for step in job.ranks.to_pylist():
            if step["rank"] == rank:
                assert step["wait_ns"] + step["transfer_ns"] == exposed
                assert step["communication_ns"] == 0
    kinds = {k["operation"]: k for k in job.kinds.to_pylist()}
    assert {o: (k["per_step"], k["exposed_ns"]) for o, k in kinds.items()} == {
        "recv + send": (4, 175_000), "recv": (1, 129_000), "send": (1, 5_000),
        "all-reduce": (1, 110_000),
    }  # fmt: skip
    assert kinds["recv + send"]["bytes"] == 2 * ELEMENTS


def test_perfect_overlap_counts_the_wires_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are busy 1,200 and 10 of a step's 1,500, the rank itself 290."""
    both = [("send recv", 103, 1303)]
    monkeypatch.setitem(globals(), "ACTIONS", ({"0F0": (3, 103)}, {"1F0": (3, 103)}))
    monkeypatch.setitem(globals(), "MESSAGES", (both, both))
    monkeypatch.setitem(globals(), "SUMS", ((1393, 1403), (1393, 1403)))
    overlap = next(w for w in job_of(tmp_path).what_if if w.name == "perfect overlap")
    assert (overlap.step_ns, overlap.unchanged_ns) == (1_210_000, PERIOD * 1000)


def test_a_rank_that_is_late_for_a_group_did_something_meanwhile(job: Job) -> None:
    """Rank 0 waits 260, 50 and 150. Since the message before rank 1 did 300, 300 and 300, and was
    50 late, of which 3 are the launch; rank 0 did 90, 300 and 200."""
    assert job.straggler is not None
    assert (job.straggler.rank, job.straggler.wait_ns) == (1, 460_000)
    excess = {cause: ns for cause, ns in job.straggler.excess_ns.items() if ns}
    assert excess == {"compute": 310_000, "host": 141_000, "launch": 9_000}


@pytest.mark.parametrize("named", [True, False])
def test_the_bubble_is_held_against_the_ideal_of_the_group_that_talks(
    named: bool, tmp_path: Path
) -> None:
    """Though its group is called default_pg, and others have a rank each."""
    found = job_of(tmp_path, named).bubbles
    assert [(b.ranks, b.microbatches, b.stages) for b in found] == [
        (2, 3, (0,) if named else ()), (2, 3, (1,) if named else ()),
    ]  # fmt: skip
    # Each rank works 900; three messages of rank 0 and four of rank 1 are behind no action.
    assert [b.bubble_ns for b in found] == [(PERIOD - 930) * 1000, (PERIOD - 940) * 1000]
    assert {b.ideal for b in found} == {float(Fraction(1, 4))}
    # For as much work the ideal schedule leaves a third of it idle.
    assert [b.beyond_ns for b in found] == [570_000 - 310_000, 560_000 - 313_333]


def test_the_answer_holds_the_bubble_against_the_ideal(job: Job) -> None:
    """38.0 and 37.3 % of the two ranks."""
    said = (
        "The pipeline's bubble is 37.7 % of a step (mean of 2 ranks), 25.0 % by the ideal schedule."
    )
    assert answer(job).line.endswith(f" {said}")
    table = list(lines(job, answer(job)))
    assert ["1", "1", "37.3", "%", "153", "µs", "100", "µs", "307", "µs", "3", "25.0", "%", "247",
            "µs"] in [row.split() for row in table]  # fmt: skip
