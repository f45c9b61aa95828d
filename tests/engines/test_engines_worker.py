"""The worker's protocol and its launcher: statistics, limits, errors, crashes, no orphans."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_fakes import alive

from layerline.core import series, stats
from layerline.core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from layerline.engines import launch
from layerline.engines.backend import Worker
from layerline.engines.workers import common

FOLDER = Path(common.__file__).resolve().parent


def a_job(**changes: Any) -> dict[str, Any]:
    job = {
        "protocol": 1,
        "task": "latency",
        "engine": "e",
        "inputs": "i",
        "precision": "fp32",
        "warmup": 1,
        "iterations": {"min": 6, "max": 50},
        "target": 0.02,
        "seconds": 10,
        "threads": 1,
        "raw": None,
        "options": {},
        "result": "r",
    }
    return {**job, **changes}


class Clock:
    """A clock that `run` advances by the next duration, and nothing else does."""

    def __init__(self, durations: list[int]) -> None:
        self.now = 0
        self.durations = iter(durations)

    def __call__(self) -> int:
        return self.now

    def run(self) -> None:
        self.now += next(self.durations)


def test_stops_at_the_target() -> None:
    clock = Clock([999, *[100] * 50])
    found = common.repeat(clock.run, a_job(), clock)
    assert found["warmup_ns"] == [999]
    assert found["latency_ns"] == [100] * 6
    assert found["facts"]["ended_by"] == "target"
    assert found["facts"]["target_met"] is True


def test_says_that_the_target_was_not_met() -> None:
    clock = Clock([1, *[100, 200] * 30])
    found = common.repeat(clock.run, a_job(), clock)
    assert len(found["latency_ns"]) == 50
    assert found["facts"]["ended_by"] == "iterations"
    assert found["facts"]["target_met"] is False


def test_seconds_end_it_but_six_samples_may_take_three_times_as_long() -> None:
    second = 1_000_000_000
    clock = Clock([1, *[2 * second, 3 * second] * 10])
    found = common.repeat(clock.run, a_job(seconds=6), clock)
    assert len(found["latency_ns"]) == 6
    assert found["facts"]["ended_by"] == "seconds"
    clock = Clock([1, *[10 * second] * 10])
    found = common.repeat(clock.run, a_job(seconds=5), clock)
    assert len(found["latency_ns"]) == 2
    assert found["facts"]["relative_width"] is None


@given(st.lists(st.integers(1, 10**12), min_size=1, max_size=60))
def test_statistics_are_those_of_the_core(samples: list[int]) -> None:
    summary = series.in_order(samples)
    assert summary is not None
    assert common.relative_width(samples) == summary.relative_width


@given(st.integers(1, 400))
def test_rank_of_the_interval_is_that_of_the_core(n: int) -> None:
    assert common.interval_rank(n) == stats.interval_rank(n)


@pytest.mark.parametrize("script", sorted(FOLDER.glob("*.py")), ids=lambda p: p.name)
def test_worker_is_python_3_10_and_imports_no_layerline(script: Path) -> None:
    tree = ast.parse(script.read_text(), feature_version=(3, 10))
    guarded = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for statement in block.body
        for node in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if id(node) in guarded:
            continue
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("layerline")
            assert node.module != "datetime" or "UTC" not in {a.name for a in node.names}
        if isinstance(node, ast.Import):
            assert not any(a.name.split(".")[0] in ("layerline", "tomllib") for a in node.names)


def test_worker_runs_with_a_safe_path(tmp_path: Path) -> None:
    """PYTHONSAFEPATH keeps a script's folder off sys.path; its siblings are found all the same."""
    job = a_job(task="nonsense", result=str(tmp_path / "result.json"))
    (tmp_path / "job.json").write_text(json.dumps(job))
    worker = FOLDER / "onnxruntime_worker.py"
    subprocess.run(
        [sys.executable, str(worker), str(tmp_path / "job.json")],
        env={"PATH": os.environ["PATH"], "PYTHONSAFEPATH": "1"},
        check=True,
    )
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["ok"] is False
    assert "latency" in result["error"]["what"]


