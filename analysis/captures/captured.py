"""What a capture gives to the comparison, and the checks that any capture can be put to.

`engine` and `eager` make it from the files of a run directory.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ..model.side import SideData
from ..readers.torch.events import Events
from .files import EagerFiles, EngineFiles

BACKENDS = {
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-cuda": "ONNX Runtime CUDA",
    "tensorrt": "TensorRT",
    "tensorrt-rtx": "TensorRT for RTX",
}


@dataclass(frozen=True)
class Captured:
    """What one capture gave, by its files: its sides, and all its operations.

    `events`: calls, ranges and operations of a profiler trace, so that the timeline need not parse
    it once more; None for other captures."""

    files: EngineFiles | EagerFiles
    sides: list[SideData]
    ops: pa.Table
    events: Events | None = None
