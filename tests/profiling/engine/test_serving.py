"""Workers that stay: started before they are needed, one job after the other, no orphans."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from serving_fakes import alive, install
from serving_fakes import worker as fake_worker

from layerline.core.errors import LayerlineError
from layerline.engines import launch
from layerline.engines.backend import Worker
from layerline.profile.engine.loads import Loads

SERVES = """
import json, os, sys, time
from layerline.engines.workers import common

def work(job):
    if job["options"] == "dies":
        os.kill(os.getpid(), 9)
    if job["options"] == "refuses":
        raise common.WorkerError("no", "else")
    if job["options"] == "hangs":
        time.sleep(60)
    return {"pid": os.getpid()}

sys.exit(common.main({"work": work}, sys.argv[1:]))
"""


def serving() -> launch.Serving:
    return launch.Serving(Worker((sys.executable, "-c", SERVES)))


def work(how: str = "") -> dict[str, str]:
    return {"task": "work", "options": how}


def test_a_worker_that_stays_does_its_jobs_in_one_process_and_ends() -> None:
    with serving() as worker:
        worker.start(work())
        worker.ready(60)
        pids = {worker.call(work(), 60)["pid"] for _ in range(3)}
    assert len(pids) == 1
    assert not alive(pids.pop())


@pytest.mark.parametrize(
    ("how", "said"), [("dies", "memory"), ("refuses", "no; else"), ("hangs", "did not end")]
)
def test_after_an_error_the_next_job_has_a_new_process(how: str, said: str) -> None:
    """Whatever the error left behind, memory of a GPU or a broken context, is gone."""
    with serving() as worker:
        first = worker.call(work(), 60)["pid"]
        with pytest.raises(LayerlineError, match=said):
            worker.call(work(how), 1 if how == "hangs" else 60)
        assert not alive(first)
        assert worker.call(work(), 60)["pid"] != first


def test_a_worker_that_waits_for_a_job_ends_with_its_parent(tmp_path: Path) -> None:
    """Killed, so that nothing of it can tell the worker."""
    parent = (
        "import sys, time; from layerline.engines import launch; "
        "from layerline.engines.backend import Worker; "
        f"worker = launch.Serving(Worker((sys.executable, '-c', {SERVES!r}))); "
        "print(worker.call({'task': 'work', 'options': ''})['pid'], flush=True); time.sleep(60)"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        assert alive(pid)
        process.kill()
    deadline = time.monotonic() + 60
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_all_processes_of_an_engine_have_started_before_the_first_is_given_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = install(tmp_path, monkeypatch)
    with Loads(fake_worker(), {"task": "ready"}, 3) as loads:
        loads.ready()
        assert len(log.read_text().splitlines()) == 3
        for _ in range(4):  # one more than waits
            loads.call({"task": "latency"}, 60)
    lines = [line.split() for line in log.read_text().splitlines()]
    assert [job for _, job in lines] == ["ready"] * 3 + ["latency"] * 4
    ready, measured = lines[:3], lines[3:]
    assert len({pid for pid, _ in measured}) == 4
    assert {pid for pid, _ in ready} == {pid for pid, _ in measured[:3]}
