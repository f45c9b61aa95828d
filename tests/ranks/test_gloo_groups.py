"""Which group a communication of gloo is of: the trace does not say; threads and shapes do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from joined import of_files

DEFAULT = {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]}
DATA = {"pg_name": "1", "pg_desc": "mesh_dp", "ranks": [0, 2]}
TENSOR = {"pg_name": "3", "pg_desc": "mesh_tp", "ranks": [0, 1]}


def call(name: str, dims: list[Any], ts: int, **more: Any) -> dict[str, Any]:
    args = {"Input Dims": dims, "Input type": ["float"] * len(dims), **more}
    return {"ph": "X", "cat": "cpu_op", "name": f"c10d::{name}", "pid": 1, "tid": 1, "ts": ts,
            "dur": 5, "args": args}  # fmt: skip


def run(name: str, dims: list[Any], ts: int, thread: int) -> dict[str, Any]:
    args = {"Input Dims": dims, "Input type": ["float"]}
    return {"ph": "X", "cat": "user_annotation", "name": f"gloo:{name}", "pid": 1, "tid": thread,
            "ts": ts + 6, "dur": 20, "args": args}  # fmt: skip


def write(
    folder: Path, rank: int, told: list[dict[str, Any]], events: list[dict[str, Any]]
) -> Path:
    path = folder / f"rank{rank}.json"
    about = {"backend": "gloo", "rank": rank, "world_size": 4, "pg_config": told}
    path.write_text(
        json.dumps({"schemaVersion": 1, "distributedInfo": about, "traceEvents": events})
    )
    return path


def groups(tmp_path: Path, told: list[dict[str, Any]], events: list[dict[str, Any]]) -> list[Any]:
    return of_files([write(tmp_path, 0, told, events)]).collectives.to_pylist()


GATHER = [[8], [4]]


def test_threads_are_of_groups_in_the_order_in_which_these_were_made(tmp_path: Path) -> None:
    events = [
        event
        # Threads of other ranks' groups have the numbers between.
        for k, thread in enumerate((100, 101, 110, 114, 120, 121))
        for event in (
            call("allreduce_", [[[6]]], 100 * k),
            run("all_reduce", [[6]], 100 * k, thread),
        )
    ]
    rows = groups(tmp_path, [DEFAULT, DATA, TENSOR], events)
    assert [r["group"] for r in rows] == [x for g in ("0:0-3", "1:0,2", "3:0-1") for x in (g, g)]


def test_shapes_tell_a_group_where_threads_alone_do_not(tmp_path: Path) -> None:
    events = [call("_allgather_base_", [[16], [4]], 0), run("all_gather", [[4]], 0, 100)]
    assert groups(tmp_path, [DEFAULT, DATA], events)[0]["group"] == "0:0-3"
    events = [call("_allgather_base_", GATHER, 0), run("all_gather", [[4]], 0, 100)]
    assert groups(tmp_path, [DEFAULT, DATA], events)[0]["group"] == "1:0,2"


def test_a_group_that_may_be_either_stays_unknown(tmp_path: Path) -> None:
    events = [call("_allgather_base_", GATHER, 0), run("all_gather", [[4]], 0, 100)]
    assert groups(tmp_path, [DATA, TENSOR], events)[0]["group"] is None


def test_a_reduce_scatter_that_gloo_computes_by_an_all_reduce_keeps_its_name(
    tmp_path: Path,
) -> None:
    events = [
        call("_reduce_scatter_base_", [[4], [16]], 0), run("all_reduce", [[16]], 0, 100),
        call("allreduce_", [[[6]]], 100), run("all_reduce", [[6]], 100, 101),
    ]  # fmt: skip
    rows = groups(tmp_path, [DEFAULT], events)
    assert [(r["operation"], r["bytes"], r["known_by"]) for r in rows] == [
        ("reduce-scatter", 16, "order"),
        ("all-reduce", 24, "order"),
    ]


@pytest.mark.parametrize(("name", "operation"), [("send", "send"), ("recv_", "recv")])
def test_a_message_has_its_peer(name: str, operation: str, tmp_path: Path) -> None:
    asked = call(name, [[[6]], [], [], []], 0, **{"Concrete Inputs": ["", "", "1", "0"]})
    events = [asked, run(name.rstrip("_"), [[6]], 0, 1)]
    row = groups(tmp_path, [DATA], events)[0]
    assert (row["operation"], row["peer"], row["bytes"]) == (operation, 2, 24)


def member(name: str, about: str, *ranks: int) -> dict[str, Any]:
    return {"pg_name": name, "pg_desc": about, "ranks": list(ranks)}


def test_the_other_ranks_decide_between_groups_of_one_size(tmp_path: Path) -> None:
    """2 stages of 2 replicas: a rank's all-reduces are its replicas', who do the same, and not its
    pipeline's, where another stage has other sizes; sends meet receives in the pipeline."""
    paths = []
    for rank in range(4):
        stage, replica = divmod(rank, 2)
        told = [
            DEFAULT,
            member(f"p{replica}", "mesh_pp", replica, 2 + replica),
            member(f"d{stage}", "mesh_dp", 2 * stage, 2 * stage + 1),
        ]
        size = [[4 + stage]]
        events = [call("allreduce_", [size], 100), run("all_reduce", size, 100, 120 + rank)]
        name = ("send", "recv_")[stage]
        peer = {"Concrete Inputs": ["", "", str(1 - stage), "0"]}
        events += [call(name, [[[6]], [], [], []], 200, **peer), run(name[:4], [[6]], 200, 1)]
        paths.append(write(tmp_path, rank, told, events))
    rows = of_files(paths).collectives.to_pylist()
    by_rank = {
        (r["rank"], r["operation"]): (r["group"], r["peer"], r["instance"] is not None)
        for r in rows
    }
    for rank in range(4):
        stage, replica = divmod(rank, 2)
        group = f"d{stage}:{2 * stage}-{2 * stage + 1}"
        assert by_rank[rank, "all-reduce"] == (group, None, True)
        operation, peer = (("send", rank + 2), ("recv", rank - 2))[stage]
        assert by_rank[rank, operation] == (f"p{replica}:{replica},{2 + replica}", peer, True)


