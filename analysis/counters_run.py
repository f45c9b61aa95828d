"""The counters of a run directory: every Nsight Compute capture in it, joined to its layers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pyarrow as pa

from ..core import nodes
from ..core.nodes import NodeGraph
from ..core.run import Run
from . import counters, ncu_combine, ncu_spread
from .engine_captures import network_of, nodes_file
from .readers import registry

# fp16.tensorrt.ncu-rep, eager.fp16.ncu-rep, train.fp16.ncu.csv; a further part may name a piece.
_ENGINE = re.compile(r"^(fp32|tf32|fp16|bf16)\.([a-z][a-z0-9-]*)(?:\.[^.]+)*\.(ncu-rep|ncu\.csv)$")
EVERY = ".ncu-every"
_EAGER = re.compile(r"^(eager|train)\.(\w+)(?:\.[^.]+)*\.(ncu-rep|ncu\.csv)$")


def captures(run: Run) -> list[Path]:
    """The ncu captures of a run; of a report and the CSV made of it, the report where it can be
    read (its values are not rounded).

    Pieces that were not put together yet are, into the CSV that one capture would have left. Of two
    captures of one engine, one of every launch and one at the fraction, the latter counts.
    """
    folder = run.file("captures")
    for pieces in sorted(folder.glob("*.ncu.batches")):
        whole = pieces.with_suffix(".csv")
        if (pieces / "manifest.json").exists() and not whole.exists():
            ncu_combine.combine(pieces, whole)
    found: dict[str, Path] = {}
    kinds = [("*.ncu.csv", ".ncu.csv"), ("*.ncu-rep", ".ncu-rep")]
    if importlib.util.find_spec("ncu_report") is None:
        kinds.reverse()
    for pattern, suffix in kinds:
        for path in sorted(folder.glob(pattern)):
            if not path.name.startswith("."):
                found[path.name.removesuffix(suffix)] = path
    return [
        found[s]
        for s in sorted(found)
        if s.removesuffix(EVERY) == s or s.removesuffix(EVERY) not in found
    ]


def counters_of_run(run: Run) -> pa.Table | None:
    """The `counters` table of all ncu captures of a run, null where there are none.

    ToolMissing where a report cannot be read for want of ncu-report and has no CSV beside it.
    """
    parts = [_joined(run, path) for path in captures(run)]
    return pa.concat_tables(parts) if parts else None


def _joined(run: Run, capture: Path) -> pa.Table:
    read = registry.read(capture)
    found = read.main
    engine, eager = _ENGINE.match(capture.name), _EAGER.match(capture.name)
    kind = engine or eager
    if kind:
        own = EVERY if f"{EVERY}." in capture.name else ""
        plan = run.file("captures", f"{kind[1]}.{kind[2]}{own}.ncu.plan.json")
        found = ncu_spread.of_file(read, plan)
    if engine:
        name = f"{engine[1]}.{engine[2]}"
        path = nodes_file(run, name, engine[1])
        graph = nodes.load(path) if path.exists() else None
        return counters.join(found, graph, network_of(run, name), engine[1], f"{name}.engine")
    # An eager capture has module ranges and no engine layers: an empty graph resolves these.
    return counters.join(found, NodeGraph(()), None, eager[2] if eager else None)
