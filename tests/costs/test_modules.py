"""Own and shared time, blocks and kinds: by hand, and against a known split of shared layers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from analysis_examples import node, ops, three_modules
from hypothesis import given, settings
from hypothesis import strategies as st

from layerline.analysis.costs.iterations import Key, Sums, sums
from layerline.analysis.costs.modules import blocks, bounds, rows, subtree_regions
from layerline.core.module_paths import (
    ancestors,
    common_parent,
    inside,
    kind_of,
    kinds,
    ordered_tree,
    tree,
)
from layerline.core.stats import median


def cost(table_sums: Sums, module: str) -> tuple[int, int] | None:
    """(own, shared) medians of a module."""
    (region,) = subtree_regions([module], table_sums.units())
    (found,) = bounds(table_sums, [region])
    return None if found is None else (found.own.median, found.shared)


def test_three_modules_with_one_fused_layer_by_hand() -> None:
    s = sums(three_modules())
    assert cost(s, "a") == (20, 5)
    assert cost(s, "b.c") == (100, 5)
    assert cost(s, "b.d") == (2, 0)
    assert cost(s, "b") == (102, 5)
    # Iterations: 10+5+100+1, 20+5+100+2, 30+5+100+6; the unresolved 7 is nobody's.
    assert cost(s, "") == (127, 0)
    assert list(s.resolved()) == [116, 127, 141]
    assert list(s.total()) == [123, 134, 148]


def test_a_module_that_nothing_ran_for_has_no_cost_rather_than_zero() -> None:
    assert cost(sums(three_modules()), "dropout") is None


def test_a_name_that_begins_like_another_is_not_inside_it() -> None:
    s = sums(ops(node("x", ["h.1"], [1]), node("y", ["h.10"], [2])))
    assert cost(s, "h.1") == (1, 0)
    assert inside("h.1.a", "h.1") and not inside("h.10", "h.1")


def test_the_root_module_is_not_mistaken_for_no_module() -> None:
    s = sums(ops(node("r", [""], [3]), node("n", [], [4]), node("u", None, [5])))
    assert cost(s, "") == (3, 0)
    assert {k.label for k in s.keys if k.modules is None} == {"unresolved"}
    assert list(s.total()) == [12]


def test_module_lists_in_another_order_are_one_set() -> None:
    s = sums(ops(node("x", ["a", "b"], [1]), node("y", ["b", "a", "b"], [2])))
    assert s.keys == (Key(("a", "b")),)
    assert s.matrix.tolist() == [[3]]


def test_an_unknown_time_is_counted_as_unknown_and_not_as_zero() -> None:
    s = sums(ops(node("x", ["a"], [1]), node("y", ["b"], [0], duration_ns=None)))
    assert s.unknown == 1
    assert cost(s, "b") is None


def test_rows_outside_every_iteration_are_left_out() -> None:
    s = sums(ops(node("x", ["a"], [1, 2]), node("init", ["a"], [99], iteration=None)))
    assert s.matrix.tolist() == [[1, 2]]


def test_device_rows_are_measured_and_the_operators_that_launched_them_are_not_added() -> None:
    kernel = node("k", ["a"], [50], kind="kernel")
    operator = node("op", ["a"], [999], kind="op", self_ns=999)
    assert cost(sums(ops(kernel, operator)), "a") == (50, 0)


def test_nested_cpu_operators_count_with_their_self_time() -> None:
    outer = node("linear", ["a"], [100], kind="op", self_ns=30)
    inner = node("addmm", ["a"], [70], kind="op", self_ns=70)
    assert cost(sums(ops(outer, inner)), "a") == (100, 0)


def test_rows_of_the_table_have_bounds_that_hold_for_medians() -> None:
    # own 1, 9, 5 and shared 9, 1, 1: the sum is 10, 10, 6, its median 10, not 5 + 1.
    s = sums(ops(node("x", ["a"], [1, 9, 5]), node("y", ["a", "b"], [9, 1, 1])))
    side = {"side": "engine", "source": "x", "precision": "fp32", "phase": "inference"}
    (row,) = rows(side, s, ["a"], {"a": "Linear"})
    assert (row["own_ns"], row["shared_ns"]) == (5, 5)
    assert (row["depth"], row["module_class"], row["iterations"]) == (1, "Linear", 3)
    assert row["own_low_ns"] is None  # three samples have no 95 % interval


def test_a_lower_bound_below_the_sum_of_its_members_medians_is_no_mistake() -> None:
    # attn 1, 9, 5 and mlp 9, 1, 2: medians 5 + 2, but of the sums 10, 10, 7 it is 10.
    more = sums(ops(node("x", ["h.attn"], [1, 9, 5]), node("y", ["h.mlp"], [9, 1, 2])))
    assert [cost(more, m) for m in ("h.attn", "h.mlp", "h")] == [(5, 0), (2, 0), (10, 0)]
    # attn 9, 1, 8 and mlp 1, 9, 8: medians 8 + 8, but of the sums 10, 10, 16 it is 10.
    less = sums(ops(node("x", ["h.attn"], [9, 1, 8]), node("y", ["h.mlp"], [1, 9, 8])))
    assert [cost(less, m) for m in ("h.attn", "h.mlp", "h")] == [(8, 0), (8, 0), (10, 0)]


@given(
    st.lists(st.lists(st.integers(0, 100), min_size=4, max_size=4), min_size=1, max_size=9),
    st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_what_is_wholly_inside_is_never_more_than_the_lower_bound_in_any_iteration(
    iterations: list[list[int]], extra: int
) -> None:
    """h holds attn, mlp and its own operations; a layer of h.attn and outside is shared."""
    attn, mlp, own, shared = (list(column) for column in zip(*iterations, strict=True))
    s = sums(
        ops(
            node("a", ["h.attn"], attn),
            node("m", ["h.mlp"], mlp),
            node("o", ["h"] if extra else ["h", "h.mlp"], own),
            node("s", ["h.attn", "out"], shared),
        )
    )
    (region,) = subtree_regions(["h"], s.units())
    (found,) = bounds(s, [region])
    assert found is not None
    inside_h = [sum(i) for i in zip(attn, mlp, own, strict=True)]
    assert found.own.median == median(sorted(inside_h))
    assert found.own.minimum >= min(a + m for a, m in zip(attn, mlp, strict=True))
    assert found.own.median >= median(sorted(a + m for a, m in zip(attn, mlp, strict=True)))
    # The width lies between the least and the most that is shared in one iteration (and rounding).
    assert min(shared) - 1 <= found.shared <= max(shared) + 1


def test_a_layer_shared_inside_one_kind_is_that_kinds_own() -> None:
    s = sums(
        ops(
            node("x", ["h.0.attn.q", "h.1.attn.q"], [5]),
            node("y", ["h.0.attn.q", "h.0.mlp"], [7]),
            node("z", ["h.1.attn.q"], [11]),
        )
    )
    attn = kinds(["h.0.attn", "h.1.attn", "h.0.mlp"])["h.*.attn"]
    (region,) = [[u for u in s.units() if any(inside(u, m) for m in attn)]]
    (found,) = bounds(s, [region])
    assert found is not None
    assert (found.own.median, found.shared) == (16, 7)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("transformer.h.0.attn", "transformer.h.*.attn"),
        ("0.1.2", "*.*.*"),
        ("layer1.0.conv2", "layer1.*.conv2"),
        ("lm_head", "lm_head"),
    ],
)
def test_kind_replaces_whole_numbers_only(path: str, kind: str) -> None:
    assert kind_of(path) == kind


def test_tree_has_every_ancestor_in_preorder_with_numbers_in_order() -> None:
    assert tree(["h.10.a", "h.2", "wte"]) == ["", "h", "h.2", "h.10", "h.10.a", "wte"]
    model = ["", "wte", "h", "h.0", "ln"]
    assert ordered_tree(model, ["h.0.x", "zz"]) == ["", "wte", "h", "h.0", "h.0.x", "ln", "zz"]
    assert ancestors("a.b") == ["a.b", "a", ""]


def test_blocks_are_the_linked_modules() -> None:
    s = sums(three_modules())
    assert blocks(s.keys) == [("a", "b.c"), ("b.d",)]
    assert common_parent(["a", "b.c"]) == ""
    assert common_parent(["h.1.x", "h.1.y"]) == "h.1"
    assert common_parent(["h.1", "h.1.y"]) == "h.1"
    assert common_parent(["h.1", "h.10"]) == "h"
    assert common_parent(["h.1.mlp", "h.1.attn"]) == "h.1"
    assert common_parent(["a.b", "a.b"]) == "a.b"


PATHS = ["", "h", "h.0", "h.0.a", "h.0.b", "h.1", "h.1.a", "h.1.b", "wte", "head"]
layer_lists = st.lists(
    st.tuples(
        st.sets(st.sampled_from(PATHS), min_size=1, max_size=4),
        st.lists(st.integers(0, 10**6), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=60)
@given(layer_lists, st.randoms(use_true_random=False))
def test_the_true_cost_lies_within_the_bounds_whatever_the_split(layers, random) -> None:  # type: ignore[no-untyped-def]
    s = sums(ops(*(node(f"l{i}", sorted(m), t) for i, (m, t) in enumerate(layers))))
    # The truth: every layer's time split at random among its modules, anew in each iteration.
    truth = {p: [0.0] * 4 for p in PATHS}
    for members, times in layers:
        for i, time in enumerate(times):
            cuts = sorted(random.random() for _ in range(len(members) - 1))
            parts = [b - a for a, b in itertools.pairwise([0.0, *cuts, 1.0])]
            for path, part in zip(sorted(members), parts, strict=True):
                truth[path][i] += part * time
    for module in PATHS:
        (region,) = subtree_regions([module], s.units())
        (found,) = bounds(s, [region])
        inner = [p for p in PATHS if inside(p, module)]
        true = sorted(sum(truth[p][i] for p in inner) for i in range(4))
        true_median = (true[1] + true[2]) / 2
        if found is None:
            assert true_median == 0
        else:
            assert found.own.median - 1 <= true_median <= found.own.median + found.shared + 1


@settings(deadline=None, max_examples=60)
@given(layer_lists)
def test_blocks_partition_the_units_are_exact_and_add_up_to_all_resolved_time(layers) -> None:  # type: ignore[no-untyped-def]
    s = sums(
        ops(
            node("lost", None, [3, 3, 3, 3]),
            *(node(f"l{i}", sorted(m), t) for i, (m, t) in enumerate(layers)),
        )
    )
    found = blocks(s.keys)
    assert sorted(u for b in found for u in b) == list(s.units())
    per_iteration = np.zeros(4, dtype=np.int64)
    for block, cost_ in zip(found, bounds(s, found), strict=True):
        assert cost_ is not None and cost_.shared == 0
        mine = s.where([k.modules is not None and k.modules[0] in block for k in s.keys])
        assert cost_.own.median == median(sorted(mine.tolist()))
        per_iteration += mine
    assert per_iteration.tolist() == s.resolved().tolist()
    assert per_iteration.tolist() == [sum(t[i] for _, t in layers) for i in range(4)]


@settings(deadline=None, max_examples=60)
@given(layer_lists)
def test_the_whole_model_owns_all_resolved_time(layers) -> None:  # type: ignore[no-untyped-def]
    s = sums(ops(*(node(f"l{i}", sorted(m), t) for i, (m, t) in enumerate(layers))))
    (found,) = bounds(s, subtree_regions([""], s.units()))
    assert found is not None
    assert found.shared == 0
    assert found.own.median == median(sorted(s.resolved().tolist()))


SIDE = {"side": "s", "source": "x.json", "precision": "fp32", "phase": "inference"}


def test_the_share_is_that_of_the_upper_bound_and_unknown_without_a_total() -> None:
    s = sums(three_modules())
    regions = subtree_regions(["a", "b.d", "dropout"], s.units())
    a, d, none = bounds(s, regions, 250)
    assert a is not None and d is not None and none is None
    assert (a.share, d.share) == (25 / 250, 2 / 250)
    for total in (None, 0):
        (found,) = bounds(s, regions[:1], total)
        assert found is not None and found.share is None


def test_without_an_operation_of_a_module_no_region_has_a_cost() -> None:
    assert bounds(sums(ops(node("?", None, [7]))), [["a"], ["b"]]) == [None, None]


def test_rows_have_own_and_shared_ends_and_leave_out_what_did_not_run() -> None:
    """Six iterations have an interval, from the least to the most: shared is upper less own."""
    times = [10, 20, 30, 40, 50, 60]
    table = ops(node("a", ["a"], times), node("f", ["a", "b"], [t // 10 for t in times]))
    first, second = rows(SIDE, sums(table), ["none", "a", "b"], {"a": "Linear"})
    assert first == {
        **SIDE, "module": "a", "module_class": "Linear", "depth": 1, "iterations": 6,
        "own_ns": 35, "own_low_ns": 10, "own_high_ns": 60,
        "shared_ns": 3, "shared_low_ns": 1, "shared_high_ns": 6,
    }  # fmt: skip
    assert (second["module"], second["module_class"], second["own_ns"]) == ("b", None, 0)
    few = ops(node("a", ["a"], [10, 20]), node("f", ["a", "b"], [1, 2]))
    (row,) = rows(SIDE, sums(few), ["a"], {})
    assert row["shared_low_ns"] is None and row["shared_high_ns"] is None
