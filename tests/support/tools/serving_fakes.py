"""Workers that stay and an nsys around them, without torch and a GPU: what they did is in a log."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from layerline.core.files import write_json
from layerline.core.run import Run, open_run
from layerline.engines.backend import Worker
from layerline.profile.eager import nsys, process

# Environment: LOG, a line "PID task part" for each job; FAILS, the task that is an error.
WORKER = """
import json, os, sys
from pathlib import Path
from layerline.core.files import write_json
from layerline.engines.workers.common import jobs

for path in jobs(Path(sys.argv[1])):
    job = json.load(open(path))
    name = " ".join(filter(None, [job["task"], job.get("precision"), job.get("part")]))
    with open(os.environ["LOG"], "a") as f:
        print(os.getpid(), name, file=f)
    answer = {"protocol": 1, "ok": True, "facts": {"seen": job.get("options")}, "latency_ns": [7]}
    if job["task"] == os.environ.get("FAILS"):
        error = {"exit_code": 2, "what": "out of luck", "file": None, "fix": "wait"}
        answer = {"protocol": 1, "ok": False, "error": error}
    elif job["task"] != "ready":
        for file in job.get("files", {}).values():
            Path(file).write_text(str(os.getpid()))
        if "MARKS" in os.environ:
            with open(os.environ["MARKS"], "a") as f:
                print(job["mark"], file=f)
    write_json(Path(job["result"]), answer)
"""

# Environment: SWAPS, several reports come in another order; LOSES, the last of several is missing.
NSYS = """#!{python}
import os, sqlite3, subprocess, sys
a = sys.argv[1:]
at = next(i for i, x in enumerate(a) if x.startswith("--output="))
out = a[at].split("=", 1)[1]
if a[0] == "profile":
    marks = out + ".marks"
    code = subprocess.run(a[at + 1:], env={{**os.environ, "MARKS": marks}}).returncode
    found = open(marks).read().split() if os.path.exists(marks) else []
    several = "--capture-range-end=stop" not in a
    if several and "SWAPS" in os.environ:
        found.reverse()
    if several and "LOSES" in os.environ:
        found.pop()
    for number, mark in enumerate(found, 1):
        name = f"{{out}}.{{number}}.nsys-rep" if several else f"{{out}}.nsys-rep"
        open(name, "w").write(mark)
    sys.exit(code)
with open(os.environ["LOG"], "a") as f:
    print(0, "export", file=f)
if "BREAKS" in os.environ:
    sys.exit("cannot read it")
with sqlite3.connect(out) as database:
    database.execute("create table NVTX_EVENTS (text, textId)")
    database.execute("create table StringIds (id, value)")
    database.execute("insert into NVTX_EVENTS values (?, null)", [open(a[-1]).read()])
"""


def a_run(path: Path) -> Run:
    """A run that was exported, as far as steps look at it."""
    run = open_run(path / "run", create=True)
    write_json(run.file("export", "model.json"), {})
    run.file("export", "inputs.npz").write_bytes(b"inputs")
    return run


def install(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the fakes in the place of the eager workers and of nsys; gives the log."""
    log = path / "log"
    log.touch()
    tool = path / "nsys"
    tool.write_text(NSYS.format(python=sys.executable))
    tool.chmod(0o755)
    monkeypatch.setenv("LOG", str(log))
    monkeypatch.setenv("NSYS", str(tool))
    monkeypatch.setattr(process, "WORKER", worker())
    monkeypatch.setattr(nsys, "WORKER", worker())
    monkeypatch.setattr(process, "cuda_usable", lambda: True)
    return log


def worker() -> Worker:
    """The fake worker."""
    return Worker((sys.executable, "-c", WORKER))


def done(log: Path) -> list[tuple[int, str]]:
    """(process, job) of each job in its order, those that only make ready left out; the log is
    emptied."""
    lines = [line.partition(" ") for line in log.read_text().splitlines()]
    log.write_text("")
    return [(int(pid), job) for pid, _, job in lines if job != "ready"]


def alive(pid: int) -> bool:
    """Whether a process runs: a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
