"""The bubble of a pipeline against its ideal schedule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from joined import of_files

from layerline.analysis.model.ranks import Job

FORWARD, BACKWARD = 1000, 2000
Action = tuple[str, int, int]  # F or B, stage, micro-batch
Timed = tuple[str, int, int, int, int]  # and start and end


def order(rank: int, ranks: int, chunks: int, micro: int) -> list[Action]:
    """What a rank does in 1F1B, interleaved where it has several stages (Narayanan et al. 2021):
    stage `c * ranks + rank` of each chunk c."""
    if chunks == 1:
        forward, warm = [(rank, m) for m in range(micro)], ranks - rank
        backward = forward
    else:
        rounds = [range(first, first + ranks) for first in range(0, micro, ranks)]
        forward = [(c * ranks + rank, m) for of in rounds for c in range(chunks) for m in of]
        backward = [
            (c * ranks + rank, m) for of in rounds for c in reversed(range(chunks)) for m in of
        ]
        warm = 2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1
    warm = min(warm, len(forward))
    result: list[Action] = [("F", *of) for of in forward[:warm]]
    for k, of in enumerate(backward):
        result.append(("B", *of))
        result += [("F", *next_) for next_ in forward[warm + k : warm + k + 1]]
    return result


def ideal(ranks: int, chunks: int, micro: int) -> list[list[Timed]]:
    """The schedule of each rank with equal stages and transfers that take no time: each action when
    its inputs are there and the rank is free."""
    stages = ranks * chunks
    orders = [order(r, ranks, chunks, micro) for r in range(ranks)]
    done: dict[Action, int] = {}
    free, at = [0] * ranks, [0] * ranks
    plan: list[list[Timed]] = [[] for _ in range(ranks)]
    while any(at[r] < len(orders[r]) for r in range(ranks)):
        for r in range(ranks):
            while at[r] < len(orders[r]):
                action, stage, m = orders[r][at[r]]
                source = stage - 1 if action == "F" else stage + 1
                first = source < 0 or source >= stages
                needs = ("F", stage, m) if action == "B" and first else (action, source, m)
                if not (action == "F" and first) and needs not in done:
                    break
                start = max(free[r], done.get(needs, 0))
                free[r] = start + (FORWARD if action == "F" else BACKWARD) // chunks
                done[action, stage, m] = free[r]
                plan[r].append((action, stage, m, start, free[r]))
                at[r] += 1
    return plan


def trace(
    rank: int, plan: list[list[Timed]], name: str, group: dict[str, Any], world: int
) -> dict[str, Any]:
    """A rank on a CPU: its actions, each with an operator that fills it."""
    length = max(end for of in plan for *_, end in of)

    def event(cat: str, text: str, ts: int, dur: int) -> dict[str, Any]:
        return {"ph": "X", "cat": cat, "name": text, "pid": 1, "tid": 1, "ts": ts, "dur": dur}

    events = [event("user_annotation", "layerline/iteration/0", 0, length)]
    for action, stage, m, start, end in plan[rank]:
        words = {"F": "Forward", "B": "Backward"}[action]
        text = f"{words} {m}" if name == "words" else f"PP:{stage}{action}{m}"
        if name == "split" and action == "B":  # in two parts: of the inputs, of the weights
            half = (start + end) // 2
            events.append(event("user_annotation", f"PP:{stage}I{m}", start, half - start))
            start, text = half, f"PP:{stage}W{m}"
        events.append(event("user_annotation", text, start, end - start))
        events.append(event("cpu_op", "aten::mm", start, end - start))
    about = {"backend": "gloo", "rank": rank, "world_size": world, "pg_config": [group]}
    return {"schemaVersion": 1, "distributedInfo": about, "traceEvents": events}


def job_of(
    folder: Path,
    plan: list[list[Timed]],
    name: str = "PP",
    about: str = "mesh_pp",
    only: int | None = None,
) -> Job:
    """The job of these ranks, or of the first `only` of them."""
    group = {"pg_name": "0", "pg_desc": about, "ranks": list(range(len(plan)))}
    paths = []
    for rank in range(len(plan))[:only]:
        path = folder / f"rank{rank}.json"
        path.write_text(json.dumps(trace(rank, plan, name, group, len(plan))))
        paths.append(path)
    return of_files(paths)


@pytest.mark.parametrize(("ranks", "micro"), [(2, 4), (4, 8), (4, 3)])
@pytest.mark.parametrize("name", ["PP", "words"])
def test_equal_stages_have_the_ideal_schedules_bubble(
    ranks: int, micro: int, name: str, tmp_path: Path
) -> None:
    job = job_of(tmp_path, ideal(ranks, 1, micro), name)
    share = (ranks - 1) / (micro + ranks - 1)
    assert [b.rank for b in job.bubbles] == list(range(ranks))
    for bubble in job.bubbles:
        assert bubble.share == pytest.approx(share, rel=0.05)
        assert bubble.ideal == pytest.approx(share)
        assert (bubble.microbatches, bubble.ranks) == (micro, ranks)
        assert bubble.stages == ((bubble.rank,) if name == "PP" else ())
        assert bubble.beyond_ns is not None and abs(bubble.beyond_ns) < 0.05 * bubble.bubble_ns
        parts = bubble.warmup_ns + bubble.steady_ns + bubble.drain_ns
        assert parts == bubble.bubble_ns
    # The last stage has no warm-up of its own but the way of the first micro-batch to it.
    last = job.bubbles[-1]
    assert last.warmup_ns == 1000 * FORWARD * (ranks - 1)


@pytest.mark.parametrize(
    ("ranks", "chunks", "micro", "share"), [(2, 2, 4, 1 / 9), (4, 2, 8, 3 / 19), (2, 5, 2, 1 / 11)]
)
def test_stages_interleaved_on_a_rank_make_the_ideal_bubble_smaller(
    ranks: int, chunks: int, micro: int, share: float, tmp_path: Path
) -> None:
    job = job_of(tmp_path, ideal(ranks, chunks, micro), about="default_pg")
    for bubble in job.bubbles:
        assert bubble.stages == tuple(range(bubble.rank, ranks * chunks, ranks))
        assert (bubble.microbatches, bubble.ranks) == (micro, ranks)
        assert bubble.ideal == pytest.approx(share)
        assert bubble.share == pytest.approx(share, rel=0.05)


def test_an_action_that_takes_twice_its_time_is_no_bubble_of_its_own_rank(tmp_path: Path) -> None:
    """Of the others it is, beyond the ideal: their steps are longer for no more work."""
    plan = ideal(2, 1, 4)
    end = max(end for *_, end in plan[0])
    plan[0].append(("B", 0, 4, end, end + 4 * BACKWARD))
    mine, other = job_of(tmp_path, plan).bubbles
    # 4 * 3 and 8 more of 23 are work of rank 0 (one micro-batch has no forward), 12 of rank 1.
    assert [b.bubble_ns for b in (mine, other)] == [3_000_000, 11_000_000]
    assert (other.ideal, other.beyond_ns) == (pytest.approx(1 / 5), 8_000_000)


def test_what_an_action_waits_for_its_message_is_bubble(tmp_path: Path) -> None:
    """As on a CPU, where the range around a forward holds the receive. Rank 1 begins to wait at 0
    for what rank 0 sends from 500 to 600; both then compute 400 of 1,000."""
    group = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}
    paths = []
    for rank, (word, start) in enumerate((("send", 500), ("recv_", 0))):
        first = 100 if rank == 0 else 600
        ranges = [
            ("user_annotation", "layerline/iteration/0", 0, 1000, 1),
            ("user_annotation", "Forward 0", 0 if rank else 100, first + 400, 1),
            ("cpu_op", f"c10d::{word}", start, 600, 1),
            ("user_annotation", f"gloo:{word.strip('_')}", start, 600, 9),
            ("cpu_op", "aten::mm", first, first + 400, 1),
            ("cpu_op", "c10d::allreduce_", 1000, 1010, 1),  # by which the clocks are compared
            ("user_annotation", "gloo:all_reduce", 1000, 1010, 9),
        ]
        peer = {"Input Dims": [[], [], []], "Concrete Inputs": ["", "", str(1 - rank)]}
        events = [
            {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": low,
             "dur": high - low, "args": peer if "c10d" in name else {}}
            for cat, name, low, high, tid in ranges
        ]  # fmt: skip
        about = {"backend": "gloo", "rank": rank, "world_size": 2, "pg_config": [group]}
        paths.append(tmp_path / f"rank{rank}.json")
        paths[-1].write_text(
            json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": events})
        )
    job = of_files(paths)
    told = {r["operation"]: r["wait_ns"] for r in job.collectives.to_pylist()}
    assert told == {"send": 0, "recv": 500_000, "all-reduce": 0}
    # Of 1,000 rank 0 computes 400 and sends 100, rank 1 receives 100 and computes 400.
    assert [b.bubble_ns for b in job.bubbles] == [500_000, 500_000]
    assert [b.ideal for b in job.bubbles] == [pytest.approx(1 / 2)] * 2


def test_of_a_pipeline_with_missing_ranks_the_group_tells_how_many_it_has(tmp_path: Path) -> None:
    """The stages that are there do not."""
    plan = ideal(4, 1, 8)
    for name in ("PP", "words"):
        job = job_of(tmp_path, plan, name, only=2)
        assert job.missing == [2, 3]
        assert [b.ideal for b in job.bubbles] == [pytest.approx(3 / 11)] * 2


def test_a_backward_in_two_parts_has_no_ideal_that_is_known(tmp_path: Path) -> None:
    job = job_of(tmp_path, ideal(2, 1, 4), "split")
    for bubble in job.bubbles:
        assert (bubble.ideal, bubble.beyond_ns, bubble.ranks) == (None, None, None)
        assert bubble.share == pytest.approx(1 / 5)
        assert bubble.split
