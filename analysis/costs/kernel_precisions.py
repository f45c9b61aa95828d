"""In which precision the kernels of layers compute, by the kernels' names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.kernel_names import compute_precision


def by_tactic(description: Mapping[str, Any]) -> str | None:
    """Where nothing was captured of its kernels, the tactic may be the name of one."""
    tactic = description.get("tactic")
    return compute_precision(tactic) if isinstance(tactic, str) else None


def compute_precisions(names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The compute precision of each kernel name, null where it does not tell."""
    code, distinct = tables.codes(names)
    precisions = pa.array([compute_precision(name) for name in distinct], type=pa.string())
    return precisions.take(pa.array(code, mask=code < 0))


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
            "precision": compute_precisions(kernels["name"]),
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
