"""Engine operations joined to layers: by name and occurrence, nothing lost, nothing invented."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from captured import engine_files
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis.attribution import onnxruntime
from layerline.analysis.captures import engine_ops as engine_ops_
from layerline.core.errors import InputError
from layerline.core.run import Run
from layerline.core.tables import table


def a_layer(name: str, module: str, occurrence: int = 0) -> dict[str, Any]:
    return {
        "name": name,
        "occurrence": occurrence,
        "nodes": [f"{module}/X"],
        "modules": [module],
        "rule": "name",
    }


def rows(*given: tuple[str, int | None, int]) -> Any:
    return table(
        "ops",
        [
            {"name": n, "iteration": i, "start_ns": s, "duration_ns": 10, "self_ns": 10}
            for n, i, s in given
        ],
    )


def modules(ops: Any) -> list[list[str] | None]:
    return ops["modules"].to_pylist()  # type: ignore[no-any-return]


def test_rows_take_what_their_layer_is() -> None:
    joined = onnxruntime.join(
        rows(("b", 0, 1), ("a", 0, 2)), [a_layer("a", "m"), a_layer("b", "n")]
    )
    assert modules(joined) == [["n"], ["m"]]
    assert joined["nodes"].to_pylist() == [["n/X"], ["m/X"]]
    assert joined["rule"].to_pylist() == ["name", "name"]


def test_one_layer_that_runs_several_times_is_one_layer() -> None:
    joined = onnxruntime.join(rows(("a", 0, 1), ("a", 0, 2), ("a", None, 3)), [a_layer("a", "m")])
    assert modules(joined) == [["m"]] * 3


def test_layers_of_one_name_are_told_apart_by_time_not_by_place_in_the_file() -> None:
    layers = [a_layer("a", "first", 0), a_layer("a", "second", 1)]
    joined = onnxruntime.join(rows(("a", 0, 9), ("a", 0, 1), ("a", 1, 20), ("a", 1, 21)), layers)
    assert modules(joined) == [["second"], ["first"], ["first"], ["second"]]


def test_layers_of_one_name_in_an_unfinished_run_are_unresolved() -> None:
    layers = [a_layer("a", "first", 0), a_layer("a", "second", 1)]
    joined = onnxruntime.join(rows(("a", 0, 1), ("a", None, 5)), layers)
    assert modules(joined) == [None, None]
    assert joined["rule"].to_pylist() == ["unresolved", "unresolved"]


def test_an_iteration_with_fewer_rows_than_layers_of_a_name_tells_none() -> None:
    """One whose time is not known counts as none; those of another name are as they were."""
    layers = [a_layer("a", "first", 0), a_layer("a", "second", 1), a_layer("b", "n")]
    times: Any = [("a", 0, 5), ("a", 0, None), ("b", 0, 7), ("a", 1, 9), ("a", 1, 8), ("a", 2, 3)]
    joined = onnxruntime.join(rows(*times), layers, "fp16")
    assert modules(joined) == [None, None, ["n"], ["second"], ["first"], None]
    assert joined["precision"].to_pylist() == ["fp16"] * 6
    assert onnxruntime.join(rows(("a", 0, 1)), layers)["precision"].to_pylist() == [None]
    # A layer without modules has none, also where its nodes are known.
    bare = {**a_layer("c", "m"), "modules": []}
    (row,) = onnxruntime.join(rows(("c", 0, 1)), [bare]).to_pylist()
    assert (row["modules"], row["nodes"], row["rule"]) == (None, ["m/X"], "name")
    # Of two layers that claim one occurrence the first; an occurrence that none has is nobody's.
    same = [a_layer("a", "first", 1), a_layer("a", "second", 1)]
    assert modules(onnxruntime.join(rows(("a", 0, 1), ("a", 0, 2)), same)) == [None, ["first"]]


def test_strange_name_is_kept_and_counts_against_coverage() -> None:
    joined = onnxruntime.join(rows(("a", 0, 1), ("x", 0, 2)), [a_layer("a", "m")])
    assert joined["layer"].to_pylist() == ["a", "x"]
    assert modules(joined) == [["m"], None]
    assert engine_ops_.coverage(joined) == 0.5
    assert engine_ops_.unlisted(joined) == {"x": 10}


def test_root_module_is_a_module() -> None:
    joined = onnxruntime.join(rows(("a", 0, 1)), [a_layer("a", "")])
    assert modules(joined) == [[""]]
    assert engine_ops_.coverage(joined) == 1.0


def test_no_time_is_no_coverage() -> None:
    assert engine_ops_.coverage(onnxruntime.join(rows(), [])) is None


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 3), st.integers(0, 99))),
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"))),
)
def test_joining_moves_no_time(
    ops: list[tuple[str, int | None, int]], described: list[tuple[str, str]]
) -> None:
    seen: dict[str, int] = {}
    layers = []
    for name, module in described:
        layers.append(a_layer(name, module, seen.get(name, 0)))
        seen[name] = seen.get(name, 0) + 1
    before = rows(*ops)
    joined = onnxruntime.join(before, layers, "fp32")
    kept = [c for c in before.column_names if c not in ("layer", "nodes", "modules", "rule")]
    kept.remove("precision")
    assert joined.select(kept).equals(before.select(kept))
    assert joined.schema.equals(before.schema)
    for name, found in zip(joined["name"].to_pylist(), modules(joined), strict=True):
        assert found is None or found[0] in {m for n, m in described if n == name}


def test_missing_meta_and_layers_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        engine_ops_.engine_ops(engine_files(Run(tmp_path), "fp32", "onnxruntime"))
    captures = tmp_path / "captures"
    captures.mkdir()
    (captures / "fp32.onnxruntime.profile.meta.json").write_text('{"facts": {"warmup_runs": 0}}')
    (tmp_path / "engines").mkdir()
    layers = tmp_path / "engines" / "fp32.onnxruntime.layers.json"
    layers.write_text(json.dumps({"schema_version": 9, "layers": []}))
    with pytest.raises(InputError, match="schema version"):
        engine_ops_.engine_ops(engine_files(Run(tmp_path), "fp32", "onnxruntime"))
    layers.write_text(json.dumps({"schema_version": 1, "layers": []}))
    with pytest.raises(InputError, match="which profile"):
        engine_ops_.engine_ops(engine_files(Run(tmp_path), "fp32", "onnxruntime"))
