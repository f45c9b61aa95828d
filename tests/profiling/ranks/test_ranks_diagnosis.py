"""What is said of a job that failed, by the logs and the Flight Recorder's dumps of its ranks."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core.errors import InputError
from layerline.core.ranks import flight_recorder
from layerline.profile.ranks import diagnosis, launch, outcome
from layerline.profile.ranks.outcome import Outcome

NCCL = (
    "[rank0]:[E ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for "
    "600010 milliseconds before timing out."
)
MEMORY = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
    "total capacity of 139.72 GiB of which 1.1 GiB is free."
)
PEER = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:13186."
STOOD = """Fatal Python error: Aborted

Thread 0x00007f1 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait

Current thread 0x00007f5 (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3252 in all_reduce
  File "/home/me/own.py", line 44 in step
  File "/home/me/own.py", line 50 in <module>
"""


def job(folder: Path, *ranks: tuple[int | None, bool, str]) -> list[Outcome]:
    """A job whose ranks ended with (status, told, log)."""
    made = []
    for number, (code, told, log) in enumerate(ranks):
        one = Outcome(
            rank=number, ranks=len(ranks), local=number, host="node", process=100 + number,
            profiled=True, started_ns=0, ended_ns=None if code is None else 10 + number, code=code,
            told=told,
        )  # fmt: skip
        outcome.write(folder, one)
        outcome.log_of(folder, one).write_text(log)
        made.append(one)
    assert outcome.read(folder) == made
    return made


def said(folder: Path, *ranks: tuple[int | None, bool, str], timeout: float | None = None) -> str:
    found = diagnosis.failure(folder, job(folder, *ranks), timeout)
    assert found is not None
    return found.what


def entry(sequence: int, name: str = "nccl:all_reduce", group: str = "0") -> dict:
    frames = [
        {"name": "all_reduce", "filename": "/x/site-packages/torch/distributed/c.py", "line": 1},
        {"name": "step", "filename": "/home/me/own.py", "line": 44},
    ]
    return {
        "process_group": (group, "default_pg"), "collective_seq_id": sequence, "p2p_seq_id": 0,
        "profiling_name": name, "state": "scheduled", "frames": frames, "is_p2p": False,
    }  # fmt: skip


def dump(folder: Path, rank: int, *entries: dict, ranks: str = "[0, 1, 2]") -> Path:
    path = folder / f"{diagnosis.RECORDED}{rank}"
    text = {"version": "2.10", "pg_config": {"0": {"ranks": ranks}}, "entries": list(entries)}
    path.write_bytes(pickle.dumps(text, protocol=2))
    return path


def test_ranks_that_all_end_well_have_no_failure(tmp_path):
    assert diagnosis.failure(tmp_path, job(tmp_path, (0, False, ""), (0, False, ""))) is None


def test_the_rank_out_of_memory_is_the_cause_and_those_that_lost_it_are_not(tmp_path):
    what = said(tmp_path, (1, False, PEER), (1, False, MEMORY), (-15, True, ""))
    assert what == (
        "rank 1 of 3 (host node, process 101) ran out of GPU memory (Tried to allocate 2.00 GiB)"
    )


@pytest.mark.parametrize("code", [-9, 137])
def test_a_program_that_was_killed_under_a_tool_was_killed(tmp_path, code):
    assert "was killed (SIGKILL), most likely for want of memory" in said(
        tmp_path, (code, False, ""), (1, False, PEER)
    )


def test_a_lost_peer_is_told_where_nothing_else_is_known(tmp_path):
    assert "lost its peer (Connection closed by peer)" in said(tmp_path, (1, False, PEER))


def test_a_keeper_that_was_killed_leaves_a_rank_without_a_word(tmp_path):
    assert "rank 1 of 2 (host node, process 101) left no word" in said(
        tmp_path, (1, False, PEER), (None, False, "")
    )


def test_nccls_time_out_names_the_collective_and_who_did_not_come(tmp_path):
    dump(tmp_path, 0, entry(11), entry(12))
    dump(tmp_path, 1, entry(11))
    dump(tmp_path, 2, entry(11), entry(12))
    what = said(tmp_path, (-6, False, NCCL), (134, True, STOOD), (-6, False, NCCL))
    assert what == (
        "ranks 0,2 waited 600000 ms for NCCL's ALLREDUCE number 12; ranks 0,2 entered all_reduce "
        "number 12 (own.py:44), and rank 1 did not; rank 1 stood in all_reduce (own.py:44)"
    )


def test_an_error_of_a_program_is_its_last_line(tmp_path):
    log = "Traceback (most recent call last):\nKeyError: 'a'\n\nValueError: loss is nan\n"
    assert said(tmp_path, (1, False, log)).endswith("ended with status 1: ValueError: loss is nan")


def test_several_ranks_with_one_cause_are_told_together(tmp_path):
    log = "ModuleNotFoundError: No module named 'apex'"
    assert said(tmp_path, (1, False, log), (1, False, log)) == "ranks 0-1 have no module apex"


def test_two_files_of_one_rank_are_refused(tmp_path):
    one = job(tmp_path, (0, False, ""))[0]
    outcome.write(tmp_path, type(one)(**{**{f: getattr(one, f) for f in one.__struct_fields__},
                                         "host": "other"}))  # fmt: skip
    with pytest.raises(InputError, match="rank 0 is there twice"):
        outcome.read(tmp_path)


def test_ranks_that_came_equally_far_wait_for_no_one(tmp_path):
    dump(tmp_path, 0, entry(3), ranks="[0, 1]")
    dump(tmp_path, 1, entry(3), ranks="[0, 1]")
    assert diagnosis.waiting(diagnosis.recorded(tmp_path)[0]) is None


class Harm:
    def __reduce__(self):
        return os.mkdir, ("planted",)


def test_no_code_of_a_dump_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{diagnosis.RECORDED}0"
    path.write_bytes(pickle.dumps({"version": Harm()}))
    with pytest.raises(InputError, match="is no Flight Recorder dump"):
        flight_recorder.read(path)
    assert not (tmp_path / "planted").exists()


@given(st.binary(max_size=60), st.integers(0, 400))
def test_any_other_bytes_are_no_dump(tmp_path_factory, noise, cut):
    folder = tmp_path_factory.mktemp("dumps")
    path = dump(folder, 0, entry(1), entry(2))
    path.write_bytes(path.read_bytes()[:cut] + noise)
    try:
        flight_recorder.read(path)
    except InputError as e:
        assert e.file == str(path)


def test_a_program_that_says_no_error_has_its_last_line(tmp_path):
    log = "reading own.py\npython: can't open file 'own.py': [Errno 2]\n\n"
    assert said(tmp_path, (2, False, log)) == (
        "rank 0 of 1 (host node, process 100) ended with status 2: "
        "python: can't open file 'own.py': [Errno 2]"
    )


def test_a_rank_that_crashes_says_where_and_what_was_thrown(tmp_path):
    thrown = "terminate called after throwing an instance of 'E'\n  what():  no such device\n"
    assert said(tmp_path, (-6, False, thrown + STOOD), (1, False, PEER)) == (
        "rank 0 of 2 (host node, process 100) aborted (SIGABRT) in all_reduce (own.py:44): "
        "no such device"
    )


def test_collectives_of_two_sizes_are_the_cause_of_an_abort(tmp_path):
    thrown = (
        "  what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 4680 vs 4. "
        "Received data size doesn't match expected size. Is there a mismatch?\n"
    )
    assert said(tmp_path, (1, False, PEER), (-6, False, thrown + STOOD)) == (
        "rank 1 of 2 (host node, process 101) was sent another size than its collective has"
        " in all_reduce (own.py:44)"
    )


def test_a_rank_that_ended_early_and_well_leaves_the_others_without_a_peer(tmp_path):
    found = diagnosis.failure(tmp_path, job(tmp_path, (0, False, ""), (1, False, PEER)))
    assert found is not None
    assert found.what == (
        "rank 1 of 2 (host node, process 101) lost its peer (Connection closed by peer); "
        "rank 0 had ended by then, without an error"
    )
    assert found.fix == "see that all ranks take as many steps"


def test_a_program_that_cannot_be_started_is_named_and_not_torchruns_last_words(tmp_path):
    log = tmp_path / "plan.log"
    log.write_text(
        "error: nosuch cannot be started (No such file or directory); is it installed?\n"
        "ChildFailedError:\n  traceback : To enable traceback see: https://x/errors.html\n"
    )
    assert launch.not_started(log) == diagnosis.Failure(
        "not all ranks started: nosuch cannot be started (No such file or directory); "
        "is it installed?",
        "",
    )