def pipeline(folder: Path, *, apart: int = 0, alone: bool = False) -> list[Path]:
    """2 stages of a pipeline without replicas, 3 steps: an all-reduce of each rank's own, with
    threads of its own, and one of both, on the other threads (`alone`: also of each rank's own).
    A rank's own are 5 ms after the other's in one step and before it in the next; `apart`: how far
    the second clock is ahead, microseconds."""
    paths = []
    for rank in range(2):
        told = [member("0", "default_pg", 0, 1), member(str(1 + rank), "mesh_dp", rank)]
        told.append(member(str(3 + rank), "mesh_tp", rank))
        events = []
        for step in range(3):
            at = 100_000 * (step + 1) + apart * rank
            later = 5000 * ((step + rank) % 2)
            of_both = at + 20_000 + (later if alone else 0)
            for start, size, thread in ((at + later, 8, 110), (of_both, 1, 100)):
                events.append(call("allreduce_", [[[size]]], start))
                events.append(run("all_reduce", [[size]], start, thread + step % 2 + 10 * rank))
        paths.append(write(folder, rank, told, events))
    return paths


@pytest.mark.parametrize("apart", [0, 7_000_000])
def test_what_a_group_of_one_rank_does_has_no_partner(tmp_path: Path, apart: int) -> None:
    rows = of_files(pipeline(tmp_path, apart=apart)).collectives.to_pylist()
    told = {(r["rank"], r["bytes"], r["group"], r["matched_by"]) for r in rows}
    assert told == {
        *((rank, 4, "0:0-1", "order") for rank in (0, 1)),
        *((rank, 32, f"{1 + rank}:{rank}", "order") for rank in (0, 1)),
    }
    for row in rows:
        assert (row["wait_ns"] is None) == (row["bytes"] == 32)


def test_ranks_that_never_met_are_not_said_to_have_met(tmp_path: Path) -> None:
    rows = of_files(pipeline(tmp_path, alone=True)).collectives.to_pylist()
    assert all(r["group"] is None or r["group"].endswith(f":{r['rank']}") for r in rows)


def test_of_one_rank_alone_nobody_knows_whether_it_met_others(tmp_path: Path) -> None:
    rows = of_files(pipeline(tmp_path)[:1]).collectives.to_pylist()
    assert {(r["bytes"], r["group"]) for r in rows} == {(4, None), (32, "1:0")}
