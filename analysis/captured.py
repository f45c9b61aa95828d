"""What a capture gives to the comparison, and the checks that any capture can be put to.

`engine_side` and `eager_sides` make it from the files of a run directory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from .readers.torch.events import Events
from .sides import SideData
from .sums import DEVICE_KINDS, SUMMED, UNRESOLVED, iterations_of, sums, timed_rows

BACKENDS = {
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-cuda": "ONNX Runtime CUDA",
    "tensorrt": "TensorRT",
    "tensorrt-rtx": "TensorRT for RTX",
}


@dataclass(frozen=True)
class Captured:
    """What one capture gave: its sides, all its operations, and what could not be done.

    `events`: calls, ranges and operations of a profiler trace, so that the timeline need not parse
    it once more; null for other captures."""

    sides: list[SideData]
    ops: pa.Table
    events: Events | None = None
    skipped: list[dict[str, str]] = field(default_factory=list)


def counted(ops: pa.Table) -> dict[str, int]:
    """Nanoseconds per kind to hold against the raw file: on a device every row, else the rows of
    iterations (a host trace has start-up in it that no reader keeps)."""
    rows, column = timed_rows(ops.select(SUMMED))
    if not set(pc.unique(rows["kind"]).to_pylist()) & set(DEVICE_KINDS):
        rows, _ = iterations_of(rows)
    found = rows.group_by("kind").aggregate([(column, "sum")])
    totals = zip(found["kind"].to_pylist(), found[f"{column}_sum"].to_pylist(), strict=True)
    return {kind: total or 0 for kind, total in totals}


def lost(parts: Sequence[pa.Table]) -> int:
    """Time of the operations of iterations less what modules, rows and unresolved get of it."""
    difference = 0
    for part in parts:
        rows, column = timed_rows(part.select(SUMMED))
        rows, _ = iterations_of(rows)
        difference += pc.sum(rows[column]).as_py() or 0
        difference -= int(sums(part, labels(part)).total().sum())
    return difference


def labels(ops: pa.Table, name: str | None = None) -> pa.Array:
    """A name per row for those without a module: the row that it belongs to (`name`, else what
    `layer` says), or "unresolved" where no rule found one."""
    known = pc.fill_null(pc.not_equal(ops["rule"], UNRESOLVED), False)
    row = pc.fill_null(ops["layer"], "no module") if name is None else name
    return pc.if_else(known, row, UNRESOLVED)
