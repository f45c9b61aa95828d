"""The way from one side's time to another's: figures worked out by hand."""

from __future__ import annotations

import pytest

from layerline.analysis.comparison.partition import BETWEEN, LEFT, WAITS, waterfall
from layerline.analysis.model.partition import (
    FUSED,
    GAPS,
    MODULES,
    OTHER,
    ROW,
    WAITING,
    Part,
    Partition,
    Step,
)


def side_of(*parts: Part, device: bool = True) -> Partition:
    return Partition("latency", device, sum(p.ns for p in parts), None, None, parts, [])


def kinds(over: Partition | None, under: Partition) -> dict[str, str]:
    return {s.name: s.kind for s in waterfall(over, under).steps}


def fused(ns: int, *of: str) -> Part:
    return Part(" + ".join(of), FUSED, ns, of=of)


def plain(name: str, ns: int) -> Part:
    return Part(name, MODULES, ns)


def test_a_step_is_the_difference_and_its_interval_the_widest() -> None:
    over = side_of(
        Part("attn", MODULES, 50, 45, 55, ("h.0.attn", "h.1.attn")),
        Part("ln", ROW, 20, 18, 24, ("h.0.ln",)),
        Part("gone", MODULES, 12, 10, 15, ("x",)),
        plain("same", 7),
    )
    under = side_of(
        Part("ln", MODULES, 90, 80, 95, ("h.1.ln", "h.0.ln")),
        Part("attn", MODULES, 30, 28, 33, ("h.1.attn", "h.2.attn")),
        Part("new", ROW, 1, 0, 4, ("y",)),
        plain("same", 7),
    )
    fall = waterfall(over, under)
    assert (fall.start, fall.end) == (89, 128)
    assert fall.steps == [
        Step("ln", ROW, 70, 80 - 24, 95 - 18, ["h.0.ln", "h.1.ln"]),
        Step("attn", MODULES, -20, 28 - 55, 33 - 45, ["h.0.attn", "h.1.attn", "h.2.attn"]),
        Step("gone", MODULES, -12, -15, -10, ["x"]),
        Step("new", ROW, 1, 0, 4, ["y"]),
    ]


def test_from_nothing_a_step_is_a_part() -> None:
    fall = waterfall(None, side_of(Part("a", ROW, 3, 1, 4, ("m",)), plain("b", 5)))
    assert (fall.start, fall.end) == (0, 8)
    assert fall.steps == [Step("b", MODULES, 5, None, None, []), Step("a", ROW, 3, 1, 4, ["m"])]


def test_eight_steps_stand_alone_and_of_nine_the_smallest_two_are_one() -> None:
    parts = [Part(f"p{i}", MODULES, 100 - i, 10, 200 + i) for i in range(9)]
    assert [s.name for s in waterfall(None, side_of(*parts[:8])).steps] == [
        f"p{i}" for i in range(8)
    ]
    *kept, other = waterfall(None, side_of(*parts)).steps
    assert [s.name for s in kept] == [f"p{i}" for i in range(7)]
    assert (other.name, other.kind, other.ns) == (OTHER, OTHER, 93 + 92)
    assert (other.low, other.high) == (20, 207 + 208)
    assert [s.name for s in other.inner] == ["p7", "p8"] and other.modules == ()
    parts[8] = Part("p8", MODULES, 92)
    other = waterfall(None, side_of(*parts)).steps[-1]
    assert (other.ns, other.low, other.high) == (93 + 92, None, None)


@pytest.mark.parametrize(
    ("alone", "joined"),
    [(10, ["a + b"]), (11, ["a", "b", "a + b"])],
    ids=["half of each", "less than half of one"],
)
def test_kinds_of_which_at_least_half_is_fused_are_one_step(alone: int, joined: list[str]) -> None:
    under = side_of(fused(10, "a", "b"), plain("a", 10), plain("b", alone), plain("c", 1))
    over = side_of(plain("a", 50), plain("b", 40), plain("c", 2))
    assert sorted(kinds(over, under)) == sorted([*joined, "c"])
    assert sorted(kinds(under, over)) == sorted([*joined, "c"])


