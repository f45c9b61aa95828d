"""The NVTX ranges that PyTorch opens around operators: a name, and numbers of the single call.

``aten::mm, seq = 12, op_id = 34, sizes = [[2, 2], []]``; each number may be missing.
Source: `getNvtxStr` in torch/csrc/profiler/util.cpp. And which operators make the host wait for a
device.
"""

from __future__ import annotations

import re

# The engine's range around each node of the backward graph that it evaluates.
EVALUATE = "autograd::engine::evaluate_function: "
# Right inside it, beside the node's own range: the gradients of a value that was used more than
# once meet (a residual connection, a weight that two modules share). They are no module's.
SUMS = ("aten::add", "aten::add_")

# The operator that calls a graph which inductor compiled; its key follows, and ` ##`.
# Source: `CompiledFxGraph.__call__` in torch/_inductor/output_code.py.
CALL = "## Call CompiledFxGraph "

# Each hands a value to the host, or makes a tensor whose size depends on values.
WOULD_WAIT = frozenset(
    f"aten::{name}"
    for name in (
        *("_local_scalar_dense", "nonzero", "masked_select", "equal"),
        *("_unique2", "unique_dim", "unique_consecutive", "repeat_interleave", "bincount"),
    )
)
# These do where they bring values from a device to the host.
COPIES = frozenset({"aten::_to_copy", "aten::copy_"})

_NUMBERS = re.compile(r"(?:, seq = (?P<seq>\d+))?(?:, op_id = \d+)?(?:, sizes = .*)?", re.S)


def split(text: str) -> tuple[str, int | None]:
    """Name and sequence number of a range; the number is None without one."""
    # The shortest name that leaves nothing but numbers; a name may have commas of its own.
    at = text.find(", ")
    while at >= 0:
        match = _NUMBERS.fullmatch(text, at)
        if match:
            number = match["seq"]
            return text[:at], None if number is None else int(number)
        at = text.find(", ", at + 1)
    return text, None
