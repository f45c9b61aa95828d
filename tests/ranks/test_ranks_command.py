"""``layerline ranks``: what it writes, and what it says of input that cannot be right."""

from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from rank_traces import Plan, Work, write

from layerline.analysis.commands.ranks import ranks
from layerline.core import tables
from layerline.core.errors import CheckFailed, InputError, ToolMissing


def run(*arguments: object) -> Result:
    """A page was made, also where a capture was left out."""
    done = CliRunner().invoke(ranks, [str(a) for a in arguments])
    if done.exception is not None and not isinstance(done.exception, CheckFailed):
        raise done.exception
    return done


def plan(ranks_: int = 2, steps: int = 3, **more: object) -> Plan:
    work = [[[Work(100) for _ in range(ranks_)]] for _ in range(steps)]
    work[-1][0][1].compute = 400
    return Plan(work, [50], **more)


def refused(*arguments: object) -> str:
    with pytest.raises(InputError) as error:
        run(*arguments)
    return error.value.line()


def test_the_answer_comes_first_and_page_tables_and_trace_are_written(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    done = run(*paths, "-o", tmp_path / "out")
    # One step of three, of 150, 150 and 450 µs: said first, as it may be an accident.
    said = "In 1 of 3 steps rank 1 makes the others wait: 40.0 % of all their time"
    assert done.output.splitlines()[0] == said
    assert "would take 150 µs instead of 250 µs (mean of 3 steps, ±" in done.output
    assert "? rank 1 costs the most in 1 of 3 steps" in done.output
    page = (tmp_path / "out/ranks.html").read_text()
    assert "rank 1 makes the others wait: <em>40.0 % of all their time</em>" in page
    assert "NaN" not in page
    for name, count in (("collectives", 6), ("ranks", 6)):
        assert len(tables.read_parquet(tmp_path / f"out/{name}.parquet", name)) == count
    assert (tmp_path / "out/ranks.perfetto-trace").stat().st_size


def test_one_of_two_ranks_that_are_as_late_is_no_gain_alone(tmp_path: Path) -> None:
    of = plan(ranks_=3)
    for (step,) in of.work:
        step[1].compute = step[2].compute = 400
    paths, _ = write(tmp_path, of)
    answer = run(*paths).output.splitlines()[:2]
    assert answer[0] == "Rank 1 makes the others wait 33.3 % of a step"
    assert "Without it a step would take as long, 450 µs (" in answer[1]


def test_the_trace_of_all_ranks_is_on_one_clock(tmp_path: Path) -> None:
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    paths, truth = write(tmp_path, plan(ahead=[0, 777_000]))
    run(*paths, "-o", tmp_path)
    trace = pb2.Trace()
    trace.ParseFromString((tmp_path / "ranks.perfetto-trace").read_bytes())
    about = {
        p.track_descriptor.uuid: p.track_descriptor
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    lanes = [u for u, d in about.items() if d.name == "communication"]
    assert {about[about[u].parent_uuid].name for u in lanes} == {"rank 0", "rank 1"}
    times: dict[int, list[int]] = {u: [] for u in lanes}
    for packet in trace.packet:
        event = packet.track_event
        if event.track_uuid in times:
            times[event.track_uuid].append(packet.timestamp)
    (a0, a1), (b0, b1) = sorted(times.values(), reverse=True)
    assert a1 == b1
    # The middle one of three steps.
    start = [truth.start[r, 1, 0] for r in (0, 1)]
    assert a0 - b0 == 1000 * (max(start) - min(start)) == 0
    paths, truth = write(tmp_path, replace(plan(steps=1), ahead=[0, 777_000]))
    run(*paths, "-o", tmp_path)
    trace.ParseFromString((tmp_path / "ranks.perfetto-trace").read_bytes())
    opened = [f for p in trace.packet for f in p.track_event.flow_ids]
    closed = [f for p in trace.packet for f in p.track_event.terminating_flow_ids]
    assert opened == closed == [1]


def test_a_run_is_told_by_its_captures_and_has_them_in_its_own_folders(tmp_path: Path) -> None:
    captures = tmp_path / "run/captures"
    captures.mkdir(parents=True)
    (tmp_path / "run/manifests").mkdir()
    paths, _ = write(tmp_path, plan())
    for r, path in enumerate(paths):
        place = captures / f"train.bf16.rank{r:04d}.trace.json.gz"
        place.write_bytes(gzip.compress(path.read_bytes()))
    done = run("--run", tmp_path / "run")
    assert done.output.startswith("In 1 of 3 steps rank 1 makes the others wait")
    assert (tmp_path / "run/report/ranks.html").exists()
    assert len(pq.read_table(tmp_path / "run/tables/collectives.parquet")) == 6


def test_what_lies_beside_traces_in_a_folder_of_captures_is_not_read(tmp_path: Path) -> None:
    captures = tmp_path / "captures"
    captures.mkdir()
    paths, _ = write(tmp_path, plan())
    for r, path in enumerate(paths):
        path.rename(captures / f"train.bf16.rank{r:04d}@node1.trace.json")
        (captures / f"train.bf16.rank{r:04d}@node1.meta.json").write_text('{"precision": "bf16"}')
    assert "left out" not in run(captures).output


def test_a_process_for_each_file_gives_the_same_as_none(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    here, there = run(*paths, "--workers", 1), run(*paths, "--workers", 2)
    assert here.output == there.output


def test_two_files_of_one_rank_are_refused_by_name(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    other = tmp_path / "again.json"
    other.write_bytes(paths[1].read_bytes())
    assert "again.json: is of rank 1, and so is job.rank1.json" in refused(*paths, other)
    assert "job.rank1.json: is given twice" in refused(paths[1], paths[1])


def test_a_file_whose_name_and_content_name_different_ranks_is_refused(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    paths[1].rename(tmp_path / "job.rank7.json")
    line = refused(paths[0], tmp_path / "job.rank7.json")
    assert "job.rank7.json: is named rank 7, but holds rank 1" in line


def test_ranks_of_different_jobs_are_refused(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    (tmp_path / "other").mkdir()
    others, _ = write(tmp_path / "other", plan(ranks_=4))
    assert "is of another job: it has 4 ranks in all" in refused(paths[0], others[1])
    trace = json.loads(paths[1].read_text())
    trace["distributedInfo"]["pg_config"][0]["ranks"] = [1, 0]
    paths[1].write_text(json.dumps(trace))
    assert "is of another job: its group 0" in refused(*paths)


def test_captures_of_different_runs_and_steps_are_refused(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    (tmp_path / "later").mkdir()
    later, _ = write(tmp_path / "later", plan(base=4_000_000_000_000))
    assert "min after job.rank0.json has ended" in refused(paths[0], later[1])
    others, _ = write(tmp_path / "later", plan(first_step=90))
    line = refused(paths[0], others[1])
    assert "has the steps 90-92" in line
    assert "none in common" in line


def test_steps_that_not_every_rank_has_are_left_out_and_named(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    trace = json.loads(paths[1].read_text())
    events = trace["traceEvents"]
    trace["traceEvents"] = [e for e in events if e["name"] != "layerline/iteration/5"]
    paths[1].write_text(json.dumps(trace))
    assert "note: steps 5 of rank 0 are left out: not every rank has them" in run(*paths).output


def test_traces_that_say_no_rank_are_refused_but_for_one_alone(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    plain = []
    for r, path in enumerate(paths):
        trace = json.loads(path.read_text())
        del trace["distributedInfo"]
        plain.append(tmp_path / f"plain{'ab'[r]}.json")
        plain[-1].write_text(json.dumps(trace))
    assert "does not say of which rank it is" in refused(*plain)
    assert "taken for rank 0" in run(plain[0]).output


def test_a_file_that_is_cut_short_is_named_and_the_others_are_told(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan(ranks_=3))
    paths[2].write_bytes(paths[2].read_bytes()[:-400])
    done = run(*paths)
    assert "✗ 2 of 3 ranks: without rank 2" in done.output
    assert "note: left out: " in done.output
    assert "job.rank2.json: is cut short" in done.output
    assert "left out: " in str(done.exception)
    paths[2].write_bytes(gzip.compress(b"{")[:-6])
    assert "✗ 2 of 3 ranks: without rank 2" in run(*paths).output


@pytest.mark.slow
def test_the_workers_of_a_scheduler_tell_what_this_machine_tells(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan(ranks_=3))
    paths[2].write_bytes(paths[2].read_bytes()[:-400])
    here = run(*paths, "-o", tmp_path / "here").output
    with dask_cluster(tmp_path) as address:
        there = run(*paths, "-o", tmp_path / "there", "--scheduler", address).output
    assert there.replace(str(tmp_path / "there"), "-") == here.replace(str(tmp_path / "here"), "-")
    for name in ("collectives", "ranks"):
        read = [
            tables.read_parquet(tmp_path / f"{w}/{name}.parquet", name) for w in ("here", "there")
        ]
        assert len(read[0]) and read[0].equals(read[1])


@contextmanager
def dask_cluster(folder: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, each a process of its own."""
    file, python = folder / "scheduler.json", [sys.executable, "-P", "-m"]
    scheduler = [*python, "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard"]
    workers = [*python, "distributed.cli.dask_worker", "--nworkers", "2", "--nthreads", "1"]
    each = (scheduler, [*workers, "--no-dashboard", "--local-directory", str(folder)])
    with ExitStack() as stack:
        for command in each:
            process = subprocess.Popen(
                [*command, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        end = time.monotonic() + 120
        while not (file.exists() and file.read_text().strip()):
            assert time.monotonic() < end, "the scheduler did not start"
            time.sleep(0.1)
        yield json.loads(file.read_text())["address"]


def test_a_scheduler_that_is_not_there_is_named(tmp_path: Path) -> None:
    paths, _ = write(tmp_path, plan())
    with pytest.raises(ToolMissing, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9"):
        run(*paths, "-o", tmp_path, "--scheduler", "tcp://127.0.0.1:9")


def dump(tmp_path: Path, rank: int, states: list[str]) -> Path:
    frames = [
        {"filename": "/usr/lib/python3/dist-packages/torch/x.py", "line": 1, "name": "f"},
        {"filename": "train.py", "line": 7, "name": "step"},
    ]
    entries = [
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": n + 1, "p2p_seq_id": 0,
            "is_p2p": False, "profiling_name": "nccl:all_reduce", "input_sizes": [[4]],
            "state": state, "frames": frames,
        }
        for n, state in enumerate(states)
    ]  # fmt: skip
    path = tmp_path / f"nccl_trace_rank_{rank}"
    about = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    value = {"version": "2.10", "pg_config": about, "entries": entries}
    path.write_bytes(pickle.dumps(value))
    return path


def test_dumps_of_a_hang_say_which_collective_did_not_end_and_who_did_not_come(
    tmp_path: Path,
) -> None:
    done = ["completed"] * 2
    paths = [
        dump(tmp_path, 0, [*done, "started"]),
        dump(tmp_path, 1, done),
        dump(tmp_path, 2, [*done, "scheduled"]),
    ]
    output = run(*paths).output
    assert "group 0, collective 3 (nccl:all_reduce) did not end" in output
    assert "ranks 1 did not come to it (rank 1 is at 2)" in output
    assert "called at train.py:7" in output
    assert "all of them ended" in run(dump(tmp_path, 0, done), dump(tmp_path, 1, done)).output


def test_a_dump_that_would_run_code_is_refused(tmp_path: Path) -> None:
    import os

    path = tmp_path / "trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [os.getcwd], "pg_config": {}}))
    assert "no code of a file is ever imported or run" in refused(path)


def test_a_process_that_reads_captures_has_no_pandas_and_could_have_it() -> None:
    program = """
import sys
from layerline.analysis.captures import rank_partials
rank_partials._without_pandas()
import pyarrow as pa
pa.array([1])
assert "pandas" not in sys.modules
import pandas
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
