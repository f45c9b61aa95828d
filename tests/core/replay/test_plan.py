"""Which launches are the same work, and what a report of ncu holds of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from ncu_fake import seen
from paths import DATA

from layerline.analysis.counters import representatives
from layerline.analysis.counters.representatives import SameWork
from layerline.core.errors import CheckFailed, InputError
from layerline.core.replay import match
from layerline.core.replay import plan as plan_
from layerline.core.replay.match import Seen
from layerline.core.replay.plan import Launch
from layerline.core.tables import table
from layerline.profile.ncu import launches as launches_

GRID, BLOCK = (2, 2, 1), (128, 1, 1)


def launch(index: int, kernel: str, layer: str | None, ns: int = 5000) -> Launch:
    return Launch(index, kernel, kernel, GRID, BLOCK, 94, 0, 512, layer, ns)


def block(number: int) -> list[Launch]:
    """Four launches of one block: two products of one tile, a fusion, an attention."""
    at = 4 * number
    return [
        launch(at, "gemm", f"h_{number}_attn_c_proj/Gemm"),
        launch(at + 1, "gemm", f"h_{number}_mlp_c_proj/Gemm", 9000),
        launch(at + 2, f"__myl_bb0_{number}_AddMul", f"h_{number}/Add"),
        launch(at + 3, f"mha{number}", f"h_{number}_attn/MatMul_1"),
    ]


MODEL = [x for number in range(12) for x in block(number)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("__myl_bb0_7_AddCas", "__myl_bb*_*_AddCas"),
        ("__myl_bb1_12_AddCas", "__myl_bb*_*_AddCas"),
        ("exp__mye126", "exp__mye*"),
        ("_gemm_mha1", "_gemm_mha1"),
        ("mha0", "mha*"),
        ("sm80_xmma_gemm_f16f16_tilesize32x32x64_stage3", None),
        ("gemm_kernel_2", None),
    ],
)
def test_only_the_index_of_an_instance_leaves_a_kernels_name(name: str, kind: str | None) -> None:
    assert plan_.kernel_kind(name) == (kind or name)


def test_a_layers_block_is_left_out_and_nothing_else_of_its_numbers() -> None:
    kind = plan_.layer_kind
    assert kind("h_3_ln_1/Norm+h_3_attn/MatMul_1") == "h_*_ln_1/Norm+h_*_attn/MatMul_1"
    assert kind("h_3_ln_1/Norm") != kind("h_3_ln_2/Norm")
    assert kind("h_3_attn/MatMul_1") != kind("h_3_attn/MatMul_2")
    assert kind("exp__mye126") == kind("exp__mye139")


def test_products_of_one_tile_and_grid_with_other_layers_are_not_the_same_work() -> None:
    kinds = plan_.kinds(MODEL)
    assert kinds[0] == kinds[4] and kinds[0] != kinds[1]
    assert len(set(kinds.values())) == 4


def test_numbers_that_are_no_blocks_do_not_merge_work_of_other_durations() -> None:
    launches = [launch(0, "gemm", "linear_1/Gemm", 5000), launch(1, "gemm", "linear_2/Gemm", 20000)]
    assert len(set(plan_.kinds(launches).values())) == 2


@pytest.mark.parametrize(
    ("times", "count"),
    [
        ((10_000, 15_000), 1),  # half as long again: as noise may be
        ((10_000, 15_001), 2),
        ((1_000, 4_000), 1),  # 3 µs apart: likewise
        ((1_000, 4_001), 2),
    ],
)
def test_work_is_told_apart_by_durations_beyond_both_limits(
    times: tuple[int, int], count: int
) -> None:
    launches = [launch(i, "gemm", f"linear_{i}/Gemm", ns) for i, ns in enumerate(times)]
    assert len(set(plan_.kinds(launches).values())) == count


def test_launches_of_one_layer_with_other_durations_are_each_their_own_work() -> None:
    launches = [launch(i, "gemm", "head/Gemm", ns) for i, ns in enumerate((5000, 5000, 20_000))]
    assert len(set(plan_.kinds(launches).values())) == 3


def test_places_of_eager_launches_tell_work_of_other_durations_apart() -> None:
    def placed(module: str, times: tuple[int, int]) -> int:
        launches = [
            replace(launch(i, "gemm", None, ns), place=f"forward/mm/Linear/{module.format(i)}")
            for i, ns in enumerate(times)
        ]
        return len(set(plan_.kinds(launches).values()))

    assert placed("h.{}.c_fc", (5000, 5000)) == 1
    assert placed("h.{}.c_fc", (5000, 20_000)) == 2
    assert placed("head", (5000, 20_000)) == 2


def test_names_that_are_too_long_for_an_argument_are_left_out() -> None:
    assert plan_.names_filter(["b::f", "a"]) == ["--kernel-name", "regex:^(a|b..f)$"]
    fits = "k" * (plan_.LONGEST - len("^()$"))
    assert plan_.names_filter([fits])[1] == f"regex:^({fits})$"
    assert plan_.names_filter([fits + "k"]) == []
    # With one number beside it, and so a character less.
    for name, there in ((fits[1:], True), (fits, False)):
        one = launch(0, name, "h_0/X")
        plan = plan_.Plan((one, launch(1, "other", "h_1/X")), (name,), (1,))
        assert plan.filters() == ["--kernel-id", f"::{f'regex:^({name})$' if there else ''}:1"]
        # Without names the first of every kernel is replayed.
        assert [x.index for x in plan.chosen] == ([0] if there else [0, 1])


def test_of_each_kind_that_was_not_measured_the_first_launch_is_told() -> None:
    assert [x.index for x in plan_.missing(MODEL, [])] == [0, 1, 2, 3]
    assert [x.index for x in plan_.missing(MODEL, [4, 46])] == [1, 3]


def test_a_plan_says_what_ncu_was_told() -> None:
    assert plan_.document(MODEL, {})["chosen"] is None
    assert plan_.document(MODEL, {}, MODEL[:2])["chosen"] == [0, 1]


def test_launches_without_a_layer_are_each_their_own_work() -> None:
    launches = [launch(0, "gemm", None), launch(1, "gemm", None)]
    assert len(set(plan_.kinds(launches).values())) == 2


def test_at_most_a_quarter_is_replayed_and_every_kind_of_work_is_there() -> None:
    plan = plan_.plan(MODEL)
    assert plan_.missing(MODEL, [x.index for x in plan.chosen]) == []
    assert plan.share <= 0.25
    # The first and the last of each kind; gemm is two kinds, so invocations 1, 2, 23 and 24.
    assert [x.index for x in plan.chosen] == [0, 1, 2, 3, 44, 45, 46, 47]
    name, pattern, numbers = plan.filters()[1].removeprefix("::").split(":")
    assert name == "regex" and pattern.startswith("^(") and numbers == "1|2|23|24"


def test_a_second_one_goes_where_nsys_saw_the_launches_of_a_kind_differ() -> None:
    names = "abababbbbb"
    times = iter([9000, 9000, 9000, 7000, 7000, 7000, 7000])  # of b; three of a are equal
    launches = [
        launch(i, name, f"h_{i}/X", 5000 if name == "a" else next(times))
        for i, name in enumerate(names)
    ]
    # Four may be replayed: one of each kind, and a second of a (with b's of that number) or of b.
    plan = plan_.plan(launches, fraction=0.4)
    assert [x.duration_ns for x in plan.chosen if x.kernel == "b"] == [9000, 7000]


def test_launches_are_given_the_counters_of_the_one_that_took_as_long() -> None:
    times = [9000, 8900, 7000, 7100]
    launches = [launch(i, "k", f"h_{i}/X", ns) for i, ns in enumerate(times)]
    rows = plan_.document(launches, {"r": {0: 0, 1: 3}})["launches"]
    assert [x["representative"] for x in rows] == [0, 0, 3, 3]


def test_a_real_capture_gives_its_launches_in_order_with_layers() -> None:
    launches = launches_.of_nsys(DATA / "nsys" / "h100_tensorrt86_fp16.sqlite")
    assert [x.index for x in launches] == list(range(21))  # kernels of one inference
    assert all(x.layer and x.registers and x.duration_ns for x in launches)
    plan = plan_.plan(launches)
    assert plan_.missing(launches, [x.index for x in plan.chosen]) == []


def test_a_file_without_an_inference_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_bytes(b"")
    with pytest.raises(InputError, match=r"x\.sqlite: has no kernels"):
        launches_.of_nsys(tmp_path / "x.sqlite")


def test_a_report_is_matched_by_layer_whatever_ncu_chose() -> None:
    chosen = [MODEL[i] for i in (0, 1, 3, 8, 40)]
    assert match.match(MODEL, seen(chosen), every=False) == {0: 0, 1: 1, 2: 3, 3: 8, 4: 40}


def test_a_launch_that_the_plan_lacks_is_named() -> None:
    other = [*seen(MODEL[:2]), Seen(2, "other", GRID, BLOCK, "h_0/Add")]
    with pytest.raises(
        CheckFailed, match=r"ncu captured other .* in h_0/Add .number 2., which nsys"
    ):
        match.match(MODEL, other, every=False)
    with pytest.raises(CheckFailed, match="launch 47 was mha11 under nsys and nothing under ncu"):
        match.match(MODEL, seen(MODEL[:-1]), every=True)


def counters(launches: list[int], metric: str = "m") -> pa.Table:
    rows = [
        {"source": "a.ncu-rep", "launch": n, "kernel": "k", "layer": "l", "metric": metric,
         "value": 10.0 + i}
        for n, i in enumerate(launches)
    ]  # fmt: skip
    return table("counters", rows)


def test_counters_reach_every_launch_of_the_same_work_and_say_whose_they_are() -> None:
    plan = plan_.document(MODEL, {"a.ncu-rep": {0: 0, 1: 1, 2: 4}})
    found = representatives.for_every_launch(counters([0, 1, 4]), plan).to_pylist()
    by = {row["launch"]: row for row in found}
    assert sorted(by) == [x.index for x in MODEL if x.kernel == "gemm"]
    assert (by[0]["value"], by[0]["representative_of"]) == (10.0, None)
    assert (by[4]["value"], by[4]["representative_of"]) == (14.0, None)
    assert (by[44]["value"], by[44]["representative_of"]) == (10.0, 0)
    assert by[44]["layer"] == "h_11_attn_c_proj/Gemm"
    assert (by[45]["value"], by[45]["representative_of"]) == (11.0, 1)
    assert [x["representative"] for x in plan["launches"][2:4]] == [None, None]


def test_the_spread_of_representatives_is_theirs_alone() -> None:
    plan = plan_.document(MODEL, {"a.ncu-rep": {0: 0, 1: 1, 2: 4}})
    table = representatives.for_every_launch(counters([0, 1, 4], "dram__bytes.sum"), plan)
    twins = SameWork(table, plan["launches"])
    # 10 of launch 0 and 14 of launch 4; what others were given of launch 0 is no twin of its own.
    for one in (twins.of([0]), twins.of([4]), twins.widest()):
        assert one is not None and one.launches == 2
        assert one.relative == pytest.approx(4 / 12)
    assert twins.of([1]) is None


@pytest.mark.parametrize("chosen", [[0, 1, 4], "not told"])
def test_a_capture_that_was_not_matched_where_it_was_made_is_matched_later(chosen: object) -> None:
    plan = {**plan_.document(MODEL, {}), "chosen": chosen}
    if chosen == "not told":  # as older captures do not
        del plan["chosen"]
    rows = [
        {"source": "a.ncu-rep", "launch": n, "kernel": f"void x::{MODEL[i].kernel}<1>(int)",
         "layer": MODEL[i].layer, "grid": "(2, 2, 1)", "block": "(128, 1, 1)"}
        for n, i in enumerate([0, 1, 4])
    ]  # fmt: skip
    found = representatives.matched(plan, pa.Table.from_pylist(rows))
    assert found["reports"] == {"a.ncu-rep": {"0": 0, "1": 1, "2": 4}}
    assert found["launches"][44]["representative"] == 0
