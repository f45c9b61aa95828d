"""Equal launches of eager inference and of a training step, by an nsys capture with modules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from ncu_fake import seen
from nsys_build import Export

from layerline.analysis.counters import launches as launches_
from layerline.analysis.counters import representatives, sums
from layerline.analysis.timeline import counters as counters_
from layerline.core import tables
from layerline.core.errors import CheckFailed, InputError
from layerline.core.nodes import NodeGraph
from layerline.core.replay import match
from layerline.core.replay import plan as plan_
from layerline.core.run import open_run
from layerline.profile.ncu import eager_launches, target

BLOCKS = 6
MODULE = "layerline/module/"
EVALUATE = "autograd::engine::evaluate_function: "


class Step:
    """A training step: each block a product and an addition, their backward, one optimizer
    kernel, on threads 1 (forward) and 2 (backward)."""

    def __init__(self) -> None:
        self.made = Export()
        self.now = 0
        self.number = 0
        self.backward: list[tuple[str, int]] = []

    def kernel(self, name: str, thread: int, grid: int, ns: int = 5000) -> None:
        self.now += 10
        more: dict[str, Any] = dict.fromkeys(("gridY", "gridZ", "blockY", "blockZ"), 1)
        more |= {"gridX": grid, "blockX": 128, "registersPerThread": 32}
        more |= {"staticSharedMemory": 0, "dynamicSharedMemory": 0}
        more |= {"shortName": self.made.string(name)}
        self.made.launch(self.now, ns, name=f"void {name}<float>(int)", thread=thread, **more)
        self.now += 10

    def span(self, text: str, begun: int, thread: int) -> None:
        self.now += 1
        self.made.range(text, begun, self.now, thread=thread)

    def operator(self, name: str, grid: int, backward: str) -> None:
        begun = self.now = self.now + 1
        self.kernel(name, 1, grid)
        self.span(f"aten::{name}, seq = {self.number}, op_id = 1", begun, 1)
        self.backward.append((backward, self.number))
        self.number += 1

    def forward(self) -> None:
        begun = self.now = self.now + 1
        for i in range(BLOCKS):
            opened = self.now = self.now + 1
            for part, grid in (("attn", 8), ("mlp", 8)):
                inner = self.now = self.now + 1
                self.operator("mm", grid, "MmBackward0")
                self.operator("add", 4, "AddBackward0")
                self.span(f"{MODULE}h.{i}.{part}", inner, 1)
            self.span(f"{MODULE}h.{i}", opened, 1)
        self.span("layerline/phase/forward", begun, 1)

    def back(self) -> None:
        begun = self.now = self.now + 1
        for name, number in reversed(self.backward):
            opened = self.now = self.now + 1
            self.kernel("mm" if name.startswith("Mm") else "add", 2, 8)
            self.span(f"{EVALUATE}{name}, seq = {number}, op_id = 2", opened, 2)
        self.span("layerline/phase/backward", begun, 1)

    def write(self, path: Path) -> Path:
        begun = self.now
        self.forward()
        self.back()
        opened = self.now = self.now + 1
        self.kernel("adam", 1, 2)
        self.kernel("adam", 1, 2)
        self.span("layerline/phase/optimizer", opened, 1)
        self.span("layerline/iteration/0", begun, 1)
        self.kernel("later", 1, 1)
        return self.made.write(path)


@pytest.fixture
def sqlite(tmp_path: Path) -> Path:
    return Step().write(tmp_path / "train.fp32.sqlite")


def test_each_launch_has_its_module_in_forward_and_in_backward(sqlite: Path) -> None:
    found = eager_launches.of_nsys(sqlite, {"h.0.attn": "Attention"})
    # Of each block two modules, of each two operators, forward and backward; two of the optimizer.
    assert len(found) == BLOCKS * 2 * 2 * 2 + 2
    assert found[0].place == "forward/aten::mm/Attention/h.0.attn"
    assert found[0].layer == f"{MODULE}h.0.attn"
    first_back = found[BLOCKS * 4]
    # The last operator of forward comes first: the addition of the last block's mlp.
    assert first_back.place == f"backward/AddBackward0//h.{BLOCKS - 1}.mlp"
    assert first_back.layer == "layerline/phase/backward"
    assert [x.layer for x in found[-2:]] == ["layerline/phase/optimizer"] * 2


def test_blocks_are_equal_and_modules_phases_and_work_of_no_module_are_not(sqlite: Path) -> None:
    found = eager_launches.of_nsys(sqlite)
    kinds = plan_.kinds(found)
    # attn and mlp, mm and add, forward and backward; each optimizer kernel is its own.
    assert len(set(kinds.values())) == 2 * 2 * 2 + 2
    assert kinds[0] == kinds[4]  # h.0.attn, h.1.attn
    assert kinds[0] != kinds[2]  # h.0.attn, h.0.mlp: one kernel and grid, another module


def node(step: Step, number: int, inside: list[tuple[str, str, int]]) -> None:
    """A node of backward as PyTorch 2.11 names it: the engine's range has no number, the node's
    has; `inside`: what the engine launches beside the node (operator, kernel, grid)."""
    opened = step.now = step.now + 1
    begun = step.now = step.now + 1
    step.kernel("mm", 2, 8)
    step.span(f"AddmmBackward0, seq = {number}, op_id = 7", begun, 2)
    for operator, kernel, grid in inside:
        begun = step.now = step.now + 1
        step.kernel(kernel, 2, grid)
        step.span(f"{operator}, op_id = 8", begun, 2)
    step.span(f"{EVALUATE}AddmmBackward0, op_id = 6", opened, 2)


def test_what_the_engine_does_around_a_node_is_of_the_nodes_module(tmp_path: Path) -> None:
    step = Step()
    step.forward()
    begun = step.now = step.now + 1
    number = step.backward[1][1]  # h.0.attn
    node(step, number, [("aten::sum", "reduce_kernel", 6), ("aten::add_", "elementwise_kernel", 9)])
    step.span("layerline/phase/backward", begun, 1)
    step.span("layerline/iteration/0", 0, 1)
    found = eager_launches.of_nsys(step.made.write(tmp_path / "x.sqlite"))
    back = found[BLOCKS * 4 :]
    assert [x.place for x in back] == [
        "backward/AddmmBackward0//h.0.attn",
        "backward/aten::sum//h.0.attn",  # the bias, summed to its shape
        "backward/aten::add_//",  # gradients that meet are no module's
    ]
    assert representatives.label(vars(back[2])) == "layerline/phase/backward"


def optimizer(tmp_path: Path, kernels: list[tuple[str, str, int, int]]) -> list[plan_.Launch]:
    """The launches of an optimizer's step (operator, kernel, grid, nanoseconds)."""
    step = Step()
    begun = step.now = step.now + 1
    for operator, kernel, grid, ns in kernels:
        opened = step.now = step.now + 1
        step.kernel(kernel, 1, grid, ns)
        step.span(f"{operator}, op_id = 3", opened, 1)
    step.span("layerline/phase/optimizer", begun, 1)
    step.span("layerline/iteration/0", 0, 1)
    return eager_launches.of_nsys(step.made.write(tmp_path / "x.sqlite"))


