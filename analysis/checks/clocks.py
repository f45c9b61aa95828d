"""Whether the clocks of nsys and of ONNX Runtime's profile could be joined."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from ...core.tables import UNRESOLVED
from ..attribution.onnxruntime_nsys import Distance
from ..model.comparison import Check
from . import closure

CHECK = "clocks"


def joined(ops: pa.Table, known: Distance | None) -> Check:
    """Open where the clocks could not be joined, or a launch lies at no one node's time: its
    operation is unresolved, and counts against coverage."""
    if known is None:
        why = "the clocks of nsys and of ONNX Runtime's profile could not be joined"
        return closure.unchecked(CHECK, f"{why}, so no kernel has a node")
    rows = ops.filter(pc.is_valid(ops["iteration"]))
    without = pc.sum(pc.equal(rows["rule"], UNRESOLVED)).as_py() or 0
    width = known.high - known.low
    text = f"The clocks of nsys and of ONNX Runtime's profile are joined to within {width:,} ns; "
    if without:
        text += f"{without:,} of {len(rows):,} operations were launched at no one node's time."
    else:
        text += f"each of {len(rows):,} operations was launched at one node's time."
    terms = [("distance of the clocks, uncertain by", width)]
    return Check(CHECK, terms, None, None, None, None if without else True, text)
