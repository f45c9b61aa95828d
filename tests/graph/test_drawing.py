"""SVG and DOT: safe to open, every module by its path, values where they belong."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any
from xml.etree import ElementTree

import pytest
from resolve_graphs import graph

from layerline.analysis.costs import columns
from layerline.analysis.graph import dot, shading, svg
from layerline.analysis.graph.contract import contracted
from layerline.core import tables
from layerline.core.documents import ModuleError
from layerline.core.nodes import NodeGraph

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = '</text><script>x()</script>"&\\N\n\x00\x1b\u202e\ud800]; evil'


def two() -> NodeGraph:
    return graph(
        ("m.a/MatMul", ["x"], ["t"]),
        ("m/Add", ["t"], ["u"]),
        ("m.b/Relu", ["u"], ["y"]),
        outputs=["y"],
    )


def hostile() -> NodeGraph:
    nodes = two()
    named = [
        type(n)(n.name, n.op + HOSTILE, (n.module or "") + HOSTILE, n.inputs, n.outputs, HOSTILE)
        for n in nodes.nodes
    ]
    return type(nodes)(tuple(named), ("x",), ("y",))


def address(module: str) -> str:
    return "index.html" + svg.anchor(module)


def titles(text: str) -> dict[str, str]:
    """The title of each module's box."""
    found = {}
    for group in ElementTree.fromstring(text).iter(f"{SVG}g"):
        if (module := group.get("data-module")) is not None and "box" in group.get("class", ""):
            found[module] = group.findtext(f"{SVG}title") or ""
    return found


def test_each_module_has_its_path_a_title_and_a_link() -> None:
    found = contracted(two(), 2)
    text = svg.drawing(found, two(), "t", None, address)
    assert titles(text) == {
        "m.a": "m.a\noperators: MatMul",
        "m": "own operations of m\noperators: Add",
        "m.b": "m.b\noperators: Relu",
    }
    links = {a.get("href") for a in ElementTree.fromstring(text).iter(f"{SVG}a")}
    assert links == {f"index.html#module:{m}" for m in ("m", "m.a", "m.b")}


def test_names_from_files_stay_text_in_svg() -> None:
    nodes = hostile()
    text = svg.drawing(contracted(nodes, 2), nodes, HOSTILE, None, address)
    root = ElementTree.fromstring(text)
    kinds = {e.tag.removeprefix(SVG) for e in root.iter()}
    assert kinds == {
        "svg", "title", "style", "g", "a", "rect", "text", "path", "defs", "marker",
    }  # fmt: skip
    attributes = {name for e in root.iter() for name in e.attrib}
    assert not any(name.startswith("on") for name in attributes)
    assert all((a.get("href") or "").startswith("index.html#module:") for a in root.iter(f"{SVG}a"))
    assert text.isprintable() or set(text) - {c for c in text if c.isprintable()} == {"\n"}


def test_names_from_files_stay_text_in_dot() -> None:
    nodes = hostile()
    text = dot.text(contracted(nodes, 2), nodes, HOSTILE)
    outside = re.sub(r'"(?:[^"\\]|\\.)*"', "", text)
    assert "script" not in outside and "evil" not in outside
    assert set(text) - {c for c in text if c.isprintable()} == {"\n"}


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
@pytest.mark.parametrize("nodes", [two(), hostile()])
def test_graphviz_draws_the_same_boxes(nodes: NodeGraph) -> None:
    found = contracted(nodes, 2)
    text = dot.text(found, nodes, "t")
    drawn = subprocess.run(["dot", "-Tplain"], input=text, capture_output=True, text=True)
    assert drawn.returncode == 0, drawn.stderr
    counted = [line.split(" ")[0] for line in drawn.stdout.replace("\\\n", "").splitlines()]
    assert counted.count("node") == len(found.boxes)
    assert counted.count("edge") == len(found.arrows)


def ops(*rows: tuple[list[str], int, int]) -> Any:
    return tables.table(
        "ops",
        [
            {"kind": "kernel", "iteration": i, "duration_ns": ns, "modules": m, "rule": "name"}
            for m, i, ns in rows
        ],
    )


def test_cost_is_that_of_the_operations_and_a_range_where_layers_are_shared() -> None:
    found = contracted(two(), 2)
    table = ops((["m.a"], 0, 30), (["m.a", "m"], 0, 20), (["m.b"], 0, 50))
    got = shading.cost(found, table, "t").of
    assert got["module:m.a"].value == 0.5 and got["module:m.a"].short == "30.0 % – 50.0 %"
    assert got["own:m#1"].value == 0.2 and got["own:m#1"].short == "0 % – 20.0 %"
    assert got["module:m.b"].short == "50.0 %"
    assert "50 ns of 100 ns" in got["module:m.b"].full


def test_cost_of_folded_blocks_is_the_median_of_their_sums() -> None:
    nodes = graph(("h.0/Add", ["x"], ["t"]), ("h.1/Add", ["t"], ["y"]), outputs=["y"])
    rows = [(["h.0"], i, ns) for i, ns in enumerate((10, 20, 90))]
    rows += [(["h.1"], i, ns) for i, ns in enumerate((50, 20, 10))]
    found = contracted(nodes, 2)
    # 60, 40, 100 in the three iterations; medians of each alone would add up to 40.
    assert shading.cost(found, ops(*rows), "t").of["module:h.0-1"].full.startswith("60 ns of 60 ns")


def test_hotness_is_of_all_elements_and_steps_that_are_known() -> None:
    import pyarrow as pa

    rows = pa.table(
        {
            "module": ["m.a", "m.a", "m.b", "m.b"],
            "elements": [100, 100, 50, 50],
            "changed": [10, 30, 50, None],
        }
    )
    got = shading.hotness(contracted(two(), 2), rows, "t").of
    assert got["module:m.a"].value == 40 / 200
    assert got["module:m.b"].value == 1.0 and "1 more rows" in got["module:m.b"].full
    assert "own:m#1" not in got
    assert shading.hotness(contracted(two(), 1), rows, "t").of["module:m"].value == 90 / 250


def test_the_peak_is_the_first_moment_of_most_bytes() -> None:
    import pyarrow as pa

    steps = [
        (1, "alloc", 10, "m.a"), (1, "alloc", 20, "m.b"), (1, "free_requested", 10, "m.a"),
        (1, "alloc", 5, None), (1, "free_requested", 20, "m.b"), (1, "segment_alloc", 999, "m.a"),
    ]  # fmt: skip
    names = ("iteration", "action", "bytes", "module")
    table = pa.table({n: list(c) for n, c in zip(names, zip(*steps, strict=True), strict=True)})
    assert columns.peak(table) == {"m.a": 10, "m.b": 20}


def test_the_error_of_a_box_is_the_worst_of_its_modules() -> None:
    nodes = graph(("h.0/Add", ["x"], ["t"]), ("h.1/Add", ["t"], ["y"]), outputs=["y"])
    errors = {
        "h.0": ModuleError(module="h.0", error_out=0.25),
        "h.1": ModuleError(module="h.1", error_out=0.5, first_wrong=True),
    }
    got = shading.error(contracted(nodes, 2), errors, "t").of["module:h.0-1"]
    assert got.value == 0.5 and "h.1, the first wrong one" in got.full
