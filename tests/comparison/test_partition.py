"""What a side's time is made of sums to it, to the nanosecond, and so does the way to another."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from analysis_examples import node, ops
from hypothesis import given, settings
from hypothesis import strategies as st
from measured_sides import measured_side

from layerline.analysis.captures.captured import Series, measured
from layerline.analysis.comparison.partition import (
    BETWEEN,
    LEFT,
    MOST_STEPS,
    WAITS,
    Kinds,
    partitions,
    rounded,
    waterfall,
)
from layerline.analysis.costs.measured import MeasuredSide
from layerline.analysis.model import partition as model
from layerline.analysis.model.comparison import Side
from layerline.analysis.model.partition import Partition
from layerline.analysis.model.side import Model

PATHS = ["", "h", "h.0", "h.0.ln", "h.0.attn", "h.0.attn.q", "h.1", "h.1.ln", "h.1.attn", "head"]
CLASSES = {"h.0.ln": "Norm", "h.1.ln": "Norm", "h.0.attn": "Attention", "h.1.attn": "Attention"}
NET = Model("net", PATHS, CLASSES)
LEAVES = ["h.0", "h.0.ln", "h.0.attn.q", "h.1", "h.1.ln", "h.1.attn", "head", ""]
KEY = "engine/fp32.x/inference"


def on_cpu(rows: list[Any], latency: list[int], **more: Any) -> MeasuredSide:
    known = {"task": "engine", "precision": "fp32", "backend": "x", "phase": "inference"}
    known |= {"label": "X", "source": "x.json"}
    return measured_side(ops(*rows), latency_ns=latency, **known, **more)


def on_device(rows: list[Any], latency: list[int], queued: list[int], key: str) -> MeasuredSide:
    side = Side(
        task=key, precision="fp16", backend="torch", phase="inference", label=key, source="x"
    )
    table = ops(*rows)
    labels = pa.array(["unresolved"] * len(table), type=pa.string())
    return measured(side, table, labels, Series(latency), {}, Series(queued))


def parts(partition: Partition) -> dict[str, int]:
    return {p.name: p.ns for p in partition.parts}


def test_of_a_device_what_is_no_operation_is_waiting_and_gaps() -> None:
    rows = [
        node("a", ["h.0.attn"], [400, 400], kind="kernel"),
        node("b", ["h.1.attn"], [100, 100], kind="kernel"),
        node("n", ["h.0.ln"], [50, 50], kind="kernel"),
        node("f", ["h.1.ln", "h.1"], [30, 30], kind="kernel"),
        node("?", None, [20, 20], kind="kernel"),
    ]
    side = on_device(rows, [2000] * 9, [650] * 9, "engine")
    (found,) = partitions([side], NET).values()
    assert found.device and found.of == "latency" and found.total == 2000
    assert parts(found) == {
        "attn": 500,
        "ln": 50,
        f"ln + {BETWEEN}": 30,
        "unresolved": 20,
        WAITS: 1350,
        LEFT["gaps"]: 50,
    }
    kinds = {p.name: p.kind for p in found.parts}
    assert kinds[f"ln + {BETWEEN}"] == model.FUSED and kinds["unresolved"] == model.UNRESOLVED
    assert found.parts[0].modules == ("h.0.attn", "h.1.attn")


def test_of_a_cpu_operators_are_shares_of_the_profiled_iteration() -> None:
    """The profiler doubled everything: half of what it saw is what there is."""
    rows = [node("a", ["h.0.attn"], [600, 1200]), node("n", ["head"], [200, 400])]
    side = on_cpu(rows, [500] * 9, traced_ns={0: 1000, 1: 2000})
    (found,) = partitions([side], NET).values()
    assert parts(found) == {"attn": 300, "head": 100, LEFT["cpu"]: 100}


def test_without_a_latency_it_is_what_was_profiled_and_says_so() -> None:
    rows = [node("a", ["h.0.attn"], [600, 600])]
    (traced,) = partitions([on_cpu(rows, [], traced_ns={0: 900, 1: 900})], NET).values()
    assert (traced.of, traced.total) == ("traced", 900)
    assert parts(traced) == {"attn": 600, LEFT["cpu"]: 300}
    kernels = [node("a", ["h.0.attn"], [600, 600], kind="kernel")]
    (summed,) = partitions([on_device(kernels, [], [], "eager")], NET).values()
    assert (summed.of, parts(summed)) == ("operations", {"attn": 600})
    assert partitions([on_cpu([], [])], NET) == {}
    (bare,) = partitions([on_cpu([], [700] * 9)], NET).values()
    assert parts(bare) == {LEFT["none"]: 700}


def test_kinds_are_named_by_what_their_modules_are_called_else_by_their_class() -> None:
    paths = ["enc.0.layer.0.Self", "enc.0.layer.0.Self.q", "enc.0.layer.1.FF", "wte", "wpe", "top"]
    kinds = Kinds(paths, {"wte": "Embedding", "wpe": "Embedding"})
    assert kinds.part("enc.0.layer.0.Self.q") == "enc.0.layer.0.Self"
    assert kinds.part("enc.0.layer.1.FF") == "enc.0.layer.1.FF"
    assert kinds.part("enc.0") is None  # what a block does itself
    for path in ("wte", "wpe", "top"):
        kinds.of(path)
    assert (kinds.name("Embedding"), kinds.name("top")) == ("Embedding", "top")


TIMES = st.lists(st.integers(0, 10**7), min_size=6, max_size=6)
SETS = st.one_of(st.none(), st.lists(st.sampled_from(LEAVES), min_size=1, max_size=3, unique=True))


@st.composite
def sides(draw: Any, key: str) -> MeasuredSide:
    device = draw(st.booleans())
    drawn = draw(st.lists(st.tuples(SETS, TIMES), max_size=9))
    kind = "kernel" if device else "node"
    rows = [node(f"l{i}", m, t, kind=kind) for i, (m, t) in enumerate(drawn)]
    samples = st.lists(st.integers(1, 10**8), min_size=1, max_size=12)
    latency = draw(samples)
    if device:
        return on_device(rows, latency, draw(st.one_of(st.just([]), samples)), key)
    traced = draw(st.one_of(st.none(), st.lists(st.integers(1, 10**8), min_size=6, max_size=6)))
    return on_cpu(rows, latency, traced_ns=traced and dict(enumerate(traced)))


@given(sides("engine"), sides("eager"))
@settings(max_examples=150, deadline=None)
def test_parts_sum_to_the_latency_and_steps_to_the_difference(
    under: MeasuredSide, over: MeasuredSide
) -> None:
    found = []
    for side in (over, under):
        (partition,) = partitions([side], NET).values()
        found.append(partition)
        assert partition.total == side.side.latency.median
        assert sum(p.ns for p in partition.parts) == partition.total
        of_leaves: dict[str, int] = {}
        for leaf in partition.leaves:
            of_leaves[leaf.part] = of_leaves.get(leaf.part, 0) + leaf.ns
        of_parts = parts(partition)
        assert all(of_parts[name] == ns for name, ns in of_leaves.items())
        assert len(of_parts) == len(partition.parts)  # no two are called alike
        for p in partition.parts:
            assert p.low is None or p.high is None or p.low <= p.ns <= p.high
    for start in (None, found[0]):
        fall = waterfall(start, found[1])
        assert fall.start == (start.total if start else 0) and fall.end == found[1].total
        assert fall.start + sum(s.ns for s in fall.steps) == fall.end
        assert len(fall.steps) <= MOST_STEPS and all(s.ns for s in fall.steps if s.name != "other")
        assert len({s.name for s in fall.steps}) == len(fall.steps)
        for step in fall.steps:
            if step.inner:
                assert sum(s.ns for s in step.inner) == step.ns
            assert step.low is None or step.high is None or step.low <= step.ns <= step.high


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=40), st.integers(0, 10**12))
def test_rounding_moves_nothing_by_more_than_one(weights: list[float], total: int) -> None:
    whole = sum(weights)
    shares = [w / whole for w in weights] if whole else [1.0, *[0.0] * (len(weights) - 1)]
    found = rounded(shares, total)
    assert sum(found) == total
    assert all(abs(n - s * total) <= 1 + 1e-3 for n, s in zip(found, shares, strict=True))
