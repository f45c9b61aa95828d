"""`layerline ncu` against a stand-in for ncu: what it is told, and what goes wrong around it."""

from __future__ import annotations

import json
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from layerline.analysis.counters_run import captures
from layerline.core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from layerline.core.run import open_run
from layerline.engines.backend import Worker
from layerline.profile import (
    ncu,
    ncu_batched,
    ncu_capture,
    ncu_command,
    ncu_launches,
    ncu_target,
)
from layerline.profile.ncu_batches import Cut, load
from layerline.profile.ncu_plan import Seen

DATA = Path(__file__).parent / "data"
FAKE = f"""#!{sys.executable}
import json, os, pathlib, signal, subprocess, sys, time
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
        self.target = ncu_target.Target(
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
        lines = (self.folder / "calls").read_text().splitlines()
        return [json.loads(x) for x in lines if "--import" not in x]

    def read(self, name: str) -> Any:
        return json.loads(self.target.file(name).read_text())


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
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
    monkeypatch.setattr(ncu_launches, "of_report", lambda _path: left.pop(0))


def capture(fake: Fake, *, every: bool = False, timeout: float = 30) -> dict[str, Any]:
    return ncu_capture.capture(fake.target, ncu.Options(), every=every, timeout=timeout)


def test_only_chosen_launches_are_replayed_and_the_capture_says_so(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(monkeypatch, fake.plan.chosen)
    capture(fake)
    (call,) = fake.calls()
    assert call[:3] == ["--nvtx", "--profile-from-start", "off"]
    assert call[3:5] == ["--section", "ComputeWorkloadAnalysis"]
    assert call[call.index("--kernel-id") + 1].startswith("::regex:^(")
    assert call[call.index("--clock-control") + 1] == "base"
    meta, plan = fake.read(".ncu.meta.json"), fake.read(".ncu.plan.json")
    assert (meta["launches"], meta["replayed"]) == (21, len(fake.plan.chosen))
    assert meta["verified"] is True and meta["csv"] == ["fp16.tensorrt.ncu.csv"]
    assert all(x["representative"] is not None for x in plan["launches"])


def test_kinds_of_work_that_ncu_left_out_are_captured_by_name(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = fake.plan.chosen[-1]
    rest = [x for x in fake.plan.chosen if x.key != lost.key]
    reports(monkeypatch, rest, [x for x in fake.plan.launches if x.function == lost.function])
    capture(fake)
    second = fake.calls()[1]
    assert second[second.index("--kernel-name") + 1] == f"regex:^({lost.function})$"
    assert fake.target.file(".2.ncu-rep").exists()
    assert all(x["representative"] is not None for x in fake.read(".ncu.plan.json")["launches"])


def test_launches_that_were_not_planned_fail_but_leave_the_capture(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(monkeypatch, fake.plan.launches[:-1])
    with pytest.raises(CheckFailed, match=r"launch 20 was .* under nsys and nothing under ncu"):
        capture(fake, every=True)
    assert fake.target.file(".ncu-rep").exists()
    assert fake.read(".ncu.meta.json")["verified"] is False


def test_a_capture_that_cannot_be_read_here_is_unverified(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(monkeypatch, None)
    capture(fake)
    assert fake.read(".ncu.meta.json")["verified"] is None
    assert fake.read(".ncu.plan.json")["reports"] == {}


def test_counters_that_are_forbidden_come_with_nvidias_remedy(fake: Fake) -> None:
    fake.mode("forbidden")
    with pytest.raises(ToolMissing, match="NVreg_RestrictProfilingToAdminUsers=0") as e:
        capture(fake)
    assert e.value.exit_code == 3
    assert not fake.target.file(".ncu-rep").exists()


def test_a_capture_that_hangs_is_ended_and_its_kernel_named(fake: Fake) -> None:
    fake.mode("hang")
    with pytest.raises(InputError, match='the last kernel that ncu began is "ncclAll", number 1'):
        capture(fake, timeout=2)


def test_no_kernel_that_fits_is_no_success(fake: Fake) -> None:
    fake.mode("nothing")
    with pytest.raises(LayerlineError, match="ncu profiled no kernel"):
        capture(fake, every=True)


def batched(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    kernels = [Seen(i, x.function, x.grid, x.block, x.layer) for i, x in enumerate(THREE)]
    monkeypatch.setattr(ncu_launches, "of_nsys", lambda _path: [*THREE, *THREE])
    monkeypatch.setattr(ncu_launches, "of_report", lambda _path: kernels)
    monkeypatch.setenv("FAKE_TOTAL", "6")
    return ncu_batched.capture(fake.target, ncu.Options(), Cut(3, None), timeout=30)


THREE = ncu_launches.of_nsys(DATA / "nsys" / "h100_tensorrt86_fp16.sqlite")[:3]


def test_a_piece_that_died_is_tried_again_and_the_pieces_become_one(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.mode("die once")
    facts = batched(fake, monkeypatch)
    assert (facts["pieces"], facts["launches"]) == (2, 6)
    assert [c.count("--launch-skip") for c in fake.calls()] == [0, 1, 1]
    assert captures(fake.target.run) == [fake.target.file(".ncu.csv")]
    rows = fake.target.file(".ncu.csv").read_text().splitlines()
    assert [r.split(",")[0] for r in rows] == ['"ID"', '""', *(f'"{n}"' for n in range(6))]


def test_what_is_done_is_not_done_again(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.mode("die")
    with pytest.raises(
        CheckFailed, match=r"launches-3\.part-0\.ncu-rep: this piece failed: .*signal 11"
    ):
        batched(fake, monkeypatch)
    manifest = load(fake.target.file(".ncu.batches") / "manifest.json")
    assert [t.status for t in manifest.taken] == ["done", "failed"]
    fake.mode("")
    before = len(fake.calls())
    batched(fake, monkeypatch)
    (again,) = fake.calls()[before:]
    assert again[again.index("--launch-skip") + 1] == "3"


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(ncu_command.ncu, arguments)


def test_metrics_are_listed_into_a_file_with_descriptions(fake: Fake) -> None:
    run = str(fake.target.run.path)
    assert invoke("--query", "--run", run).output.startswith("1 metrics in")
    listed = (fake.target.run.path / "captures" / "ncu-metrics.txt").read_text()
    assert "# of cycles with at least one warp in flight" in listed


def test_without_ncu_the_exit_code_is_3(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NCU", "no-such-ncu")
    with pytest.raises(ToolMissing, match="no-such-ncu is not on the PATH"):
        capture(fake)


def test_onnxruntime_has_no_gpu_kernels_to_count(fake: Fake) -> None:
    found = invoke("--run", str(fake.target.run.path), "--backend", "onnxruntime")
    assert isinstance(found.exception, InputError)
    assert found.exception.exit_code == 2


def test_application_replay_matches_by_name() -> None:
    given = ncu.Options(
        metrics=("a", "b"), replay_mode="application", cache_control="none", clock_control="none",
        nvtx_include=("x/",),
    ).arguments()  # fmt: skip
    assert given == [
        "--metrics", "a,b", "--replay-mode", "application", "--app-replay-match", "name",
        "--cache-control", "none", "--clock-control", "none", "--nvtx-include", "x/",
    ]  # fmt: skip
