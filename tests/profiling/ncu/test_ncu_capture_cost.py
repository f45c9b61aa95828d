"""What a capture under ncu cost is recorded, and what would break its command is seen to."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from ncu_fake import THREE, WORKER, Fake, capture, make, reports

from layerline.core.errors import InputError
from layerline.core.replay import plan as plan_
from layerline.core.replay.pieces import Cut
from layerline.profile.ncu import capture as capture_
from layerline.profile.ncu import in_pieces, launches, target, tool


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return make(tmp_path, monkeypatch)


def test_both_kinds_of_capture_lie_side_by_side(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports(monkeypatch, fake.plan.chosen, list(fake.plan.launches))
    capture(fake)
    capture_.capture(fake.target.every(), tool.Options(), every=True, timeout=30)
    fraction, every = fake.read(".ncu.meta.json"), fake.read(".ncu-every.ncu.meta.json")
    chosen = len(fake.plan.chosen)
    assert (fraction["launches"], fraction["replayed"]) == (21, chosen)
    assert fraction["share"] == pytest.approx(chosen / 21, abs=1e-6)
    assert (every["launches"], every["replayed"], every["share"]) == (21, 21, 1.0)
    assert fraction["inputs"] == every["inputs"] != {}
    for name in (".ncu-rep", ".ncu-every.ncu-rep", ".ncu.plan.json", ".ncu-every.ncu.plan.json"):
        assert fake.target.file(name).exists()


def test_the_profiled_span_is_the_workers_and_the_whole_is_the_tools(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = fake.folder / "worker.py"
    worker.write_text(WORKER.replace('"latency_ns"', '"host_ns": [250000000], "latency_ns"'))
    reports(monkeypatch, fake.plan.chosen)
    capture(fake)
    meta = fake.read(".ncu.meta.json")
    assert meta["profiled_seconds"] == [0.25]
    assert meta["seconds"][0] > 0


def test_clocks_are_said_whatever_ncus_version_does_by_itself() -> None:
    given = tool.Options().arguments()
    assert given[-2:] == ["--clock-control", "base"]
    given = tool.Options(clock_control="none").arguments()
    assert given[-2:] == ["--clock-control", "none"]


def test_a_percent_sign_in_a_path_is_no_macro_of_ncus(tmp_path: Path) -> None:
    given = tool.prefix(["ncu"], tool.Options(), tmp_path / "a %p b" / "out")
    assert given[given.index("--export") + 1] == str(tmp_path / "a %%p b" / "out")
    assert given[given.index("--log-file") + 1] == str(tmp_path / "a %p b" / "out.log")


def test_paths_with_spaces_reach_ncu_whole(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spaced = tmp_path / "with a space"
    spaced.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spaced))
    reports(monkeypatch, fake.plan.chosen)
    capture(fake)
    (call,) = fake.calls()
    assert call[call.index("--export") + 1].startswith(f"{spaced}/")


def test_a_directory_that_is_gone_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(InputError, match="current directory no longer exists"):
        tool.command()


def test_a_process_of_root_that_hangs_cannot_be_ended_and_is_said_so(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("layerline.engines.launch.call", refused)
    with pytest.raises(InputError, match="cannot be ended: it runs as another user"):
        capture(fake)


def test_names_beyond_the_length_of_an_argument_are_left_out_of_the_filter() -> None:
    many = tuple(f"kernel_{i:06}" for i in range(10_000))
    few = plan_.Plan((), ("a", "b"), (1, 3))
    assert few.filters() == ["--kernel-id", "::regex:^(a|b)$:1|3"]
    assert plan_.Plan((), many, (1, 3)).filters() == ["--kernel-id", ":::1|3"]
    assert plan_.names_filter(many) == []
    assert plan_.names_filter(["a"]) == ["--kernel-name", "regex:^(a)$"]


def test_eager_launches_that_are_not_the_chosen_ones_are_all_replayed(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = [dataclasses.replace(x, place=f"forward/mm//h.{x.index}") for x in THREE * 1]
    placed = [dataclasses.replace(x, index=i) for i, x in enumerate(placed)]
    plan = plan_.Plan(tuple(placed), (placed[0].function,), (1,))
    of = dataclasses.replace(fake.target, torch=True)
    monkeypatch.setattr(target.Target, "plan", lambda _self: plan)
    reports(monkeypatch, placed[1:], placed)
    capture_.capture(of, tool.Options(), every=False, timeout=30)
    first, second = fake.calls()
    assert "--kernel-id" in first and "--kernel-id" not in second
    meta = fake.read(".ncu.meta.json")
    assert (meta["every"], meta["replayed"], meta["verified"]) == (True, 3, True)


@pytest.mark.parametrize("size", [6, 2, 1])
def test_pieces_of_any_size_are_one_table(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(launches, "of_nsys", lambda _path: [*THREE, *THREE])
    monkeypatch.setenv("FAKE_TOTAL", "6")
    monkeypatch.setattr(launches, "of_report", lambda _path: None)
    in_pieces.capture(fake.target, tool.Options(), Cut(size, None), timeout=30)
    skips = [c[c.index("--launch-skip") + 1] for c in fake.calls() if "--launch-skip" in c]
    assert skips == [str(n) for n in range(size, 6, size)]
    meta = fake.read(".ncu.meta.json")
    assert (meta["launches"], meta["replayed"], meta["every"]) == (6, 6, True)
    assert len(meta["pieces"]) == 6 // size
