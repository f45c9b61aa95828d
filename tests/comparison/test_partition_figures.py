"""What a side's time is made of: figures worked out by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from analysis_examples import node, ops
from measured_sides import measured_side

from layerline.analysis.captures.captured import Series, measured
from layerline.analysis.comparison.partition import (
    BETWEEN,
    LEFT,
    WAITS,
    Kinds,
    partitions,
    rounded,
)
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model.comparison import Side
from layerline.analysis.model.partition import (
    FUSED,
    GAPS,
    MODULES,
    ROW,
    UNRESOLVED,
    WAITING,
    Leaf,
    Part,
    Partition,
)
from layerline.analysis.model.side import Model

NET = Model("net", ["", "h", "h.0", "h.0.ln", "h.0.attn", "h.1", "h.1.ln", "h.1.attn", "head"], {})


def on_cpu(*rows: Any, latency: list[int] = [], **more: Any) -> MeasuredSide:  # noqa: B006
    known = {"task": "eager", "precision": "fp32", "backend": "torch", "phase": "inference"}
    known |= {"label": "X", "source": "x.json"}
    return measured_side(ops(*rows), latency_ns=latency, **known, **more)


def on_device(
    *rows: tuple[str, list[str], list[int]],
    latency: list[int],
    queued: list[int] = [],  # noqa: B006
    traced: dict[int, int] | None = None,
    labels: list[str] | None = None,
) -> MeasuredSide:
    side = Side(
        task="engine", precision="fp16", backend="x", phase="inference", label="X", source="x"
    )
    table = ops(*(node(*r, kind="kernel") for r in rows))
    names = pa.array(labels or ["unresolved"] * len(table), type=pa.string())
    return measured(side, table, names, Series(latency), traced or {}, Series(queued))


def of(side: MeasuredSide, model: Model = NET) -> Partition:
    (found,) = partitions([side], model).values()
    return found


def test_a_part_has_the_interval_of_its_share_times_that_of_the_whole() -> None:
    """Six iterations of 1,000 to 6,000 ns, of which attn takes 0.4, then 0.6."""
    side = on_device(
        ("a", ["h.0.attn"], [400, 800, 1200, 2400, 3000, 3600]),
        ("n", ["h.0.ln"], [600, 1200, 1800, 1600, 2000, 2400]),
        latency=[9000, 9001, 9002, 9003, 9004, 9006],
        queued=[7000, 7001, 7002, 7003, 7004, 7006],
    )
    assert of(side) == Partition(
        "latency",
        True,
        9002,
        9000,
        9006,
        [
            # Between 0.4 of 1,000 and 0.6 of 6,000.
            Part("attn", MODULES, 1750, 400, 3600, ("h.0.attn",)),
            Part("ln", MODULES, 1750, 400, 3600, ("h.0.ln",)),
            Part(WAITS, WAITING, 2000, 9000 - 7006, 9006 - 7000),
            Part(LEFT["gaps"], GAPS, 7002 - 3500, 7000 - 6000, 7006 - 1000),
        ],
        [Leaf(("h.0.attn",), None, "attn", 1750), Leaf(("h.0.ln",), None, "ln", 1750)],
    )


def test_an_interval_reaches_to_the_figure_that_is_shown() -> None:
    """The mean of shares is 0.2, and 0.1 every iteration but one: the median's interval."""
    side = on_device(
        ("a", ["h.0.attn"], [100] * 8 + [1000]),
        ("n", ["h.0.ln"], [900] * 8 + [0]),
        latency=[1000] * 9,
    )
    assert of(side).parts == [
        Part("attn", MODULES, 200, 100, 200, ("h.0.attn",)),
        Part("ln", MODULES, 800, 800, 900, ("h.0.ln",)),
        Part(LEFT["both"], GAPS, 0, 0, 0),
    ]


@pytest.mark.parametrize(("samples", "iterations"), [(6, 5), (5, 6)])
def test_without_an_interval_of_either_a_part_has_none(samples: int, iterations: int) -> None:
    rows = node("a", ["head"], [50] * iterations)
    side = on_cpu(rows, latency=[400] * samples, traced_ns=dict.fromkeys(range(iterations), 100))
    assert of(side).parts == [
        Part("head", MODULES, 200, modules=("head",)),
        Part(LEFT["cpu"], GAPS, 200),
    ]
    side = on_device(
        ("a", ["head"], [50] * iterations), latency=[90] * samples, queued=[80] * samples
    )
    assert [(p.low, p.high) for p in of(side).parts if p.name == LEFT["gaps"]] == [(None, None)]


def test_operations_of_no_length_are_parts_of_no_length() -> None:
    """All of them: the middle of the whole is 0, and nothing is divided by it."""
    side = on_device(("a", ["head"], [0] * 6), latency=[100] * 6, queued=[0] * 6)
    assert of(side).parts == [
        Part("head", MODULES, 0, modules=("head",)),
        Part(WAITS, WAITING, 100, 100, 100),
        Part(LEFT["gaps"], GAPS, 0, 0, 0),
    ]
    side = on_device(("a", ["head"], [0] * 6), latency=[0] * 6)
    assert of(side).parts[1:] == [Part(LEFT["both"], GAPS, 0, 0, 0)]


