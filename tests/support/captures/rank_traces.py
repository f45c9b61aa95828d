"""Profiler traces of a job that never ran, of which everything is known: who began when, by which
clock, how long each transfer took.

On every rank, per step: for each collective the host may be late (`late`, and of it `data` within a
loader's range), a kernel computes, then the collective's kernel runs from the rank's arrival to the
common end. All times are whole microseconds on one true clock; each trace is by its rank's own.
The host is ahead of the device where it is not late: it asks for one thing after the other, each
after `issue`, and waits for its device before it is late, and at the end of a step where the plan
says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LAUNCH = 3  # from a call to its kernel, where the device is idle
LEAST = 40
FIRST = 1_000_000


@dataclass
class Work:
    """What a rank does before a collective, in microseconds."""

    compute: int
    late: int = 0
    data: int = 0
    issue: int = 1  # what the host takes before it asks for the kernel, and for the collective


@dataclass
class Plan:
    """`work[step][collective][rank]`, `transfer[collective]` and `elements[collective]`; how far
    each rank's clock is ahead; rows to leave out (rank, step, collective); `numbered`: whether the
    collectives have sequence numbers; `synchronised`: hosts wait at the end of each step."""

    work: Sequence[Sequence[Sequence[Work]]]
    transfer: Sequence[int]
    elements: Sequence[int] = ()
    ahead: Sequence[int] = ()
    dropped: Sequence[tuple[int, int, int]] = ()
    numbered: bool = True
    base: int = 0
    first_step: int = 5
    synchronised: bool = False

    @property
    def ranks(self) -> int:
        return len(self.work[0][0])


@dataclass
class Truth:
    """Per (rank, step, collective): start and end, microseconds on the true clock."""

    start: dict[tuple[int, int, int], int] = field(default_factory=dict)
    end: dict[tuple[int, int, int], int] = field(default_factory=dict)

    def latest(self, step: int, collective: int) -> int:
        return max(v for (_, s, c), v in self.start.items() if (s, c) == (step, collective))


def make(plan: Plan) -> tuple[list[dict[str, Any]], Truth]:
    """The trace of each rank, and what is true."""
    truth = Truth()
    events: list[list[dict[str, Any]]] = [[] for _ in range(plan.ranks)]
    now = [FIRST] * plan.ranks
    calls = [1] * plan.ranks
    # A step begins when its range does, and what was launched before has ended.
    hosts = [FIRST - 60] * plan.ranks
    at = [*hosts]  # of each host
    for r in range(plan.ranks):
        events[r] += _kernel("warm", 1, FIRST - 95, FIRST - 90, 90, 7)
    number = 0
    for s, step in enumerate(plan.work):
        for c, work in enumerate(step):
            number += 1
            for r, mine in enumerate(work):
                at[r] += mine.issue
                start = max(now[r], at[r] + LAUNCH) + mine.late + mine.data
                if mine.data:
                    events[r].append(_range("layerline/phase/data", now[r], mine.data))
                calls[r] += 1
                idle = mine.late + mine.data > 0
                if idle and now[r] > at[r]:
                    events[r].append(_sync(at[r], now[r]))
                called = start - LAUNCH if idle else at[r]
                at[r] = called + mine.issue + 3
                events[r] += _kernel("gemm", calls[r], called, start, mine.compute, 7)
                truth.start[r, s, c] = max(start + mine.compute, at[r] + LAUNCH)
            end = truth.latest(s, c) + plan.transfer[c]
            for r in range(plan.ranks):
                truth.end[r, s, c] = end
                now[r] = end
                if (r, s, c) in plan.dropped:
                    continue
                calls[r] += 1
                start, called = truth.start[r, s, c], at[r]
                at[r] += 8
                about = _arguments(plan, c, number)
                events[r].append(_event("cpu_op", "record_param_comms", called - 1, 8, 1, about))
                args = {k: v for k, v in about.items() if k != "Seq"}
                name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
                events[r] += _kernel(name, calls[r], called, start, end - start, 20, args)
        for r in range(plan.ranks):
            if plan.synchronised:
                events[r].append(_sync(at[r], now[r] + 1))
                at[r] = now[r] + 1
            name = f"layerline/iteration/{plan.first_step + s}"
            events[r].append(_range(name, hosts[r], at[r] - hosts[r]))
            hosts[r] = at[r]
    return [_trace(plan, r, mine) for r, mine in enumerate(events)], truth


def write(folder: Path, plan: Plan) -> tuple[list[Path], Truth]:
    """The traces as files."""
    traces, truth = make(plan)
    paths = []
    for r, trace in enumerate(traces):
        path = folder / f"job.rank{r}.json"
        path.write_text(json.dumps(trace))
        paths.append(path)
    return paths, truth


def _arguments(plan: Plan, c: int, number: int) -> dict[str, Any]:
    count = plan.elements[c] if plan.elements else 1000
    about = {
        "Collective name": "allreduce", "In msg nelems": count, "Out msg nelems": count,
        "Group size": plan.ranks, "dtype": "Float", "Process Group Name": "0",
        "Process Group Description": "default_pg",
    }  # fmt: skip
    return about | ({"Seq": number} if plan.numbered else {})


def _event(
    cat: str, name: str, ts: int, dur: int, tid: int, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur,
            "args": args or {}}  # fmt: skip


def _sync(start: int, end: int) -> dict[str, Any]:
    return _event("cuda_runtime", "cudaDeviceSynchronize", start, end - start, 1)


def _range(name: str, ts: int, dur: int) -> dict[str, Any]:
    return _event("user_annotation", name, ts, dur, 1)


def _kernel(
    name: str, call: int, called: int, ts: int, dur: int, stream: int,
    args: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    about = {"correlation": call, "stream": stream, "device": 0} | (args or {})
    return [
        _event("cuda_runtime", "cudaLaunchKernel", called, 2, 1, {"correlation": call}),
        _event("kernel", name, ts, dur, stream, about),
    ]


def _trace(plan: Plan, rank: int, events: list[dict[str, Any]]) -> dict[str, Any]:
    ahead = plan.ahead[rank] if plan.ahead else 0
    ranks = list(range(plan.ranks))
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
             "pg_size": plan.ranks, "ranks": ranks}  # fmt: skip
    return {
        "schemaVersion": 1,
        "distributedInfo": {
            "backend": "nccl", "rank": rank, "world_size": plan.ranks, "pg_count": 1,
            "pg_config": [group],
        },
        "baseTimeNanoseconds": plan.base,
        "traceEvents": [{**e, "ts": e["ts"] + ahead} for e in events],
    }  # fmt: skip
