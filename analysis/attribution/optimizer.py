"""An optimizer's time by module: an estimate, by the bytes that it reads and writes.

A foreach or fused optimizer updates many tensors in one kernel, and none of them says which. What
an update costs is memory traffic: the bytes of a parameter, its gradient and its state. So the time
of each step is divided among modules in proportion to these bytes. A weight that several modules
share is of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.documents import OptimizerBytes
from ...core.tables import DEVICE_KINDS

LAYER = "optimizer, by bytes"


def by_bytes(ops: pa.Table, shares: Sequence[OptimizerBytes]) -> pa.Table:
    """One row for each iteration and share, in place of the operations of the optimizer: times are
    whole nanoseconds that add up to those of the iteration."""
    on_device = bool(set(pc.unique(ops["kind"]).to_pylist()) & set(DEVICE_KINDS))
    kinds, column = (DEVICE_KINDS, "duration_ns") if on_device else (("op",), "self_ns")
    rows = tables.of_kinds(ops, kinds, column, "iteration")
    weights = np.array([share.bytes for share in shares], dtype=np.float64)
    iteration, time = rows["iteration"].to_numpy(), rows[column].to_numpy()
    made = []
    for number in np.unique(iteration).tolist():
        total = int(time[iteration == number].sum())
        # Borders of the parts are rounded, not the parts: so they add up.
        borders = np.rint(np.cumsum(weights) / weights.sum() * total).astype(np.int64)
        made += [
            {
                "phase": "optimizer",
                "iteration": number,
                "kind": kinds[0],
                "name": LAYER,
                column: ns,
                "layer": LAYER,
                "modules": share.modules,
                "rule": "range",
            }
            for share, ns in zip(shares, np.diff(borders, prepend=0).tolist(), strict=True)
        ]
    return tables.table("ops", made)
