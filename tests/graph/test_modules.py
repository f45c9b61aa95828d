"""The graph of modules: nothing lost, nothing invented, blocks folded only where they are alike."""

from __future__ import annotations

import graphlib
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from resolve_graphs import graph

from layerline.analysis.graph.contract import contracted
from layerline.analysis.graph.fold import folded
from layerline.analysis.graph.model import ModuleGraph
from layerline.core.nodes import Node, NodeGraph


def blocks(count: int) -> NodeGraph:
    """An embedding, `count` residual blocks of a norm and a product, and a head that reads the
    embedding's weight."""
    nodes = [("emb/Gather", ["emb.weight", "x"], ["t0"])]
    for i in range(count):
        nodes += [
            (f"h.{i}.ln/Norm", [f"t{i}"], [f"n{i}"]),
            (f"h.{i}.fc/MatMul", [f"n{i}", f"h.{i}.fc.weight"], [f"m{i}"]),
            (f"h.{i}/Add", [f"m{i}", f"t{i}"], [f"t{i + 1}"]),
        ]
    nodes.append(("head/MatMul", [f"t{count}", "emb.weight"], ["y"]))
    weights = ["emb.weight", *(f"h.{i}.fc.weight" for i in range(count))]
    return graph(*nodes, outputs=["y"], weights=weights)


def arrows(found: ModuleGraph, kind: str = "data") -> set[tuple[str, str]]:
    return {(a.source, a.target) for a in found.arrows if a.kind == kind}


def test_blocks_that_are_alike_are_one_and_say_how_often() -> None:
    found = contracted(blocks(12), 3)
    norm = next(b for b in found.boxes if b.path == "h.0-11.ln")
    assert norm.modules == tuple(f"h.{i}.ln" for i in range(12)) and norm.times == 12
    assert arrows(found) == {
        ("input:x", "module:emb"),
        ("module:emb", "module:h.0-11.ln"),
        ("module:emb", "own:h.0-11#1"),
        ("module:h.0-11.ln", "module:h.0-11.fc"),
        ("module:h.0-11.fc", "own:h.0-11#1"),
        ("own:h.0-11#1", "module:head"),
        ("module:head", "output:y"),
    }
    # A block hands its sum to the next one's norm and to the next one's sum.
    assert arrows(found, "next") == {
        ("own:h.0-11#1", "module:h.0-11.ln"),
        ("own:h.0-11#1", "own:h.0-11#1"),
    }
    assert arrows(found, "parameter") == {("module:emb", "module:head")}


def test_whole_blocks_are_one_box_at_their_depth() -> None:
    found = contracted(blocks(3), 2)
    assert [b.id for b in found.boxes] == [
        "input:x", "module:emb", "module:h.0-2", "module:head", "output:y",
    ]  # fmt: skip
    assert arrows(found, "next") == {("module:h.0-2", "module:h.0-2")}
    assert dict(found.boxes[2].ops) == {"Norm": 3, "MatMul": 3, "Add": 3}


def test_one_block_that_is_built_otherwise_stays_apart() -> None:
    other = blocks(5)
    nodes = [replace(n, module="h.2.gate") if n.name == "h.2.fc/MatMul" else n for n in other.nodes]
    shown = folded({n.module: None for n in nodes if n.module is not None})
    assert shown["h.1.ln"] == "h.0-1.ln" and shown["h.2.ln"] == "h.2.ln"
    assert shown["h.3.fc"] == shown["h.4.fc"] == "h.3-4.fc"


def test_blocks_of_other_classes_stay_apart() -> None:
    shown = folded({"h.0": "Dense", "h.1": "Dense", "h.2": "Sparse"})
    assert shown["h.0"] == "h.0-1" and shown["h.2"] == "h.2"


def test_lists_within_lists_fold_too() -> None:
    classes = {f"h.{i}.experts.{j}": "Expert" for i in range(2) for j in range(3)}
    assert set(folded(classes).values()) == {"", "h", "h.0-1", "h.0-1.experts", "h.0-1.experts.0-2"}


