"""The bubble of a pipeline against its ideal schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from joined import of_files

FORWARD, BACKWARD = 1000, 2000


def ideal(stage: int, stages: int, micro: int) -> list[tuple[str, int, int, int]]:
    """A 1F1B schedule of equal stages with transfers that take no time: action, micro-batch, start
    and end. By the classic rule, each action when its inputs are there and the stage is free."""
    order = [[("F", m) for m in range(min(stages - s, micro))] for s in range(stages)]
    for s in range(stages):
        warm = len(order[s])
        for m in range(micro):
            order[s].append(("B", m))
            if warm + m < micro:
                order[s].append(("F", warm + m))
    done: dict[tuple[str, int, int], int] = {}
    free, at = [0] * stages, [0] * stages
    plan: list[list[tuple[str, int, int, int]]] = [[] for _ in range(stages)]
    while any(at[s] < len(order[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(order[s]):
                action, m = order[s][at[s]]
                source = s - 1 if action == "F" else s + 1
                first = source < 0 or source >= stages
                needs = ("F", s, m) if action == "B" and first else (action, source, m)
                if not (action == "F" and first) and needs not in done:
                    break
                start = max(free[s], done.get(needs, 0))
                free[s] = start + (FORWARD if action == "F" else BACKWARD)
                done[action, s, m] = free[s]
                plan[s].append((action, m, start, free[s]))
                at[s] += 1
    return plan[stage]


def trace(stage: int, stages: int, micro: int, name: str) -> dict[str, Any]:
    """A stage on a CPU: its actions, each with an operator that fills it."""
    length = (micro + stages - 1) * (FORWARD + BACKWARD)

    def event(cat: str, text: str, ts: int, dur: int) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": text, "pid": 1, "tid": 1, "ts": ts, "dur": dur}

    events = [event("user_annotation", "layerline/iteration/0", 0, length)]
    for action, m, start, end in ideal(stage, stages, micro):
        words = {"F": "Forward", "B": "Backward"}[action]
        text = f"PP:{stage}{action}{m}" if name == "PP" else f"{words} {m}"
        events.append(event("user_annotation", text, start, end - start))
        events.append(event("cpu_op", "aten::mm", start, end - start))
    group = {"pg_name": "0", "pg_desc": "mesh_pp", "ranks": list(range(stages))}
    about = {"backend": "gloo", "rank": stage, "world_size": stages, "pg_config": [group]}
    return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": events}


@pytest.mark.parametrize(("stages", "micro"), [(2, 4), (4, 8), (4, 3)])
@pytest.mark.parametrize("name", ["PP", "words"])
def test_equal_stages_have_the_ideal_schedules_bubble(
    stages: int, micro: int, name: str, tmp_path: Path
) -> None:
    paths = []
    for stage in range(stages):
        path = tmp_path / f"rank{stage}.json"
        path.write_text(json.dumps(trace(stage, stages, micro, name)))
        paths.append(path)
    job = of_files(paths)
    share = (stages - 1) / (micro + stages - 1)
    assert [b.rank for b in job.bubbles] == list(range(stages))
    for bubble in job.bubbles:
        assert bubble.share == pytest.approx(share, rel=0.05)
        assert bubble.ideal == pytest.approx(share)
        assert bubble.microbatches == micro
        assert bubble.stages == ((bubble.rank,) if name == "PP" else ())
        parts = bubble.warmup_ns + bubble.steady_ns + bubble.drain_ns
        assert parts == bubble.bubble_ns
    # The last stage has no warm-up of its own but the way of the first micro-batch to it.
    last = job.bubbles[-1]
    assert last.warmup_ns == 1000 * FORWARD * (stages - 1)
