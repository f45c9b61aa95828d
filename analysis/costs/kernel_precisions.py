"""In which precision the kernels of layers compute, by the kernels' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.kernel_names import compute_precision, leaves_type_open


def by_tactic(description: Mapping[str, Any]) -> str | None:
    """Where nothing was captured of its kernels, the tactic may be the name of one."""
    tactic = description.get("tactic")
    return compute_precision(tactic) if isinstance(tactic, str) else None


def compute_precisions(kernels: pa.Table, listed: Mapping[str, str]) -> pa.Array:
    """The compute precision of each kernel (columns name and layer), null where its name does not
    tell. Where it leaves the type open: fp16 or bf16 where `listed`, the engine's layers list, says
    so of the layer. (What is float32 there may be multiplied in TF32.)"""
    names, layers = kernels["name"], kernels["layer"]
    by_layer = _of_each(layers, {x: p for x, p in listed.items() if p in ("fp16", "bf16")}.get)
    left = _of_each(names, lambda name: "open" if leaves_type_open(name) else None)
    return pc.if_else(pc.is_valid(left), by_layer, _of_each(names, compute_precision))


def _of_each(texts: pa.ChunkedArray, told: Callable[[str], str | None]) -> pa.Array:
    """`told` of each text, called once for texts that are equal; null of null."""
    code, distinct = tables.codes(texts)
    values = pa.array([told(text) for text in distinct], type=pa.string())
    return values.take(pa.array(code, mask=code < 0))


def by_layer(ops: pa.Table) -> dict[str, str]:
    """Layer to the compute precision that takes the most of its kernels' time; layers whose
    kernels' names do not tell are left out."""
    ops = ops.select(["kind", "name", "layer", "duration_ns"])
    kernels = tables.of_kinds(ops, ["kernel"], "layer")
    if not len(kernels):
        return {}
    table = pa.table(
        {
            "layer": kernels["layer"],
            "precision": compute_precisions(kernels, {}),
            "ns": kernels["duration_ns"],
        }
    )
    table = table.filter(pc.is_valid(table["precision"]))
    rows = table.group_by(["layer", "precision"]).aggregate([("ns", "sum")]).to_pylist()
    rows.sort(key=lambda r: (-(r["ns_sum"] or 0), r["precision"]))
    precisions: dict[str, str] = {}
    for r in rows:
        precisions.setdefault(r["layer"], r["precision"])
    return precisions
