"""`layerline ncu` against a stand-in for ncu: what it is told, and what goes wrong around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from ncu_fake import THREE, Fake, capture, make, reports

from layerline.analysis.captures.counters import captures, counters_of_run
from layerline.core.errors import CheckFailed, InputError, LayerlineError, ToolMissing
from layerline.core.replay.match import Seen
from layerline.core.replay.pieces import Cut, load
from layerline.profile.ncu import command, in_pieces, launches, tool


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return make(tmp_path, monkeypatch)


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
    monkeypatch.setattr(launches, "of_nsys", lambda _path: [*THREE, *THREE])
    monkeypatch.setattr(launches, "of_report", lambda _path: kernels)
    monkeypatch.setenv("FAKE_TOTAL", "6")
    return in_pieces.capture(fake.target, tool.Options(), Cut(3, None), timeout=30)


def test_a_piece_that_died_is_tried_again_and_the_pieces_become_one(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.mode("die once")
    facts = batched(fake, monkeypatch)
    assert (facts["pieces"], facts["launches"]) == (2, 6)
    assert [c.count("--launch-skip") for c in fake.calls()] == [0, 1, 1]
    assert captures(fake.target.run) == [fake.target.file(".ncu.batches")]
    found = counters_of_run(fake.target.run)
    assert found is not None and set(found["launch"].to_pylist()) == set(range(6))


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
    return CliRunner().invoke(command.ncu, arguments)


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
    given = tool.Options(
        metrics=("a", "b"), replay_mode="application", cache_control="none", clock_control="none",
        nvtx_include=("x/",),
    ).arguments()  # fmt: skip
    assert given == [
        "--metrics", "a,b", "--replay-mode", "application", "--app-replay-match", "name",
        "--cache-control", "none", "--clock-control", "none", "--nvtx-include", "x/",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", tool.RANGES)
def test_range_replay_measures_the_iteration_as_one(fake: Fake, mode: str) -> None:
    options = tool.Options(replay_mode=mode)
    command.measure_one(fake.target, options, every=False, timeout=60)
    (call,) = fake.calls()
    # Profiler start and stop are the range; filters by kernel would do nothing.
    assert call[:5] == ["--nvtx", "--section", "ComputeWorkloadAnalysis", "--replay-mode", mode]
    assert not {"--profile-from-start", "--kernel-id", "--kernel-name", "--launch-skip"} & {*call}
    folder = fake.target.file("").parent
    assert (folder / "fp16.tensorrt.ncu-range.ncu-rep").exists()
    meta = json.loads((folder / "fp16.tensorrt.ncu-range.ncu.meta.json").read_text())
    assert meta["launches"] is None and meta["every"] is False
    # No layer's counters: the report does not take them for the engine's.
    assert captures(fake.target.run) == []


@pytest.mark.parametrize(
    "more", [["--every"], ["--kernel-name", "gemm"], ["--batch-launches", "5"]]
)
def test_range_replay_refuses_what_chooses_kernels(fake: Fake, more: list[str]) -> None:
    found = invoke("--run", str(fake.target.run.path), "--replay-mode", "range", *more)
    assert found.exit_code == 2
    assert f"{more[0]} chooses kernels, and --replay-mode range measures ranges" in found.output


def test_empty_text_is_as_if_an_option_was_not_given(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tool.Options] = []
    monkeypatch.setattr(command, "_engines", lambda *_: [fake.target])
    monkeypatch.setattr(command, "_able", lambda *_: None)
    monkeypatch.setattr(command, "measure_one", lambda _, options, **__: given.append(options))
    empty = [x for o in ("section", "set", "metrics", "nvtx-include") for x in (f"--{o}", " ")]
    found = invoke("--run", str(fake.target.run.path), *empty, "--kernel-name", "")
    assert found.exit_code == 0
    found = invoke("--run", str(fake.target.run.path))
    assert found.exit_code == 0
    assert given[0] == given[1] == tool.Options()
    assert given[0].as_json() == tool.Options().as_json()
