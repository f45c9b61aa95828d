"""A stand-in for ncu, and a run with one engine to use it on."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from paths import DATA

from layerline.core.replay.match import Seen
from layerline.core.replay.plan import Launch
from layerline.core.run import open_run
from layerline.engines.backend import Worker
from layerline.profile.ncu import capture as capture_
from layerline.profile.ncu import launches as launches_
from layerline.profile.ncu import target
from layerline.profile.ncu import tool as tool_

FAKE = f"""#!{sys.executable}
import collections, json, os, pathlib, re, signal, subprocess, sys, time
given = sys.argv[1:]
here = pathlib.Path(os.environ["FAKE"])
with (here / "calls").open("a") as f:
    f.write(json.dumps(given) + "\\n")
if "--import" in given:
    print('"ID","Process ID","m"\\n"","","%"\\n"0","1","2"')
    sys.exit()
if "--query-metrics" in given:
    print("Device NVIDIA GH100 (GH100)\\n" + "-" * 20)
    print("sm__cycles_active.avg   # of cycles with at least one warp in flight")
    sys.exit()
mode = (here / "mode").read_text() if (here / "mode").exists() else ""
output = given[given.index("--export") + 1]
log = pathlib.Path(given[given.index("--log-file") + 1])
at = given.index("--log-file") + 2
skip = int(given[given.index("--launch-skip") + 1]) if "--launch-skip" in given else 0
replayed = given[given.index("--replay-mode") + 1] if "--replay-mode" in given else "kernel"
if "range" in replayed and "--profile-from-start" in given:
    # As ncu 2025.3.1 says it, before it starts the program.
    print("==ERROR== Option profile-from-start is not supported during range replay.")
    sys.exit(1)
if mode == "forbidden":
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access")
    sys.exit(subprocess.call(given[at:]))
if mode == "hang":
    log.write_text('==PROF== Profiling "good" - 0: 0%\\n==PROF== Profiling "ncclAll" - 1: 0%')
    time.sleep(60)
if mode == "die once" and skip:
    (here / "mode").write_text("")
    os.kill(os.getpid(), signal.SIGSEGV)
if mode == "die" and skip:
    os.kill(os.getpid(), signal.SIGSEGV)
if mode == "nothing":
    log.write_text("==WARNING== No kernels were profiled.")
    sys.exit(subprocess.call(given[at:]))
left = int(os.environ.get("FAKE_TOTAL", "2")) - skip
asked = int(given[given.index("--launch-count") + 1]) if "--launch-count" in given else left
count = min(left, asked)
if (here / "program").exists():
    # As ncu 2025.3.1 on Hopper: invocations are counted per function name, whatever the grid.
    name, numbers = ".*", None
    if "--kernel-id" in given:
        _, _, *middle, last = given[given.index("--kernel-id") + 1].split(":")
        name, numbers = middle[-1] or ".*", {{int(n) for n in last.split("|")}}
    if "--kernel-name" in given:
        name = given[given.index("--kernel-name") + 1].removeprefix("regex:")
    counted, profiled = collections.Counter(), []
    for place, function in enumerate(json.loads((here / "program").read_text())):
        counted[function] += 1
        if re.search(name, function) and (numbers is None or counted[function] in numbers):
            profiled.append(place)
    (here / "profiled").write_text(json.dumps(profiled))
    count = len(profiled)
log.write_text("".join(f'==PROF== Profiling "k" - {{i}}: 100%\\n' for i in range(count)))
if count:
    report = pathlib.Path(os.environ["FAKE_REPORT"]).read_bytes()
    pathlib.Path(output + ".ncu-rep").write_bytes(report)
else:
    log.write_text("==WARNING== No kernels were profiled.")
sys.exit(subprocess.call(given[at:]))
"""
WORKER = """
import json, sys
job = json.load(open(sys.argv[-1]))
result = {"protocol": 1, "ok": True, "latency_ns": [5], "warmup_ns": [], "facts": {}}
json.dump(result, open(job["result"], "w"))
"""


class Fake:
    """A run with one engine, its nsys capture, and a stand-in for ncu."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        run = open_run(folder / "run", create=True)
        sqlite = run.file("captures", "fp16.tensorrt.sqlite")
        sqlite.parent.mkdir(parents=True)
        shutil.copy(DATA / "nsys" / "h100_tensorrt86_fp16.sqlite", sqlite)
        worker, engine = folder / "worker.py", folder / "engine"
        worker.write_text(WORKER)
        engine.write_text("engine")
        self.target = target.Target(
            run,
            "fp16.tensorrt",
            Worker((sys.executable, str(worker))),
            lambda warmup: {"task": "trace", "warmup": warmup},
            [engine],
            sqlite,
            {"precision": "fp16"},
        )
        self.plan = self.target.plan()
        assert self.plan is not None

    def mode(self, mode: str) -> None:
        (self.folder / "mode").write_text(mode)

    def calls(self) -> list[list[str]]:
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [json.loads(x) for x in lines if "--import" not in x]

    def read(self, name: str) -> Any:
        return json.loads(self.target.file(name).read_text())


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    tool = tmp_path / "ncu"
    tool.write_text(FAKE)
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("NCU", f"env EXTRA=1 {tool}")
    monkeypatch.setenv("FAKE", str(tmp_path))
    monkeypatch.setenv("FAKE_REPORT", str(DATA / "ncu" / "two_kernels.ncu-rep"))
    return Fake(tmp_path)


def reports(monkeypatch: pytest.MonkeyPatch, *answers: list[Any] | None) -> None:
    """What each report that is read holds, as launches of the plan."""
    left = [
        None
        if launches is None
        else [Seen(i, x.function, x.grid, x.block, x.layer) for i, x in enumerate(launches)]
        for launches in answers
    ]
    monkeypatch.setattr(launches_, "of_report", lambda _path: left.pop(0))


def runs(fake: Fake, monkeypatch: pytest.MonkeyPatch, launches: list[Launch]) -> None:
    """The program launches these; what ncu profiled of them is what a report holds."""
    (fake.folder / "program").write_text(json.dumps([x.function for x in launches]))

    def held(_path: Path) -> list[Seen]:
        places = json.loads((fake.folder / "profiled").read_text())
        chosen = [launches[i] for i in places]
        return [Seen(i, x.function, x.grid, x.block, x.layer) for i, x in enumerate(chosen)]

    monkeypatch.setattr(launches_, "of_report", held)


def capture(fake: Fake, *, every: bool = False, timeout: float = 30) -> dict[str, Any]:
    return capture_.capture(fake.target, tool_.Options(), every=every, timeout=timeout)


THREE = launches_.of_nsys(DATA / "nsys" / "h100_tensorrt86_fp16.sqlite")[:3]


def seen(launches: list[Launch]) -> list[Seen]:
    """What a report of these launches holds of them."""
    return [Seen(i, x.function, x.grid, x.block, x.layer) for i, x in enumerate(launches)]
