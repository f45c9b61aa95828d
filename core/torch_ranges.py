"""The NVTX ranges that PyTorch opens around operators: a name, and numbers of the single call.

``aten::mm, seq = 12, op_id = 34, sizes = [[2, 2], []]``, of which each number may be missing.
Source: `getNvtxStr` in torch/csrc/profiler/util.cpp.
"""

from __future__ import annotations

import re

_TEXT = re.compile(
    r"(?P<name>.*?)(?:, seq = (?P<seq>\d+))?(?:, op_id = \d+)?(?:, sizes = .*)?", re.S
)


def split(text: str) -> tuple[str, int | None]:
    """Name and sequence number of a range; the number is null without one."""
    found = _TEXT.fullmatch(text)
    if found is None:
        return text, None
    return found["name"], None if found["seq"] is None else int(found["seq"])
