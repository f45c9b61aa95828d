"""What a precision plan is refused for, and which nodes it keeps besides those that it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from layerline.core.accuracy.precision_plan import check_modules, kept_nodes, load
from layerline.core.errors import InputError
from layerline.core.nodes import Node, NodeGraph

RIGHT: dict[str, Any] = {
    "schema_version": 1, "precision": "fp16", "backend": "tensorrt",
    "modules_fp32": [{"module": "a.b", "why": "it overflows"}],
}  # fmt: skip


def written(folder: Path, **other: Any) -> Path:
    path = folder / "plan.json"
    path.write_text(json.dumps({**RIGHT, **other}))
    return path


def test_a_plan_is_read_for_both_half_precisions(tmp_path: Path) -> None:
    for precision in ("fp16", "bf16"):
        found = load(written(tmp_path, precision=precision))
        assert [m.module for m in found.modules_fp32] == ["a.b"]


@pytest.mark.parametrize(
    ("other", "what", "fix"),
    [
        ({"schema_version": 2}, "precision plan of schema version 2, this layerline reads 1",
         "layerline accuracy --plan makes one"),
        ({"precision": "fp32"}, "is a plan for fp32; only fp16 and bf16 engines keep modules in "
         "fp32", ""),
        ({"modules_fp32": []}, "names no module in modules_fp32", "leave the plan out"),
    ],
)  # fmt: skip
def test_a_plan_of_no_use_is_refused_with_its_file(
    tmp_path: Path, other: dict[str, Any], what: str, fix: str
) -> None:
    path = written(tmp_path, **other)
    with pytest.raises(InputError) as caught:
        load(path)
    error = caught.value
    assert (error.what, error.fix or "", error.file) == (what, fix, str(path))


def graph(*nodes: tuple[str, str, str], inputs: tuple[str, ...] = ("x",)) -> NodeGraph:
    """("module/Op", "what it reads", "what it writes")."""
    return NodeGraph(
        tuple(
            Node(n, n.rpartition("/")[2], n.rpartition("/")[0], tuple(r.split()), tuple(w.split()))
            for n, r, w in nodes
        ),
        inputs=inputs,
    )


def test_a_module_that_is_none_is_refused_with_the_nearest(tmp_path: Path) -> None:
    g = graph(("model.layer/Add", "x", "y"), ("model.norm/Mul", "y", "z"))
    check_modules(g, ["model.layer", "model", "model.norm"])
    with pytest.raises(InputError) as caught:
        check_modules(g, ["model", "model.lager"], tmp_path / "plan.json")
    error = caught.value
    assert error.what == "modules_fp32 names model.lager, of which the model has no node"
    assert (error.fix, error.file) == ("the nearest is model.layer", str(tmp_path / "plan.json"))
    with pytest.raises(InputError) as caught:
        check_modules(graph(), ["model"])
    assert caught.value.fix == "nodes.json names no module"
    with pytest.raises(InputError) as caught:  # however far
        check_modules(g, ["zzz"])
    assert str(caught.value.fix).startswith("the nearest is model")


def tensor(dtype: str, *shape: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape)}


# A mask is made of a single constant and of what is no number; the module adds it.
MASK = graph(
    ("m/Where", "seen least zero", "mask"), ("m/Mul", "mask one", "scaled"),
    ("a/Add", "x scaled", "y"), ("b/Relu", "y", "z"), inputs=("x", "seen"),
)  # fmt: skip
TENSORS = {
    "seen": tensor("bool", 1, 8), "least": tensor("float32", 1), "zero": tensor("float32"),
    "mask": tensor("float32", 1, 8), "one": tensor("float32", 1, 1),
    "scaled": tensor("float32", 1, 8),
    "x": tensor("float32", 1, 8), "y": tensor("float32", 1, 8), "z": tensor("float32", 1, 8),
}  # fmt: skip


def test_what_makes_a_mask_of_single_constants_is_kept_with_its_module() -> None:
    assert kept_nodes(MASK, TENSORS, ["a"]) == ["m/Where", "m/Mul", "a/Add"]
    assert kept_nodes(MASK, TENSORS, ["b"]) == ["b/Relu"]
    assert kept_nodes(MASK, TENSORS, []) == []


@pytest.mark.parametrize(
    "other",
    [
        {"least": tensor("float32", 2)}, {"least": tensor("float32", 1, 8)},  # a weight
        {"least": {}}, {"seen": {"shape": [1, 8]}}, {"seen": None},  # it may be anything
        {"seen": tensor("float32", 1)},  # an input of the model
    ],
)  # fmt: skip
def test_what_reads_an_activation_a_weight_or_anything_unknown_is_not(
    other: dict[str, Any],
) -> None:
    tensors = {**TENSORS, **other}
    assert kept_nodes(MASK, tensors, ["a"]) == ["a/Add"]


def test_what_makes_no_float_is_not_kept() -> None:
    tensors = {**TENSORS, "scaled": tensor("int64", 1, 8)}
    assert kept_nodes(MASK, tensors, ["a"]) == ["a/Add"]
