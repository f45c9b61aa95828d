"""How ncu counts invocations: a capture at the fraction holds every kind of work, or says so."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ncu_fake import Fake, capture, make, reports, runs, seen

from layerline.core import own_ranges
from layerline.core.errors import CheckFailed
from layerline.core.kernel_names import function_name
from layerline.core.replay import match
from layerline.core.replay import plan as plan_
from layerline.core.replay.plan import Launch
from layerline.profile.ncu import capture as capture_
from layerline.profile.ncu import launches as launches_
from layerline.profile.ncu import target as target_
from layerline.profile.ncu import tool

MODULE = "layerline/module/"
PHASE = "layerline/phase/forward"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    return make(tmp_path, monkeypatch)


def fill(index: int, grid: int, module: str) -> Launch:
    """A launch of an eager model, all of one function."""
    place = f"forward/aten::fill/M/{module}"
    size, block = (grid, 1, 1), (128, 1, 1)
    return Launch(index, "fill", "fill", size, block, 32, 0, 0, MODULE + module, 5000, place)


# As ncu's own answers were seen: one function on two grids, A A B B in the range.
TWO_GRIDS = [fill(i, grid, m) for i, (grid, m) in enumerate(
    [(16, "h.0.a"), (16, "h.1.a"), (20, "h.0.b"), (20, "h.1.b")]
)]  # fmt: skip


def eager(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, launches: list[Launch], plan: plan_.Plan
) -> None:
    monkeypatch.setattr(target_.Target, "plan", lambda _self: plan)
    target = dataclasses.replace(fake.target, torch=True)
    capture_.capture(target, tool.Options(), every=False, timeout=30)


def test_one_function_on_two_grids_is_counted_as_one_and_every_kind_is_captured(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = [
        fill(4 * n + i, grid, f"h.{n}.{part}")
        for n in range(6)
        for i, (grid, part) in enumerate([(16, "a"), (16, "b"), (20, "c"), (24, "d")])
    ]
    runs(fake, monkeypatch, blocks)
    eager(fake, monkeypatch, blocks, plan_.plan(blocks))
    (call,) = fake.calls()  # nothing was captured again
    assert "--kernel-id" in call
    meta, plan = fake.read(".ncu.meta.json"), fake.read(".ncu.plan.json")
    assert (meta["every"], meta["verified"], meta["replayed"]) == (False, True, meta["planned"])
    assert meta["share"] <= 0.25
    assert all(x["representative"] is not None for x in plan["launches"])
    for x in plan["launches"]:  # counters of the same part of a block, and of the same grid
        other = plan["launches"][x["representative"]]
        assert (x["grid"], x["place"][-1]) == (other["grid"], other["place"][-1])


def test_an_engine_with_one_function_on_two_grids_needs_one_capture(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches = [
        dataclasses.replace(x, place=None, layer=f"h_{x.index % 2}_{x.grid[0]}/Gemm")
        for x in TWO_GRIDS
    ]
    monkeypatch.setattr(launches_, "of_nsys", lambda _path: launches)
    runs(fake, monkeypatch, launches)
    capture(fake)
    (call,) = fake.calls()
    assert call[call.index("--kernel-id") + 1] == "::regex:^(fill)$:1|3"
    assert fake.read(".ncu.meta.json")["replayed"] == 2
    assert all(x["representative"] is not None for x in fake.read(".ncu.plan.json")["launches"])


def test_a_plan_made_for_counting_by_grid_is_matched_to_what_ncu_took_of_it() -> None:
    """Invocation 1 of each grid is launches 0 and 2; ncu took the first launch alone."""
    of = [TWO_GRIDS[0], TWO_GRIDS[2]]
    found = match.planned_of(TWO_GRIDS, of, seen([TWO_GRIDS[0]]))
    assert found == {0: 0}
    # What was not captured has no counters, and is given none of other work.
    rows = plan_.document(TWO_GRIDS, {"r": found}, of)["launches"]
    assert [x["representative"] for x in rows] == [0, 0, None, None]


def test_an_ncu_that_counts_by_grid_is_told_by_its_order_and_what_lacks_is_replayed(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Invocations 1 and 3: by function launches 0 and 2; by grid 0, 2 and 4.
    launches = [fill(i, (16, 20, 20, 16, 24)[i], f"h.0.{i}") for i in range(5)]
    plan = plan_.Plan(tuple(launches), ("fill",), (1, 3))
    assert [x.index for x in plan.chosen] == [0, 2]
    by_grid = [launches[i] for i in (0, 1, 4)]
    assert match.planned_of(launches, plan.chosen, seen(by_grid)) == {0: 0, 1: 1, 2: 4}
    reports(monkeypatch, by_grid, launches)
    eager(fake, monkeypatch, launches, plan)
    first, second = fake.calls()
    assert "--kernel-id" in first and "--kernel-id" not in second
    assert fake.read(".ncu.meta.json")["every"] is True


def test_a_capture_that_nothing_here_reads_is_taken_again_where_launches_lack(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_.Plan(tuple(TWO_GRIDS), ("fill",), (1, 3))
    reports(monkeypatch, None, None)
    # The stand-in's page has one launch, and two were chosen.
    eager(fake, monkeypatch, TWO_GRIDS, plan)
    assert [("--kernel-id" in c) for c in fake.calls()] == [True, False]


def test_launches_of_two_kinds_that_a_report_does_not_tell_apart_are_given_to_none() -> None:
    bare = [dataclasses.replace(x, layer=None, place=f"forward/{x.layer}") for x in TWO_GRIDS]
    bare[1] = dataclasses.replace(bare[1], place="forward/other")
    with pytest.raises(CheckFailed, match=r"captured 1 of 2 launches of fill with grid .16, 1, 1."):
        match.match(bare, seen(bare[1:]), every=False)
    assert match.match(bare, seen(bare), every=False) == {i: i for i in range(4)}


def test_names_that_no_argument_holds_choose_the_same_numbers_of_every_function() -> None:
    long = [
        dataclasses.replace(fill(i, 16, "h.0.a"), function=f"kernel_{i:06}" + "x" * 90)
        for i in range(1200)
    ]
    plan = plan_.Plan(tuple(long), tuple(x.function for x in long[1:]), (1,))
    assert plan.filters() == ["--kernel-id", ":::1"]
    assert [x.index for x in plan.chosen] == list(range(1200))  # also the one without a name


@pytest.mark.parametrize(
    "kernel",
    [
        "void at::native::<unnamed>::layer_norm<c10::Half, float, 0>(int, T2, const T1 *)",
        "void at::native::(anonymous namespace)::layer_norm<float>(int)",
        "void <unnamed>::layer_norm<at::<unnamed>::X<8>, int>(T1 *)",
        "layer_norm",
    ],
)
def test_a_namespace_without_a_name_is_no_template(kernel: str) -> None:
    assert function_name(kernel) == "layer_norm"


def test_a_librarys_range_inside_a_module_is_not_the_modules_name() -> None:
    inside = [MODULE, MODULE + "h.0", "cub::DeviceScan::InclusiveScan"]
    assert own_ranges.innermost(inside, [PHASE]) == MODULE + "h.0"
    assert own_ranges.innermost(["cub::DeviceScan::InclusiveScan"], [PHASE]) == PHASE
    assert own_ranges.innermost(["enqueue", "h_0/Gemm"], []) is None
