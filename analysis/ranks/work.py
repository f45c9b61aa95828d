"""Which work takes a rank longer than it takes the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from statistics import median

import pyarrow as pa

from ...core.kernel_names import function_name
from ..model.ranks import Straggler

_FAMILIES = (
    (re.compile(r"gemm|matmul|cutlass|xmma|cublas|nvjet|aten::(add|ba)?mm$|aten::bmm|aten::linear|"
                r"mkldnn_linear|dot_kernel|gemv", re.I), "matmuls"),
    (re.compile(r"attention|flash|fmha|softmax", re.I), "attention"),
    (re.compile(r"conv|wgrad|dgrad", re.I), "convolutions"),
)  # fmt: skip


def family(name: str) -> str:
    """What a kernel or operator is, in a word; its short name where that is not known."""
    known = next((word for pattern, word in _FAMILIES if pattern.search(name)), None)
    return known or function_name(name)


def slower(found: Straggler, work: Mapping[int, pa.Table]) -> Straggler:
    """The straggler with the work whose time exceeds the others' median most, and the ratio."""
    sums = {rank: _by_family(table) for rank, table in work.items()}
    mine = sums.pop(found.rank, Counter())
    if not mine or not sums:
        return found
    others = {name: median([s.get(name, 0) for s in sums.values()]) for name in mine}
    name = max(mine, key=lambda n: mine[n] - others[n])
    if mine[name] <= others[name]:
        return found
    ratio = mine[name] / others[name] if others[name] else None
    return replace(found, work=name, work_ratio=ratio)


def _by_family(table: pa.Table) -> Counter[str]:
    sums: Counter[str] = Counter()
    grouped = table.group_by("name").aggregate([("total_ns", "sum")])
    for row in grouped.to_pylist():
        sums[family(row["name"])] += row["total_ns_sum"]
    return sums
