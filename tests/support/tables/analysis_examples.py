"""Small operations tables for the tests of analysis: rows written out, nothing computed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from layerline.core import tables


def node(
    layer: str, modules: list[str] | None, times: list[int], **more: Any
) -> list[dict[str, Any]]:
    """One engine node's rows, `times` in ns by iteration, one after the other every 1000 ns."""
    return [
        {
            "source": "x.json",
            "precision": "fp32",
            "phase": "inference",
            "iteration": i,
            "kind": "node",
            "name": layer,
            "layer": layer,
            "start_ns": 1_000_000 * i,
            "duration_ns": t,
            "modules": modules,
            "nodes": None if modules is None else [f"{m}/Op" for m in modules],
            "rule": "unresolved" if modules is None else "name",
            **more,
        }
        for i, t in enumerate(times)
    ]


def ops(*rows: list[dict[str, Any]]) -> pa.Table:
    """The ops table of the rows."""
    return tables.table("ops", [r for part in rows for r in part])


def three_modules() -> pa.Table:
    """Modules a, b.c and b.d. Layer ``a+c`` is fused over a and b.c; ``?`` is unresolved."""
    return ops(
        node("a", ["a"], [10, 20, 30]),
        node("a+c", ["a", "b.c"], [5, 5, 5]),
        node("c", ["b.c"], [100, 100, 100]),
        node("d", ["b.d"], [1, 2, 6]),
        node("?", None, [7, 7, 7]),
    )