def test_all_time_of_a_kind_counts_also_what_is_fused_otherwise() -> None:
    """Of b 10 ns of 31 are in the layer with a: less than half, though it has no part alone."""
    under = side_of(fused(10, "a", "b"), fused(21, "b", "c"), plain("c", 50))
    over = side_of(plain("a", 1), plain("b", 2), plain("c", 3))
    assert sorted(kinds(over, under)) == ["a", "a + b", "b", "b + c", "c"]


def test_kinds_that_are_fused_in_turn_are_one_step_of_all() -> None:
    """Half of b is fused with a, half with c; between modules is named last."""
    under = side_of(fused(10, BETWEEN, "b"), fused(10, "b", "c"))
    over = side_of(plain("b", 1), plain(BETWEEN, 2), plain("c", 4))
    (step,) = waterfall(over, under).steps
    name = f"b + c + {BETWEEN}"
    assert (step.name, step.kind, step.ns) == (name, MODULES, 13)
    (step,) = waterfall(None, under).steps
    assert (step.name, step.kind, step.ns) == (name, MODULES, 20)


def test_what_is_fused_stays_so_where_nothing_else_is_of_its_step() -> None:
    under = side_of(fused(10, "a", "b"))
    assert kinds(None, under) == {"a + b": FUSED}
    assert kinds(side_of(fused(4, "a", "b")), under) == {"a + b": FUSED}
    # Each side fuses other two of three: the step is of all three, which no layer serves.
    assert kinds(side_of(fused(4, "b", "c")), under) == {"a + b + c": MODULES}


def test_parts_of_one_step_are_added_with_their_intervals_and_modules() -> None:
    under = side_of(
        Part("a + b", FUSED, 10, 8, 12, ("x.a", "x.b"), ("a", "b")),
        Part("a", MODULES, 3, 2, 5, ("x.a", "y.a")),
    )
    (step,) = waterfall(None, under).steps
    assert step == Step("a + b", MODULES, 13, 10, 17, ["x.a", "x.b", "y.a"])
    under = side_of(
        Part("a + b", FUSED, 10, None, None, (), ("a", "b")), Part("a", MODULES, 3, 2, 5)
    )
    (step,) = waterfall(None, under).steps
    assert (step.ns, step.low, step.high) == (13, None, None)
    under = side_of(
        Part("a + b", FUSED, 10, 8, 12, (), ("a", "b")), Part("a", MODULES, 3, None, None)
    )
    (step,) = waterfall(None, under).steps
    assert (step.ns, step.low, step.high) == (13, None, None)


APART = Part(WAITS, WAITING, 60), Part(LEFT["gaps"], GAPS, 5)
TOGETHER = (Part(LEFT["both"], GAPS, 70),)
ON_CPU = (Part(LEFT["cpu"], GAPS, 80),)
UNKNOWN = (Part(LEFT["none"], GAPS, 90),)


@pytest.mark.parametrize(
    ("over", "under", "names"),
    [
        (None, side_of(*APART), {WAITS: WAITING, LEFT["gaps"]: GAPS}),
        (side_of(plain("a", 1), *APART), side_of(*APART), {"a": MODULES}),
        (side_of(*TOGETHER), side_of(*APART), {LEFT["both"]: GAPS}),
        (side_of(*APART), side_of(*TOGETHER), {LEFT["both"]: GAPS}),
        (None, side_of(*TOGETHER), {LEFT["both"]: GAPS}),
        (None, side_of(*ON_CPU, device=False), {LEFT["cpu"]: GAPS}),
        (side_of(*ON_CPU, device=False), side_of(*TOGETHER), {LEFT["both"]: GAPS}),
        (side_of(*APART), side_of(*ON_CPU, device=False), {LEFT["both"]: GAPS}),
        (
            side_of(*UNKNOWN, device=False),
            side_of(*ON_CPU, device=False),
            {LEFT["cpu"]: GAPS},
        ),
    ],
)
def test_what_is_left_is_named_as_far_as_both_sides_tell(
    over: Partition | None, under: Partition, names: dict[str, str]
) -> None:
    assert kinds(over, under) == names
