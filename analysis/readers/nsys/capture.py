"""A capture of nsys as arrays: GPU operations, the calls that launched them, the ranges.

Compact on purpose (about 70 bytes an operation with its launch and its ranges), so that captures
of ten million kernels fit in memory. `load` reads them, `ops` makes the table from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .source import Codes, Integers

KERNEL, COPY, SET, GRAPH = range(4)
KINDS = ("kernel", "memcpy", "memset", "graph")


@dataclass
class Operations:
    """GPU operations of one kind in file order.

    `start`, `end`: ns, `NULL` where the file has none. `process`, `device` and `stream`: codes into
    the list that follows. `name`: code into the capture's names, -1 for none.
    `node`: graph node id or `NULL`; None where no row has one.
    """

    kind: int
    start: Integers
    end: Integers
    correlation: Integers
    process: Codes
    processes: list[int]  # globalPid >> 24, NULL for unknown
    name: Codes
    device: Codes
    devices: list[int]
    stream: Codes
    streams: list[int]
    node: Integers | None

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Calls:
    """Calls into CUDA: start in ns, correlation id, and the thread as code into `threads`."""

    start: Integers
    correlation: Integers
    thread: Codes
    threads: list[int]  # globalTid

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class Ranges:
    """NVTX ranges in file order; `end` is `NULL` where the capture has none."""

    start: Integers
    end: Integers
    thread: Codes
    threads: list[int]
    end_thread: Codes
    end_threads: list[int]  # NULL: the same thread
    loose: npt.NDArray[np.bool_]
    domain: Codes
    domains: list[int]
    name: Codes

    def __len__(self) -> int:
        return len(self.start)


@dataclass
class GraphNodes:
    """Creations of CUDA graph nodes: where a captured graph's node was created."""

    node: Integers
    original: Integers
    start: Integers
    thread: Integers


Grids = dict[int, tuple[int, int, int]]  # x, y, z


@dataclass
class Capture:
    """What one export holds. `names` are shared by operations and ranges. `grids` reads, while the
    export is open, the blocks of the kernels that start at the moments given, by the moment;
    without those that are not known."""

    operations: list[Operations]
    calls: Calls
    ranges: Ranges
    names: list[str]
    domain_names: dict[tuple[int, int], str]  # (process key, domain id)
    nodes: GraphNodes | None
    facts: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    more_calls: Callable[[], Calls] | None = None  # those that have no launch's name
    grids: Callable[[Sequence[int]], Grids] | None = None
