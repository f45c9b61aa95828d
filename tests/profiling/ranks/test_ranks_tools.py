"""nsys and ncu around ranks: which ranks, under which names, with which options. Stand-ins for both
write down how they were called, leave a report and run the program."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path

import pytest

from layerline.core.capture_names import CaptureName
from layerline.core.errors import InputError
from layerline.core.files import read_json, write_json
from layerline.core.ranks.identity import host
from layerline.profile.eager.plugins import PLUGINS, Schedule, make
from layerline.profile.ranks import job, launch, tools
from layerline.profile.ranks.launch import Agents
from layerline.profile.ranks.options import Asked
from layerline.profile.ranks.outcome import Outcome
from layerline.profile.ranks.plan import Plan
from layerline.profile.ranks.worker import facts_of
from layerline.profile.train import worker
from layerline.profile.train.command import train

TOOL = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys
given = sys.argv[1:]
with open(os.environ["CALLS"], "a") as f:
    f.write(json.dumps([os.environ.get("RANK"), *given]) + "\\n")
named = next((w.partition("=")[2] for w in given if w.startswith("--output=")), None)
if "export" in given:
    pathlib.Path(named).write_text(given[-1])
    sys.exit()
suffix = ".nsys-rep"
if named is None:
    named, suffix = given[given.index("--export") + 1], ".ncu-rep"
pathlib.Path(named.replace("%%", "%") + suffix).write_text("report")
at = next(n for n, w in enumerate(given) if w in (sys.executable, "bash"))
sys.exit(subprocess.run(given[at:]).returncode)
"""
EXPORTS = f"""#!{sys.executable}
import os, sqlite3, sys
[to] = [w.partition("=")[2] for w in sys.argv if w.startswith("--output=")]
with sqlite3.connect(to) as database:
    database.execute("create table StringIds (id, value)")
    database.execute("create table NVTX_EVENTS (text, textId)")
    database.execute("insert into NVTX_EVENTS values (?, null)", (os.environ["HELD"],))
"""
PROGRAM = ["bash", "-c", "exit 0"]
NOTHING = contextlib.nullcontext()


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    tool = tmp_path / "tool"
    tool.write_text(TOOL.replace("sys.executable,", f"{sys.executable!r},"))
    tool.chmod(0o755)
    for variable in ("NSYS", "NCU"):
        monkeypatch.setenv(variable, str(tool))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def asked(**more: object) -> Asked:
    given = {
        "nproc": 2, "nnodes": 1, "rdzv_id": None, "rdzv_endpoint": None, "ranks": "all",
        "timeout": None, "around_all": False, "delay": None, "duration": None, "launches": None,
        "batches": 1, "replay": "kernel", **more,
    }  # fmt: skip
    return Asked(**given)


def ran(folder: Path, calls: Path, tool: str, schedule: Schedule | None = None, **more: object):
    """Run the program under a tool; the calls that start it, by rank, and the captures."""
    path = folder / "a %d run"
    with job.opened(path, "bf16", asked(**more)) as made:
        job.own(made, PROGRAM, [tool], schedule)
    found = [json.loads(line) for line in calls.read_text().splitlines()]
    started = sorted((c for c in found if "export" not in c[1:2]), key=lambda c: c[0] or "")
    return started, sorted(p.name for p in (path / "captures").iterdir())


def test_each_chosen_rank_has_an_nsys_and_a_name_of_its_own(tmp_path, calls):
    started, names = ran(tmp_path, calls, "nsys", delay=2.0, duration=3.0)
    assert [c[0] for c in started] == ["0", "1"]
    assert all({"--delay=2", "--duration=3", "--kill=none"} < set(c) for c in started)
    assert not any("--capture-range=cudaProfilerApi" in c for c in started)
    stems = [CaptureName("train", "bf16", rank=n, host=host()).stem for n in (0, 1)]
    assert names == sorted(
        stem + suffix for stem in stems for suffix in (".nsys-rep", ".sqlite", ".nsys.meta.json")
    )
    meta = read_json(tmp_path / "a %d run/captures" / f"{stems[1]}.nsys.meta.json")
    assert (meta["rank"], meta["source"]) == (1, f"{stems[1]}.sqlite")


def test_a_schedule_makes_nsys_wait_for_the_programs_window(tmp_path, calls):
    started, _ = ran(tmp_path, calls, "nsys", Schedule(), ranks="1")
    assert [c[0] for c in started] == ["1"]
    assert "--capture-range=cudaProfilerApi" in started[0]


def test_one_nsys_stands_around_all_ranks(tmp_path, calls):
    started, names = ran(tmp_path, calls, "nsys", around_all=True)
    assert [c[0] for c in started] == [None]
    assert "torch.distributed.run" in started[0]
    assert f"train.bf16@{host()}.nsys-rep" in names


