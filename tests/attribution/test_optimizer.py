"""An optimizer's time by module: divided by bytes, to the nanosecond."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from layerline.analysis.attribution.optimizer import by_bytes
from layerline.core import tables
from layerline.core.documents import OptimizerBytes

SHARES = [
    OptimizerBytes(modules=["h"], bytes=300),
    OptimizerBytes(modules=["wte", "lm_head"], bytes=600),
    OptimizerBytes(modules=["ln"], bytes=100),
]


def ops(*rows: dict[str, Any]) -> pa.Table:
    return tables.table("ops", [{"phase": "optimizer", **row} for row in rows])


def times(found: pa.Table, column: str) -> dict[tuple[int, str], int]:
    return {(r["iteration"], r["modules"][0]): r[column] for r in found.to_pylist()}


def test_kernels_are_divided_and_the_host_is_not_added() -> None:
    kernels = ops(
        {"kind": "kernel", "iteration": 0, "duration_ns": 601},
        {"kind": "kernel", "iteration": 0, "duration_ns": 400},
        {"kind": "kernel", "iteration": 1, "duration_ns": 10},
        {"kind": "op", "iteration": 0, "self_ns": 999},
    )
    found = by_bytes(kernels, SHARES)
    assert times(found, "duration_ns") == {
        (0, "h"): 300, (0, "wte"): 601, (0, "ln"): 100,
        (1, "h"): 3, (1, "wte"): 6, (1, "ln"): 1,
    }  # fmt: skip
    assert sum(found["duration_ns"].to_pylist()) == 1011
    assert ["wte", "lm_head"] in found["modules"].to_pylist()


def test_a_row_is_of_the_optimizer_and_parts_are_rounded_at_their_borders() -> None:
    """Of 10 ns in thirds the borders are 3.33 and 6.67: 3, 4 and 3 ns. The file's order counts."""
    thirds = [OptimizerBytes(modules=[m], bytes=7) for m in ("x", "y", "z")]
    kernels = ops(
        {"kind": "memcpy", "iteration": 2, "duration_ns": 10},
        {"kind": "memset", "iteration": 1, "duration_ns": 1},
    )
    found = by_bytes(kernels, thirds).to_pylist()
    assert [(r["iteration"], r["modules"], r["duration_ns"]) for r in found] == [
        (1, ["x"], 0), (1, ["y"], 1), (1, ["z"], 0), (2, ["x"], 3), (2, ["y"], 4), (2, ["z"], 3),
    ]  # fmt: skip
    assert found[0] == {
        **dict.fromkeys(tables.table("ops", []).column_names),
        "phase": "optimizer", "iteration": 1, "kind": "kernel", "name": "optimizer, by bytes",
        "layer": "optimizer, by bytes", "duration_ns": 0, "modules": ["x"], "rule": "range",
    }  # fmt: skip
    (on_cpu,) = by_bytes(ops({"kind": "op", "iteration": 1, "self_ns": 5}), thirds[:1]).to_pylist()
    assert (on_cpu["kind"], on_cpu["self_ns"], on_cpu["duration_ns"]) == ("op", 5, None)


def test_operators_of_the_cpu_are_divided_by_their_own_time() -> None:
    found = by_bytes(ops({"kind": "op", "iteration": 4, "self_ns": 1000}), SHARES)
    assert times(found, "self_ns") == {(4, "h"): 300, (4, "wte"): 600, (4, "ln"): 100}
