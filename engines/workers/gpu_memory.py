"""Whether a failure is for want of GPU memory, which the libraries often do not say.

On a full GPU TensorRT, cuDNN and cuBLAS report an invalid handle or that they are not initialised.
So what they say is held against how much of the GPU was free. Standard library only; also runs on
Python 3.10.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from common import WorkerError
from cuda_driver import OUT_OF_MEMORY, CudaError

Memory = tuple[int, int]  # free and all bytes of the GPU

# With less of the GPU free, the reason why something failed there is taken to be that.
# TensorRT 8.6 and its tactics took 1.5 GiB of a GPU before anything of a 12-layer model.
LITTLE_BYTES = 2 << 30
FIX = "free the GPU or use a smaller batch"
# CUDA's, cuBLAS's and cuDNN's names, TensorRT's error code 2, its allocator's sentence, and ONNX
# Runtime's words (onnxruntime/core/framework/bfc_arena.cc).
_RAN_OUT = re.compile(
    r"out[ _]?of[ _]?memory|memory_?allocation|status_alloc_failed|memory.{0,40}not be allocated"
    r"|failed to allocate memory|bad_alloc"
)


def ran_out(text: str) -> bool:
    """Whether a library's message itself says that memory ran out."""
    return _RAN_OUT.search(text.lower()) is not None


def shortage(begun: Memory | None, failed: Memory | None = None) -> str | None:
    """How little was free when it began, or else when it failed; None: enough, or not known."""
    for memory, when in ((begun, "when it began"), (failed, "when it failed")):
        if memory is not None and memory[0] < LITTLE_BYTES:
            free, total = (f"{b / 2**30:.1f} GiB" for b in memory)
            return f"only {free} of the GPU's {total} of memory were free {when}"
    return None


def out_of_memory(detail: object = None) -> WorkerError:
    """The error for a GPU that is full."""
    return WorkerError("out of GPU memory" + (f" ({detail})" if detail else ""), FIX, 3)


@contextlib.contextmanager
def reported() -> Iterator[None]:
    """Around work, or a function, whose CUDA calls may find the GPU full: a WorkerError then."""
    try:
        yield
    except CudaError as e:
        if e.code == OUT_OF_MEMORY:
            raise out_of_memory(e) from e
        raise