def test_elementwise_work_of_no_module_is_told_by_its_operator_and_its_grid(tmp_path: Path) -> None:
    name, ns = "multi_tensor_apply_kernel", 5000
    found = optimizer(
        tmp_path,
        [
            ("aten::_foreach_mul_", name, 320, ns),
            ("aten::_foreach_mul_", name, 320, ns + 900),
            ("aten::_foreach_mul_", name, 75, ns),  # fewer chunks
            ("aten::_foreach_sqrt", name, 320, ns),  # other arithmetic
            ("aten::linalg_vector_norm", "reduce_kernel", 1, ns),  # its grid is not its elements
            ("aten::linalg_vector_norm", "reduce_kernel", 1, ns),
        ],
    )
    kinds = list(plan_.kinds(found).values())
    assert kinds[0] == kinds[1] and len(set(kinds)) == 5


def test_work_of_no_module_that_took_far_longer_is_another(tmp_path: Path) -> None:
    name, operator = "vectorized_elementwise_kernel", "aten::add_"
    found = optimizer(tmp_path, [(operator, name, 9, 5000), (operator, name, 9, 15000)])
    assert len(set(plan_.kinds(found).values())) == 2


def test_the_fraction_holds_every_kind_and_is_less_than_half(sqlite: Path) -> None:
    plan = plan_.plan(eager_launches.of_nsys(sqlite))
    assert plan_.missing(plan.launches, [x.index for x in plan.chosen]) == []
    assert plan.share < 0.5


def test_launches_that_only_their_place_tells_apart_are_told_by_their_order(sqlite: Path) -> None:
    plan = plan_.plan(eager_launches.of_nsys(sqlite))
    found = match.planned_of(plan.launches, plan.chosen, seen(plan.chosen))
    assert list(found.values()) == [x.index for x in plan.chosen]
    # One launch fewer could be any of them: the rest must not be given other modules' counters.
    with pytest.raises(CheckFailed, match="that are not the"):
        match.planned_of(plan.launches, plan.chosen, seen(plan.chosen[:-1]))