def test_an_iteration_of_no_length_has_no_shares() -> None:
    """Half of one and a quarter of another; the third, of 0 ns, does not count."""
    rows = node("a", ["head"], [1, 1, 0])
    side = on_cpu(rows, latency=[800] * 6, traced_ns={0: 2, 1: 4, 2: 0})
    assert [(p.name, p.ns) for p in of(side).parts] == [("head", 300), (LEFT["cpu"], 500)]
    side = on_cpu(node("a", ["head"], [1, 1]), latency=[800] * 6, traced_ns={0: 1, 1: 4})
    assert [p.ns for p in of(side).parts] == [500, 300]


def test_what_operators_leave_of_an_iteration_has_its_own_interval() -> None:
    traced = dict(enumerate([1000, 1000, 1000, 2000, 2000, 2000]))
    ran = node("a", ["head"], [600] * 6), node("n", ["h.0.ln"], [0] * 6)
    side = on_cpu(*ran, latency=[1000] * 6, traced_ns=traced)
    assert of(side) == Partition(
        "latency",
        False,
        1000,
        1000,
        1000,
        [
            Part("head", MODULES, 450, 300, 600, ("head",)),
            Part("ln", MODULES, 0, 0, 0, ("h.0.ln",)),
            Part(LEFT["cpu"], GAPS, 550, 400, 700),
        ],
        [Leaf(("head",), None, "head", 450), Leaf(("h.0.ln",), None, "ln", 0)],
    )


@pytest.mark.parametrize(
    ("traced", "outside", "parts"),
    [
        ({0: 400, 1: 400}, {0: 900, 1: 900}, [600, 200]),
        ({0: 400}, {0: 300, 1: 300}, [400, 400]),
        ({0: 400}, {1: 300}, [800, 0]),
    ],
    ids=["traced", "operations and what is outside", "operations alone"],
)
def test_an_iteration_is_as_long_as_all_of_them_are_known_to_be(
    traced: dict[int, int], outside: dict[int, int], parts: list[int]
) -> None:
    rows = node("a", ["head"], [300, 300])
    side = on_cpu(rows, latency=[800] * 6, traced_ns=traced, outside_ns=outside)
    assert [p.ns for p in of(side).parts] == parts


def test_what_a_side_without_a_latency_is_made_of() -> None:
    """Of a CPU the profiled run; of a device its operations, whatever the profiled run took."""
    side = on_cpu(node("a", ["head"], [60] * 6), traced_ns=dict.fromkeys(range(6), 90))
    traced = of(side)
    assert (traced.of, traced.total, traced.low, traced.high) == ("traced", 90, 90, 90)
    assert [(p.name, p.ns) for p in traced.parts] == [("head", 60), (LEFT["cpu"], 30)]
    for side in (
        on_device(("a", ["head"], [60] * 6), latency=[], traced=dict.fromkeys(range(6), 90)),
        on_cpu(node("a", ["head"], [60] * 6)),
    ):
        summed = of(side)
        assert (summed.of, summed.total, summed.low, summed.high) == ("operations", 60, 60, 60)
        assert summed.parts == [Part("head", MODULES, 60, 60, 60, ("head",))]
    assert partitions([on_cpu()], NET) == {}


def test_a_latency_without_operations_is_one_part() -> None:
    side = on_cpu(latency=[700, 701, 702, 703, 704, 706])
    parts = [Part("not profiled", GAPS, 702, 700, 706)]
    assert of(side) == Partition("latency", False, 702, 700, 706, parts, [])


def test_what_serves_several_kinds_and_what_serves_none_are_parts_of_their_own() -> None:
    """Modules of fused layers stand in the model's order, those it does not have last."""
    side = on_device(
        ("f", ["h.0.attn", "h.0.ln", "x.1.ln", "x.0.ln"], [30]),
        ("g", ["h.0", "h.1.attn"], [20]),
        ("a", ["h.1.attn"], [10]),
        ("l", [], [25]),
        ("u", [], [15]),
        latency=[100],
        labels=["", "", "", "loss", "unresolved"],
    )
    found = of(side)
    assert found.parts == [
        Part(
            "attn + ln", FUSED, 30, None, None,
            ("h.0.ln", "h.0.attn", "x.0.ln", "x.1.ln"), ("attn", "ln"),
        ),
        Part(f"attn + {BETWEEN}", FUSED, 20, None, None, ("h.0", "h.1.attn"), ("attn", BETWEEN)),
        Part("attn", MODULES, 10, None, None, ("h.0.attn", "h.1.attn")),
        Part("loss", ROW, 25),
        Part("unresolved", UNRESOLVED, 15),
        Part(LEFT["both"], GAPS, 0),
    ]  # fmt: skip
    assert found.leaves == [
        Leaf(("h.0.attn", "h.0.ln", "x.0.ln", "x.1.ln"), None, "attn + ln", 30),
        Leaf(("h.0", "h.1.attn"), None, f"attn + {BETWEEN}", 20),
        Leaf(("h.1.attn",), None, "attn", 10),
        Leaf((), "loss", "loss", 25),
        Leaf((), "unresolved", "unresolved", 15),
    ]


