"""Ranks that are started for real, over gloo on the CPU: what is kept, what is said, and that no
process is left, whatever happens to one of them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from paths import ROOT

from layerline.core.capture_names import CaptureName
from layerline.core.errors import InputError
from layerline.profile.ranks import launch, outcome
from layerline.profile.ranks.launch import Agents
from layerline.profile.ranks.plan import Plan

pytestmark = pytest.mark.slow
PROGRAM = ROOT / "tests/support/ranks/rank_program.py"


def plan(folder: Path, *words: object, **more) -> Plan:
    (folder / "captures").mkdir()
    program = [sys.executable, "-P", str(PROGRAM), *map(str, words)]
    return Plan(
        folder=str(folder / "job"), captures=str(folder / "captures"), precision="fp32",
        program=program, **{"watch": {"torch": True}, "grace": 5.0, **more},
    )  # fmt: skip


def traced(folder: Path) -> list[int | None]:
    """The ranks of which there is a trace."""
    names = [CaptureName.parse(p) for p in sorted((folder / "captures").iterdir())]
    return [n.rank for n in names if n is not None and n.kind == "trace"]


def left(folder: Path) -> list[int]:
    """Processes that a job in `folder` has left: those that have it in their command line, and the
    helpers of its ranks."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(folder).encode() in path.read_bytes() and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    for helper in folder.glob("loader*"):
        with contextlib.suppress(OSError):
            os.kill(int(helper.read_text()), 0)
            found.append(int(helper.read_text()))
    return found


def failed(folder: Path, how: str, **more) -> str:
    """What a job that fails says; no process of it is left."""
    with pytest.raises(InputError) as e:
        launch.run(plan(folder, how, folder), Agents(2), **more)
    assert not left(folder)
    return e.value.line()


def test_ranks_that_end_well_leave_a_trace_and_a_log_each(tmp_path):
    ended = launch.run(plan(tmp_path, "well", tmp_path), Agents(2))
    assert [(r.rank, r.ranks, r.code, r.told) for r in ended] == [
        (0, 2, 0, False),
        (1, 2, 0, False),
    ]
    assert traced(tmp_path) == [0, 1]
    logs = [outcome.log_of(tmp_path / "job", r).read_text() for r in ended]
    assert ["rank 0 of 2 is done" in logs[0], "rank 1 of 2 is done" in logs[1]] == [True, True]
    assert not left(tmp_path)


def test_a_rank_that_is_killed_is_named_and_the_others_trace_is_kept(tmp_path):
    said = failed(tmp_path, "killed")
    assert "rank 1 of 2" in said
    assert "was killed (SIGKILL)" in said
    assert "captures of rank 0 are kept" in said
    assert traced(tmp_path) == [0]


def test_a_collective_that_times_out_says_who_waited_and_where_the_other_was(tmp_path):
    said = failed(tmp_path, "late")
    assert "rank 0 of 2" in said
    assert "waited 3000 ms for gloo" in said
    assert "rank 0 entered all_reduce number 3 (rank_program.py:" in said
    assert ", and rank 1 did not" in said
    assert "rank 1 stood in load (rank_program.py:" in said


def test_a_job_that_freezes_is_ended_and_says_where_each_rank_stood(tmp_path):
    said = failed(tmp_path, "stuck", timeout=40.0)
    assert "it did not end within 40 s" in said
    assert "rank 1 stood in load (rank_program.py:" in said
    assert "rank 0 stood in " in said


def test_the_time_of_a_job_counts_from_when_its_ranks_have_begun(tmp_path):
    """On a cold disk what starts them takes a minute."""
    (tmp_path / "captures").mkdir()
    quick = Plan(
        folder=str(tmp_path / "job"), captures=str(tmp_path / "captures"), precision="fp32",
        program=[sys.executable, "-c", "pass"],
    )  # fmt: skip
    slow = ("sh", "-c", 'sleep 11; exec "$@"', "sh")
    ended = launch.run(quick, Agents(2), around=slow, timeout=10.0)
    assert [r.code for r in ended] == [0, 0]


def test_a_module_that_one_rank_lacks_is_named_and_not_the_peer_it_cost(tmp_path):
    said = failed(tmp_path, "module")
    assert "rank 1 of 2" in said
    assert "has no module no_such_module_of_anybody" in said
    assert "lost its peer" not in said


@pytest.mark.parametrize("victim", ["torch.distributed.run", "profile.ranks.keeper"])
def test_whatever_is_killed_no_process_is_left(tmp_path, victim):
    code = (
        "import sys, msgspec; from layerline.profile.ranks import launch; "
        "from layerline.profile.ranks.plan import Plan; from layerline.core.errors import *\n"
        "try: launch.run(msgspec.json.decode(sys.argv[1], type=Plan), launch.Agents(2))\n"
        "except InputError as e: print(e.line())"
    )
    import msgspec

    text = msgspec.json.encode(plan(tmp_path, "stuck", tmp_path)).decode()
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code, text], stdout=subprocess.PIPE, text=True
    )
    end = time.monotonic() + 120
    while len(list(tmp_path.glob("loader*"))) < 2:
        assert time.monotonic() < end
        time.sleep(0.1)
    killed = _one(victim, tmp_path)
    os.kill(killed, signal.SIGKILL)
    printed, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "rank" in printed
    assert not left(tmp_path)


def _one(module: str, folder: Path) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().split(b"\0")
            here = any(str(folder).encode() in word for word in words)
            if here and any(module.encode() in word for word in words[1:4]):
                return int(path.parent.name)
    raise AssertionError(f"no {module} of {folder}")


def test_a_program_without_the_two_lines_runs_as_it_is(tmp_path):
    code = "import os; print('rank', os.environ['RANK'], 'LAYERLINE_WATCH' in os.environ)"
    changed = plan(tmp_path, ranks="1")
    changed = Plan(**{f: getattr(changed, f) for f in changed.__struct_fields__ if f != "program"},
                   program=[sys.executable, "-c", code])  # fmt: skip
    ended = launch.run(changed, Agents(2))
    logs = [outcome.log_of(tmp_path / "job", r).read_text() for r in ended]
    assert logs == ["rank 0 False\n", "rank 1 True\n"]