@pytest.mark.parametrize(
    ("opened", "shown"),
    [("h", {"h.0", "h.1", "h.2", "h.3"}), ("h.1", {"h.0", "h.1", "h.2-3"}), ("", {"h.0-3"})],
)
def test_what_is_opened_is_shown_apart(opened: str, shown: set[str]) -> None:
    found = contracted(blocks(4), 2, [opened] if opened else [])
    assert {b.path for b in found.boxes if b.path.startswith("h.")} == shown


def test_additions_behind_two_branches_are_two_boxes_and_make_no_circle() -> None:
    found = contracted(
        graph(
            ("b.attn/MatMul", ["x"], ["a"]),
            ("b/Add", ["a", "x"], ["r"]),
            ("b.mlp/MatMul", ["r"], ["m"]),
            ("b/Add_1", ["m", "r"], ["y"]),
            outputs=["y"],
        ),
        2,
    )
    assert arrows(found) >= {
        ("module:b.attn", "own:b#1"),
        ("own:b#1", "module:b.mlp"),
        ("module:b.mlp", "own:b#2"),
        ("own:b#1", "own:b#2"),
    }


def test_a_node_without_a_module_is_shown_as_such() -> None:
    nodes = graph(("a/MatMul", ["x"], ["t"]), outputs=["y"])
    stray = Node("stray", "Relu", None, ("t",), ("y",))
    found = contracted(replace(nodes, nodes=(*nodes.nodes, stray)), 1)
    assert ("module:a", "unknown:") in arrows(found)
    assert ("unknown:", "output:y") in arrows(found)


MODULES = st.sampled_from(["", "a", "a.b", "a.b.c", "h.0", "h.0.f", "h.1", "h.1.f", "h.2.f", None])


@st.composite
def graphs(draw: st.DrawFn) -> NodeGraph:
    modules = draw(st.lists(MODULES, min_size=1, max_size=24))
    nodes = []
    for i, module in enumerate(modules):
        reads = draw(st.lists(st.integers(-1, i - 1), min_size=1, max_size=3))
        tensors = tuple("x" if r < 0 else f"t{r}" for r in reads)
        nodes.append(Node(f"n{i}", f"Op{i % 3}", module, tensors, (f"t{i}",)))
    return NodeGraph(tuple(nodes), ("x",), (f"t{len(nodes) - 1}",))


@given(graphs(), st.integers(1, 4))
def test_each_node_is_in_one_box_and_each_tensor_between_two_is_an_arrow(
    nodes: NodeGraph, depth: int
) -> None:
    found = contracted(nodes, depth)
    counted: Counter[str] = Counter()
    for box in found.boxes:
        counted.update(box.ops)
    assert counted == Counter(n.op for n in nodes.nodes)
    ids = {b.id for b in found.boxes}
    assert len(ids) == len(found.boxes)
    assert {e for a in found.arrows for e in (a.source, a.target)} <= ids
    # Who holds what, worked out from the boxes alone.
    held = {m: [b for b in found.boxes if b.holds(m)] for n in nodes.nodes if (m := n.module)}
    assert all(found_in for found_in in held.values())
    for node in nodes.nodes:
        for tensor in node.inputs:
            before = nodes.producer.get(tensor)
            if before is None or not (node.module and before.module):
                continue
            ends = {b.id for b in held[before.module]}, {b.id for b in held[node.module]}
            if not ends[0] & ends[1]:
                assert any(
                    tensor in a.tensors and a.source in ends[0] and a.target in ends[1]
                    for a in found.arrows
                )


@given(st.integers(1, 9), st.integers(1, 4))
def test_without_the_arrows_to_the_next_block_there_is_no_circle(count: int, depth: int) -> None:
    found = contracted(blocks(count), depth)
    before: dict[str, set[str]] = {}
    for source, target in arrows(found):
        before.setdefault(target, set()).add(source)
    list(graphlib.TopologicalSorter(before).static_order())