def test_layers_of_one_kind_are_one_part_whatever_the_order_of_their_modules() -> None:
    """The kinds of a fused layer are named in one order, and its times are added."""
    side = on_device(
        ("f", ["h.0.z", "h.1.a"], [30]), ("g", ["h.0.a", "h.1.z"], [20]), ("k", ["h.0", "z"], [5]),
        latency=[55],
    )  # fmt: skip
    assert [(p.name, p.ns, p.of) for p in of(side).parts[:2]] == [
        ("a + z", 50, ("a", "z")), (f"z + {BETWEEN}", 5, ("z", BETWEEN)),
    ]  # fmt: skip


def test_parts_that_would_be_called_alike_are_not() -> None:
    classes = {"h.0.norm": "RMS", "h.1.norm": "Layer"}
    side = on_device(
        ("x", [], [1]),
        ("a", ["h.0.norm"], [2]),
        ("b", ["h.1.norm"], [3]),
        ("y", [], [4]),
        latency=[10],
        labels=["norm (no module)", "", "", "norm"],
    )
    assert [p.name for p in of(side, Model("m", list(classes), classes)).parts] == [
        "norm (no module)",
        "norm",
        "Layer",
        "norm (no module) (no module)",
        LEFT["both"],
    ]


def test_a_kind_is_called_the_same_on_every_side() -> None:
    """One side runs one embedding, another the other: both are called by their class."""
    model = Model("m", ["wte", "wpe"], {"wte": "Embedding", "wpe": "Embedding"})
    one = on_device(("t", ["wte"], [5]), latency=[5])
    two = on_cpu(node("p", ["wpe"], [5]), latency=[5])
    found = partitions([one, two], model)
    assert [p.parts[0].name for p in found.values()] == ["Embedding", "Embedding"]
    assert list(found) == ["engine/fp16.x/inference", "eager/fp32/inference"]


def test_the_part_of_a_path_is_below_the_innermost_list_of_lists() -> None:
    kinds = Kinds(["enc.0.layer.0.attn.q", "enc.0.layer.1.mlp", "enc.0.norm", "dec.0.x", "top"], {})
    assert {p: kinds.part(p) for p in (
        "enc", "enc.0", "enc.0.norm", "enc.0.layer", "enc.0.layer.0", "enc.0.layer.0.attn",
        "enc.0.layer.0.attn.q", "enc.0.layer.1.mlp", "dec.0.x.y.z", "top", "new",
    )} == {
        "enc": None, "enc.0": None, "enc.0.norm": "enc.0.norm", "enc.0.layer": "enc.0.layer",
        "enc.0.layer.0": None, "enc.0.layer.0.attn": "enc.0.layer.0.attn",
        "enc.0.layer.0.attn.q": "enc.0.layer.0.attn", "enc.0.layer.1.mlp": "enc.0.layer.1.mlp",
        "dec.0.x.y.z": "dec.0.x", "top": "top", "new": "new",
    }  # fmt: skip
    assert Kinds([""], {}).part("") == ""
    assert Kinds(["mix.0.x", "mix.norm"], {}).part("mix.0.x") == "mix.0.x"


def test_what_containers_do_themselves_is_one_kind_and_its_members_are_told() -> None:
    kinds = Kinds(["h.0.ln", "h.1.ln", "wte"], {"wte": "Embedding"})
    assert [kinds.of(p) for p in ("h.0", "h.1", "h.1.ln", "h.0.ln", "h.0.ln.w", "wte")] == [
        BETWEEN, BETWEEN, "ln", "ln", "ln", "Embedding",
    ]  # fmt: skip
    assert kinds.members(BETWEEN) == ["h.0", "h.1"] and kinds.name(BETWEEN) == BETWEEN
    assert kinds.members("ln") == ["h.1.ln", "h.0.ln"] and kinds.name("ln") == "ln"
    assert kinds.members("Embedding") == ["wte"] and kinds.name("Embedding") == "wte"
    alone = Kinds(["h.0.ln"], {})
    assert alone.of("h.0") == BETWEEN and alone.name(BETWEEN) == BETWEEN


@pytest.mark.parametrize(
    ("shares", "total", "found"),
    [
        ([0.15, 0.35, 0.5], 10, [2, 3, 5]),  # of equal remainders the first
        ([0.12, 0.38, 0.5], 10, [1, 4, 5]),
        ([0.25, 0.25, 0.25, 0.25], 7, [2, 2, 2, 1]),
        ([0.5, 0.5 + 1e-9], 10**12, [5 * 10**11 - 500, 5 * 10**11 + 500]),  # doubles are not exact
        ([0.5, 0.5 - 5e-12], 10**12, [5 * 10**11 + 3, 5 * 10**11 - 3]),
        ([1.0], 3, [3]),
    ],
)
def test_remainders_go_to_the_largest(shares: list[float], total: int, found: list[int]) -> None:
    assert rounded(shares, total) == found and sum(found) == total
