"""ForeignNodes in a table of layers: regions that TensorRT compiled whole, timed by one number.

A layer list and a profile know nothing of what runs inside; TensorRT's NVTX ranges name each of
its fused operations, so that an nsys capture splits it. See docs/foreign-node.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..core.resolve.spelling import reformat_of
from .report.show import percent

Layer = dict[str, Any]


def whole(row: Layer) -> bool:
    """Whether a row is a ForeignNode of which nothing says what kernels it ran."""
    return _foreign(row) and reformat_of(row["layer"]) is None


def untold(row: Layer) -> bool:
    """Whether a row is a ForeignNode, or a copy around one, that nothing but its name describes
    and that has no module: no nodes.json alone resolves it."""
    return _foreign(row) and row["kind"] is None and (row["rule"] or "unresolved") == "unresolved"


def _foreign(row: Layer) -> bool:
    return "ForeignNode[" in (row["layer"] or "") and row["kernels"] is None


def hint(rows: Sequence[Layer]) -> str | None:
    """One sentence: what would tell more of the ForeignNodes; null where there are none."""
    mine = [r for r in rows if whole(r)]
    if not mine:
        return None
    total = sum(r["total_ns"] or 0 for r in rows)
    one = len(mine) == 1
    text = "1 layer is a ForeignNode" if one else f"{len(mine)} layers are ForeignNodes"
    if total:
        text += f" ({percent(sum(r['total_ns'] or 0 for r in mine) / total)} of the time)"
    text += ", compiled whole: "
    told = "--layer-info layerinfo.json (trtexec --exportLayerInfo of an engine built with "
    told += "--profilingVerbosity=detailed) tells its modules by the tensors around it; "
    if any(map(untold, mine)):
        text += told
    where = "it" if one else "them"
    text += f"an nsys capture in place of this file splits {where} into operations and kernels"
    return text + "; see docs/foreign-node.md"