def test_the_target_of_a_training_step_takes_the_runs_eager_capture(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", create=True)
    of = target.torch_target(run, "train", "fp32")
    assert of.plan() is None
    run.file("captures").mkdir()
    Step().write(run.file("captures", "train.fp32.sqlite"))
    about = {"modules": {"h.0.mlp": "MLP"}}
    run.file("captures", "train.fp32.nsys.meta.json").write_text(json.dumps(about))
    plan = of.plan()
    assert plan is not None
    assert plan.launches[2].place == "forward/aten::mm/MLP/h.0.mlp"
    assert of.warmup == 2  # a first step makes the optimizer's state


def test_a_capture_without_an_iteration_is_named(tmp_path: Path) -> None:
    made = Step()
    made.forward()
    path = made.made.write(tmp_path / "x.sqlite")
    with pytest.raises(InputError, match=r"x\.sqlite: holds no iteration"):
        eager_launches.of_nsys(path)


def counted(sqlite: Path, chosen: set[int]) -> tuple[dict[str, Any], pa.Table]:
    """A plan of which some launches were measured (of launch i: 2**i bytes), and its counters."""
    launches = eager_launches.of_nsys(sqlite)
    told = {"train.fp32.ncu-rep": {i: i for i in sorted(chosen)}}
    plan = json.loads(json.dumps(plan_.document(launches, told)))
    rows = [
        {
            "source": "train.fp32.ncu-rep", "launch": i, "layer": launches[i].layer,
            "kernel": f"ncu's {launches[i].function}", "metric": "dram__bytes.sum",
            "unit": "byte", "value": 2.0**i,
        }
        for i in sorted(chosen)
    ]  # fmt: skip
    return plan, representatives.for_every_launch(tables.table("counters", rows), plan)


def test_a_module_has_the_counters_of_its_backward_too(sqlite: Path) -> None:
    back, last = BLOCKS * 4, BLOCKS * 8 + 1
    # Block 0's mlp: launches 2 and 3, and the backward of its addition and its product; backward
    # begins with the last block. The optimizer's second launch is measured, its first is not.
    first, other = last - 5, last - 4
    plan, table = counted(sqlite, {2, 3, first, other, last})
    assert plan["launches"][first]["place"] == "backward/AddBackward0//h.0.mlp"
    joined = launches_.join(table, NodeGraph(()), None, "fp32")
    rows = {r["launch"]: r for r in joined.to_pylist()}
    assert rows[2]["modules"] == ["h.0.mlp"] and rows[2]["rule"] == "range"
    assert rows[first]["layer"] == "layerline/phase/backward/h.0.mlp"
    assert rows[first]["modules"] == ["h.0.mlp"] and rows[first]["rule"] == "sequence"
    assert rows[last]["layer"] == "layerline/phase/optimizer" and not rows[last]["modules"]
    # Given ones: the last block's mlp, whose backward comes first.
    assert rows[back]["modules"] == [f"h.{BLOCKS - 1}.mlp"]
    assert rows[back]["representative_of"] == first and last - 1 not in rows
    of = sums.per_module(sums.per_layer(joined, launches_.of_table(joined)))
    bytes_of = {r["module"]: r["own"] for r in of.to_pylist()}
    assert bytes_of["h.0.mlp"] == 2.0**2 + 2.0**3 + 2.0**first + 2.0**other
    # attn was not measured in any block: it has no row, of zero least of all.
    assert "h.0.attn" not in bytes_of


def test_the_timeline_gives_no_kernel_the_counters_of_another_of_its_layer() -> None:
    def planned(index: int, place: str, layer: str) -> dict[str, Any]:
        return {"index": index, "layer": layer, "kernel": "void f<T>()", "place": place}

    own, back = f"{MODULE}m", "layerline/phase/backward"
    places = [("inference/aten::pow//m", own), ("inference/aten::mul//m", own),
              ("backward/PowBackward0//m", back), ("#3", "layerline/phase/optimizer")]  # fmt: skip
    plan = {"launches": [planned(i, *p) for i, p in enumerate(places)]}
    rows = [
        {"source": "x", "launch": i, "layer": representatives.label(plan["launches"][i]),
         "kernel": "f", "metric": "dram__bytes.sum", "unit": "byte", "value": float(i)}
        for i in (1, 2, 3)
    ]  # fmt: skip
    op = {"source": "t", "kind": "kernel", "name": "f", "phase": "inference", "range": own}
    ops = [op, op, {**op, "phase": "backward", "range": None, "modules": ["m"]},
           {**op, "phase": "optimizer", "range": "Optimizer.step#AdamW.step"}]  # fmt: skip
    found = counters_.read(tables.table("counters", rows), tables.table("ops", ops), plan)
    values = [found.values[c].get(counters_.BYTES) if c >= 0 else None for c in found.code]
    assert values == [None, 1.0, 2.0, 3.0]  # the first has no counters: not those of the second
    # Without a plan one of two kernels has counters, and which cannot be told.
    found = counters_.read(tables.table("counters", rows), tables.table("ops", ops))
    assert [c >= 0 for c in found.code] == [False, False, True, True]