def a_worker(tmp_path: Path, body: str) -> Worker:
    script = tmp_path / "worker.py"
    script.write_text(f"import json, os, sys, time\njob = json.load(open(sys.argv[1]))\n{body}\n")
    return Worker((sys.executable, str(script)))


def answer(value: str) -> str:
    return f"json.dump({value}, open(job['result'], 'w'))"


def test_result_comes_back(tmp_path: Path) -> None:
    worker = a_worker(tmp_path, answer("{'protocol': 1, 'ok': True, 'x': job['y']}"))
    assert launch.call(worker, {"y": 3})["x"] == 3


@pytest.mark.parametrize(("code", "kind"), [(1, CheckFailed), (2, InputError), (3, ToolMissing)])
def test_errors_keep_their_exit_code(tmp_path: Path, code: int, kind: type[LayerlineError]) -> None:
    error = f"{{'exit_code': {code}, 'what': 'w', 'fix': 'f'}}"
    worker = a_worker(tmp_path, answer(f"{{'protocol': 1, 'ok': False, 'error': {error}}}"))
    with pytest.raises(kind, match="w; f"):
        launch.call(worker, {})


def test_crash_shows_the_last_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"exit status 1.*ZeroDivisionError"):
        launch.call(a_worker(tmp_path, "1 / 0"), {})


def test_killed_worker_speaks_of_memory(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="memory"):
        launch.call(a_worker(tmp_path, "os.kill(os.getpid(), 9)"), {})


def test_other_protocol_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="protocol"):
        launch.call(a_worker(tmp_path, answer("{'protocol': 2, 'ok': True}")), {})


def test_missing_interpreter_is_a_missing_tool() -> None:
    with pytest.raises(ToolMissing, match="cannot be started"):
        launch.call(Worker(("/nonexistent/python", "worker.py")), {})


def test_environment_is_changed_and_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GONE", "1")
    body = answer("{'protocol': 1, 'ok': True, 'e': [os.environ.get('GONE'), os.environ['NEW']]}")
    worker = a_worker(tmp_path, body)
    changed = Worker(worker.command, {"GONE": None, "NEW": "2"})
    assert launch.call(changed, {})["e"] == [None, "2"]


def test_worker_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(60)"
    )
    with pytest.raises(InputError, match="did not end"):
        launch.call(a_worker(tmp_path, body), {}, timeout=5)
    found = [int(p) for p in pids.read_text().split()]
    assert len(found) == 2
    deadline = time.monotonic() + 60
    while any(map(alive, found)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, found))


def test_interrupt_ends_the_worker(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"open({str(pids)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)"

    def interrupt() -> None:
        while not (pids.exists() and pids.read_text()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        launch.call(a_worker(tmp_path, body), {})
    thread.join()
    assert not alive(int(pids.read_text()))


def test_a_worker_that_crashes_says_where_and_what_it_printed_before(tmp_path: Path) -> None:
    script = tmp_path / "crashing_worker.py"
    script.write_text(
        "import faulthandler, sys\n"
        "faulthandler.enable()\n"
        "print('the library complains', file=sys.stderr, flush=True)\n"
        "def loading():\n"
        "    faulthandler._sigsegv()\n"
        "loading()\n"
    )
    with pytest.raises(InputError) as raised:
        launch.call(Worker((sys.executable, str(script))), a_job())
    assert "signal 11" in raised.value.what
    words = raised.value.what.partition(": ")[2]
    assert words.startswith("the library complains; Segmentation fault in File ")
    assert words.endswith("line 5 in loading")


def test_a_worker_that_had_no_room_on_the_disk_is_said_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "worker.py"
    script.write_text("raise SystemExit(1)")
    worker = Worker((sys.executable, str(script)))
    with pytest.raises(InputError, match="exit status 1"):
        launch.call(worker, a_job())
    full = SimpleNamespace(free=4096)
    monkeypatch.setattr("layerline.core.files.shutil.disk_usage", lambda _: full)
    with pytest.raises(InputError, match="there is no space left on its disk; free space"):
        launch.call(worker, a_job())
