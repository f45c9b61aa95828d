"""What a capture gives to the comparison, and the checks that any capture can be put to.

`engine_side` and `eager_sides` make it from the files of a run directory.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from ..model.side import SideData
from ..readers.torch.events import Events

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
