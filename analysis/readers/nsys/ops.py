"""The table of operations of an nsys capture, from its arrays."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ....core import own_ranges, tables
from ..base import Artefact
from . import diagnostics, schema
from .attribution import Attribution, Launched, attribute
from .capture import GRAPH, KINDS
from .load import load
from .source import NULL, Integers, Source

# Text columns hold 2 GiB a chunk at most; slices keep well below.
SLICE = 131_072


def artefact(kind: str, source: Source) -> Artefact:
    """Read an export and attribute it: the artefact with its table of operations."""
    found = attribute(load(source))
    said = [*notes(found), *diagnostics.told(diagnostics.read(source))]
    return Artefact(kind, {"ops": operations(found, source.path)}, facts(found), said)


def facts(found: Attribution) -> dict[str, Any]:
    """Counts and sums of a capture, and what made it."""
    capture = found.capture
    count = {KINDS[o.kind]: len(o) for o in capture.operations if len(o)}
    total = {
        KINDS[o.kind]: int((o.end - o.start)[(o.end != NULL) & (o.start != NULL)].sum())
        for o in capture.operations
        if len(o)
    }
    processes = {p for o in capture.operations for p in o.processes if p != NULL}
    return {
        **capture.facts,
        "operations": count,
        "operation_ns": total,
        "ranges": len(capture.ranges),
        "processes": sorted(p & schema.PROCESS_MASK for p in processes),
        "domains": sorted(set(capture.domain_names.values())),
    }


def notes(found: Attribution) -> list[str]:
    """What a reader of the table has to know."""
    said = [*found.capture.notes, *found.notes]
    if not sum(len(o) for o in found.capture.operations):
        said.append("no GPU operation was recorded (nsys profile --trace=cuda)")
    if not len(found.capture.ranges):
        said.append("no NVTX range was recorded (nsys profile --trace=cuda,nvtx)")
    graphs = sum(len(o) for o in found.capture.operations if o.kind == GRAPH)
    if graphs:
        said.append(
            f"{graphs} rows are launches of whole CUDA graphs without their kernels "
            "(nsys profile --cuda-graph-trace=node)"
        )
    return said


def operations(found: Attribution, path: Path) -> pa.Table:
    """One row per GPU operation, sorted by start within its kind as the file has it."""
    parts = [
        _slice(found, launched, at, path.name)
        for launched in found.launched
        for at in range(0, len(launched.operations), SLICE)
    ]
    empty = tables.SCHEMAS["ops"].empty_table()
    return pa.concat_tables(parts) if parts else empty


def _slice(found: Attribution, launched: Launched, at: int, source: str) -> pa.Table:
    here = slice(at, at + SLICE)
    ops = launched.operations
    n = len(ops.start[here])
    piece = launched.piece[here]
    numbers = found.named_paths[0]
    path = np.where(piece >= 0, numbers[piece] if len(numbers) else -1, -1)
    distinct, inverse = np.unique(path, return_inverse=True)
    known = [_Path(found, int(p)) for p in distinct]
    start, end = ops.start[here], ops.end[here]
    duration = np.where((start == NULL) | (end == NULL), NULL, end - start)

    def spread(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, type=kind).take(pa.array(inverse))

    texts = pa.list_(pa.string())
    process = [None if p == NULL else p & schema.PROCESS_MASK for p in ops.processes]
    return tables.table(
        "ops",
        {
            "source": pa.repeat(pa.scalar(source), n),
            "kind": pa.repeat(pa.scalar(KINDS[ops.kind]), n),
            "name": _by_code([*found.capture.names, None], ops.name[here], pa.string()),
            "start_ns": _integers(start),
            "duration_ns": _integers(duration),
            "device": _by_code(_nulls(ops.devices), ops.device[here], pa.int64()),
            "stream": _by_code(_nulls(ops.streams), ops.stream[here], pa.int64()),
            "process": _by_code(process, ops.process[here], pa.int64()),
            "correlation": _integers(ops.correlation[here]),
            "range": spread([p.names[-1] if p.names else None for p in known], pa.string()),
            "range_path": spread([p.names for p in known], texts),
            "iteration": spread([p.iteration for p in known], pa.int64()),
            "phase": spread([p.phase for p in known], pa.string()),
        },
    )


class _Path:
    """A path of ranges; iteration and phase are those that this project's own ranges name."""

    def __init__(self, found: Attribution, path: int) -> None:
        names = found.capture.names
        self.names = None
        if path >= 0:
            self.names = [names[c] if c >= 0 else "" for c in found.named_paths[1].names(path)]
        self.iteration: int | None = None
        self.phase: str | None = None
        for name in self.names or ():
            if m := re.fullmatch(own_ranges.ITERATION + r"(\d{1,9})", name):
                self.iteration = int(m.group(1))
            elif m := re.fullmatch(own_ranges.PHASE + r"(\w+)", name):
                self.phase = m.group(1) if m.group(1) in tables.PHASES else "other"


def _nulls(values: list[int]) -> list[int | None]:
    return [None if v == NULL else v for v in values]


def _by_code(values: list[Any], codes: Any, kind: pa.DataType) -> pa.Array:
    """Values by code; -1 takes the last one."""
    if not len(codes):
        return pa.array([], type=kind)
    codes = np.where(codes < 0, len(values) - 1, codes)
    return pa.array(values, type=kind).take(pa.array(codes))


def _integers(values: Integers) -> pa.Array:
    return pa.array(values, mask=values == NULL)