def test_batches_of_ncu_follow_one_another_without_collectives(tmp_path, calls):
    started, names = ran(tmp_path, calls, "ncu", launches="500:20", batches=2, ranks="0")
    skipped = [c[c.index("--launch-skip") + 1] for c in started]
    assert sorted(skipped) == ["500", "520"]
    for call in started:
        assert call[call.index("--kernel-name") + 1] == "regex:^(?!nccl)"
        assert call[call.index("--launch-count") + 1] == "20"
        assert "--profile-from-start" not in call
    stem = f"train.bf16.rank0000@{host()}"
    assert {f"{stem}.ncu-rep", f"{stem}.2.ncu-rep"} <= {*names}


def test_application_replay_runs_the_job_again_and_so_stands_around_it(tmp_path, calls):
    started, names = ran(tmp_path, calls, "ncu", launches="20", replay="application")
    assert [c[0] for c in started] == [None]
    assert started[0][started[0].index("--replay-mode") + 1] == "application"
    assert "torch.distributed.run" in started[0]
    assert f"train.bf16@{host()}.ncu-rep" in names


def test_ncu_is_not_let_loose_on_a_whole_training(calls):
    with pytest.raises(InputError, match="every kernel of the job"):
        tools.ncu_prefix(asked(), "x", 0, windowed=False)


def test_what_nsys_captured_of_the_others_is_exported_where_a_rank_dies(
    tmp_path, calls, monkeypatch
):
    dies = ["bash", "-c", '[ "$RANK" = 0 ] || { sleep 2; kill -9 $$; }']
    monkeypatch.setattr(sys.modules[__name__], "PROGRAM", dies)
    with pytest.raises(InputError, match=r"rank 1 of 2 .* captures of ranks 0-1 are kept"):
        ran(tmp_path, calls, "nsys")
    stem = f"train.bf16.rank0000@{host()}"
    assert (tmp_path / "a %d run/captures" / f"{stem}.sqlite").exists()


def test_a_profiler_that_captured_nothing_says_so(tmp_path, calls):
    with pytest.raises(InputError, match=r"torch captured nothing of the program; call .*steps"):
        ran(tmp_path, calls, "torch", nproc=1)


def test_captures_of_ranks_of_an_earlier_job_do_not_pass_for_this_ones(tmp_path, calls):
    captures = tmp_path / "a %d run/captures"
    captures.mkdir(parents=True)
    earlier = {
        f"train.bf16.rank0007@{host()}.trace.json.gz", "train.bf16.rank0000@gone.trace.json.gz",
        f"train.bf16.rank0001@{host()}.trace.json.gz", "train.fp32.rank0007@gone.trace.json.gz",
        "train.bf16.trace.json.gz",
    }  # fmt: skip
    for name in earlier:
        (captures / name).touch()
    _, names = ran(tmp_path, calls, "nsys", around_all=True)
    assert earlier & {*names} == {
        f"train.bf16.rank0001@{host()}.trace.json.gz", "train.fp32.rank0007@gone.trace.json.gz",
        "train.bf16.trace.json.gz",
    }  # fmt: skip


def test_a_rank_that_the_job_does_not_have_is_refused():
    with pytest.raises(InputError, match="there is no rank 4 among 2"):
        asked(ranks="0,4").agents()
    with pytest.raises(InputError, match="need a place to meet"):
        asked(nnodes=2).agents()


@pytest.mark.parametrize("profiled", PLUGINS)
def test_every_plug_in_is_made_of_what_a_rank_is_told(tmp_path, monkeypatch, calls, profiled):
    made: dict[str, set[str]] = {}

    def launched(plan: Plan, agents: Agents, **_: object) -> list[Outcome]:
        told = read_json(Path(plan.program[-1]))
        for rank in range(agents.ranks):
            with monkeypatch.context() as rank_of:
                rank_of.setenv("RANK", str(rank))
                rank_of.setenv("WORLD_SIZE", str(agents.ranks))
                context = worker.context_of(worker.request_of(told), told)
            made.setdefault(context.name.side, set()).update(make(told["profile"], context))
        write_json(facts_of(Path(plan.folder), 0), {"losses": []})
        return [
            Outcome(rank=0, ranks=2, local=0, host=host(), process=1, profiled=True, started_ns=0)
        ]

    monkeypatch.setattr(launch, "run", launched)
    arguments = ["gpt2", "--nproc", "2", "--run", str(tmp_path / "run"), "--profile", profiled]
    train.main(arguments, standalone_mode=False)
    assert made == {f"train.fp32.rank000{n}": {profiled} for n in (0, 1)}


def test_a_report_of_another_training_is_not_taken_for_this_ones(tmp_path, monkeypatch):
    """Every rank's mark is the same, so that it holds also of one report of all ranks."""
    report = tmp_path / f"train.bf16@{host()}.nsys-rep"
    report.touch()
    tool = tmp_path / "nsys"
    tool.write_text(EXPORTS)
    tool.chmod(0o755)
    monkeypatch.setenv("NSYS", str(tool))
    for mark, refused in (("train.bf16", False), ("train.fp32", True)):
        monkeypatch.setenv("HELD", f"layerline/capture/{mark}")
        with pytest.raises(InputError, match=r"holds .*fp32, not .*bf16") if refused else NOTHING:
            tools.export(report, CaptureName("train", "bf16"))
