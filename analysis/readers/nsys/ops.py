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
from .capture import GRAPH, KERNEL, KINDS
from .load import load
from .source import NULL, Integers, Source

# Text columns hold 2 GiB a chunk at most; slices keep well below.
SLICE = 131_072


def artefact(kind: str, source: Source) -> Artefact:
    """Read an export and attribute it: the artefact with its table of operations."""
    attribution = attribute(load(source))
    all_notes = [*notes(attribution), *diagnostics.sentences(diagnostics.read(source))]
    table = operations(attribution, source.path)
    return Artefact(kind, {"ops": table}, _facts(attribution), all_notes)


def _facts(attribution: Attribution) -> dict[str, Any]:
    """Counts and sums of a capture, and the versions of its tools."""
    capture = attribution.capture
    kinds = [o for o in capture.operations if len(o)]
    processes = {p for o in capture.operations for p in o.processes if p != NULL}
    return {
        **capture.facts,
        "operations": {KINDS[o.kind]: len(o) for o in kinds},
        "operation_ns": {
            KINDS[o.kind]: int((o.end - o.start)[(o.end != NULL) & (o.start != NULL)].sum())
            for o in kinds
        },
        "ranges": len(capture.ranges),
        "processes": sorted(p & schema.PROCESS_MASK for p in processes),
        "domains": sorted(set(capture.domain_names.values())),
    }


def notes(attribution: Attribution) -> list[str]:
    """What a reader of the table has to know."""
    capture = attribution.capture
    notes = [*capture.notes, *attribution.notes]
    if not sum(len(o) for o in capture.operations):
        notes.append("no GPU operation was recorded (nsys profile --trace=cuda)")
    elif not any(len(o) for o in capture.operations if o.kind in (KERNEL, GRAPH)):
        matched = np.unique(np.concatenate([x.call for x in attribution.launched]))
        lost = len(capture.calls) - int(np.count_nonzero(matched >= 0))
        if lost > 0:
            notes.append(
                f"no kernel is in the file, and {lost} calls that launch work have nothing that "
                "they launched: capture or export it again"
            )
    if not len(capture.ranges):
        notes.append("no NVTX range was recorded (nsys profile --trace=cuda,nvtx)")
    graphs = sum(len(o) for o in capture.operations if o.kind == GRAPH)
    if graphs:
        notes.append(
            f"{graphs} rows are launches of whole CUDA graphs without their kernels "
            "(nsys profile --cuda-graph-trace=node)"
        )
    return notes


def operations(attribution: Attribution, path: Path) -> pa.Table:
    """One row per GPU operation, sorted by start within its kind as the file has it."""
    parts = [
        _slice(attribution, launched, at, path.name)
        for launched in attribution.launched
        for at in range(0, len(launched.operations), SLICE)
    ]
    empty = tables.SCHEMAS["ops"].empty_table()
    return pa.concat_tables(parts) if parts else empty


def _slice(attribution: Attribution, launched: Launched, at: int, source: str) -> pa.Table:
    here = slice(at, at + SLICE)
    ops = launched.operations
    piece = launched.piece[here]
    numbers = attribution.named_paths[0]
    path = np.where(piece >= 0, numbers[piece] if len(numbers) else -1, -1)
    distinct, inverse = np.unique(path, return_inverse=True)
    paths = [_Path(attribution, int(p)) for p in distinct]
    start, end = ops.start[here], ops.end[here]
    duration = np.where((start == NULL) | (end == NULL), NULL, end - start)

    text, integer = pa.string(), pa.int64()
    process = [None if p == NULL else p & schema.PROCESS_MASK for p in ops.processes]
    return tables.table(
        "ops",
        {
            "source": pa.repeat(pa.scalar(source), len(start)),
            "kind": pa.repeat(pa.scalar(KINDS[ops.kind]), len(start)),
            "name": _by_code([*attribution.capture.names, None], ops.name[here], text),
            "start_ns": _integers(start),
            "duration_ns": _integers(duration),
            "device": _by_code(_nulls(ops.devices), ops.device[here], integer),
            "stream": _by_code(_nulls(ops.streams), ops.stream[here], integer),
            "process": _by_code(process, ops.process[here], integer),
            "correlation": _integers(ops.correlation[here]),
            "range": _by_code([p.names[-1] if p.names else None for p in paths], inverse, text),
            "range_path": _by_code([p.names for p in paths], inverse, pa.list_(text)),
            "iteration": _by_code([p.iteration for p in paths], inverse, integer),
            "phase": _by_code([p.phase for p in paths], inverse, text),
        },
    )


class _Path:
    """A path of ranges; iteration and phase are those that this project's own ranges name."""

    def __init__(self, attribution: Attribution, path: int) -> None:
        names = attribution.capture.names
        codes = attribution.named_paths[1].names(path)
        self.names = [names[c] if c >= 0 else "" for c in codes] if path >= 0 else None
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
