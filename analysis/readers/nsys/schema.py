"""Where nsys puts what, in every schema from 2020 to 2026.

Sources: the schema pages of the Nsight Systems user guides (2020.3 to 2026.1) and exports of
2020.3, 2022.4, 2023.1, 2023.4, 2025.3, 2025.5 and 2026.1. Tables are absent when nothing was
recorded; columns are added now and then; NVTX and CUPTI tables may carry a suffix ``_V2`` or
``_V3``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
NVTX = "NVTX_EVENTS"
GRAPH_NODES = "CUDA_GRAPH_NODE_EVENTS"
STRINGS = "StringIds"
DIAGNOSTICS = "DIAGNOSTIC_EVENT"
META = ("META_DATA_EXPORT", "EXPORT_META_DATA")

OPERATIONS = (KERNELS, MEMCPY, MEMSET, GRAPHS)

# What an nsys export has, one of these at least, with these columns at least.
SIGNATURES = {
    KERNELS: {"start", "end"},
    MEMCPY: {"start", "end"},
    MEMSET: {"start", "end"},
    GRAPHS: {"start", "end"},
    RUNTIME: {"start", "end"},
    NVTX: {"start", "end"},
    "TARGET_INFO_GPU": {"id"},
    "TARGET_INFO_SESSION_START_TIME": set(),
    "ANALYSIS_DETAILS": set(),
    "PROFILER_OVERHEAD": set(),
}

# eventType of NVTX_EVENTS (ENUM_NSYS_EVENT_TYPE): NvtxPushPopRange, NvtxStartEndRange, the same
# two imported from NVTXT files, and NvtxDomainCreate.
PUSH_POP, START_END, TEXT_PUSH_POP, TEXT_START_END, DOMAIN_CREATE = 59, 60, 70, 71, 75
RANGES = (PUSH_POP, START_END, TEXT_PUSH_POP, TEXT_START_END)
LOOSE = (START_END, TEXT_START_END)

# Calls that launch work have one of these in their name. Only an order of reading: what is
# matched by none of them is looked for among all calls.
LAUNCHES = ("launch", "memcpy", "memset")

# CUPTI's CUpti_ActivityMemcpyKind, in the words of `nsys stats`.
COPY_KINDS = {
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}

PROCESS_SHIFT = 24  # globalTid and globalPid: hardware, VM, process; the low 24 bits: the thread
PROCESS_MASK = 0xFFFFFF


def pick(tables: Mapping[str, tuple[str, ...]], name: str) -> str | None:
    """The table `name`, or its newest suffixed form (``_V3`` before ``_V2``); None for none."""
    if name in tables:
        return name
    versions = [
        (int(m.group(1)), t) for t in tables if (m := re.fullmatch(rf"{name}_V(\d{{1,4}})", t))
    ]
    return max(versions)[1] if versions else None


def is_nsys(tables: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether these tables are those of an nsys export."""
    for name, columns in SIGNATURES.items():
        table = pick(tables, name)
        if table is not None and columns <= set(tables[table]):
            return True
    return False
