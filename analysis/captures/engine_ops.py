"""Operations of an engine from the best capture of it: kernels under nsys, else its own profile.

TensorRT under nsys: the NVTX ranges name what launched each kernel, also inside a ForeignNode,
where the engine's own profile has one time for the whole model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct

from ...core import tables
from ...core.cli.progress import log
from ...core.documents import Measured, Trace, forms
from ...core.documents.forms import Count
from ...core.errors import InputError
from ...core.files import read_json
from ...core.labels import all_labelled
from ...core.resolve import node_status
from ..attribution.onnxruntime import join
from ..checks import clocks, raw_totals
from ..checks.closure import DEVICE_FLOOR_NS, SPAN_FLOOR_NS
from ..costs.layers import by_label
from ..model.comparison import Check
from ..readers.base import Artefact
from ..readers.nsys.capture import Capture
from ..readers.onnxruntime import profile as profile_
from ..rundir.provenance import Foreign
from .files import INDUCTOR, ORT_CUDA, EngineFiles

FOREIGN = "{ForeignNode["


@dataclass(frozen=True)
class EngineCapture:
    """`ops` of the capture in `raw`; `latency_ns` of its iterations (empty where it cannot be
    compared with them), `raw_ns` per kind summed by other code, `nodes` with their fate where
    the capture tells more than the engine's layer list, `floor_ns` for check (ii). `queued`: each
    inference was queued as a whole before it began, so its latency is the device's alone.
    `checks`: of how it was read."""

    ops: pa.Table
    raw: Path
    latency_ns: Sequence[int]
    raw_ns: Mapping[str, int] | None
    described: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    floor_ns: int = SPAN_FLOOR_NS
    queued: bool = False
    checks: Sequence[Check] = ()


def read(files: EngineFiles) -> EngineCapture:
    """The capture of one engine. InputError where it is missing or broken."""
    if files.under_nsys:
        own = {ORT_CUDA: _onnxruntime_trace, INDUCTOR: _inductor_trace}
        return own.get(files.backend, _nsys)(files)
    if files.backend == INDUCTOR:
        return _inductor(files)
    if files.backend.startswith("tensorrt"):
        ops, total = _iprofiler(files.raw, files.precision, files.layers)
        # IProfiler synchronises after each layer: its run's latency is of another execution.
        return EngineCapture(ops, files.raw, (), total, files.layers, files.nodes)
    profile = _profile(files)
    ops = engine_ops(files).main
    again = None
    if raw_totals.small(files.raw):
        again = raw_totals.onnxruntime(files.raw, profile.facts.warmup_runs or 0)
    # On a GPU every launch waited for its kernel: that run's latency is of another execution.
    times = () if files.backend == ORT_CUDA else profile.latency_ns
    return EngineCapture(ops, files.raw, times, again, files.layers, files.nodes)


def _inductor(files: EngineFiles) -> EngineCapture:
    from ..attribution import inductor

    ops, on_device = inductor.operations(files.raw, files.layers, files.precision)
    total = None
    if raw_totals.small(files.raw):
        total = raw_totals.torch_trace(files.raw).sums
        total = total if on_device else {"node": total["op"]}
    times = files.profile.latency_ns if files.profile else ()
    return EngineCapture(ops, files.raw, times, total, files.layers, files.nodes)


def _inductor_trace(files: EngineFiles) -> EngineCapture:
    from ..attribution import inductor

    ops = inductor.of_nsys(files.raw, files.layers, files.precision)
    return _by_nsys(files, ops, files.layers, files.nodes)


def _onnxruntime_trace(files: EngineFiles) -> EngineCapture:
    from ..attribution import onnxruntime_nsys

    raw, meta = files.raw, files.trace or Trace()
    ops, distance = onnxruntime_nsys.operations(
        raw, files.node_profile, meta, files.layers, files.precision
    )
    joined = clocks.joined(ops, distance)
    if not joined.ok:
        log(f"{raw.name}: {joined.text}")
    return _by_nsys(files, ops, files.layers, files.nodes, [joined])


def _nsys(files: EngineFiles) -> EngineCapture:
    from ..attribution import nsys
    from ..attribution.tensorrt_ranges import runs
    from ..readers.nsys import sqlite
    from ..readers.nsys.attribution import attribute
    from ..readers.nsys.load import load

    assert files.exported is not None  # its kernels are found by the graph
    graph = files.exported.graph
    with sqlite.source(files.raw) as source:
        attribution = attribute(load(source))
        _check_engine(files, attribution.capture)
        captured = runs(attribution)
        resolved = nsys.resolutions(captured, graph, files.network, attribution.capture)
    ops = nsys.operations(attribution, captured, resolved, files.raw, files.precision)
    fates = node_status([r for r in resolved if r is not None], graph)
    nodes = [
        {
            "name": n.name,
            "op": n.op,
            "module": n.module,
            "status": fates[n.name].status,
            "layer": fates[n.name].layer,
        }
        for n in graph.nodes
    ]
    # A ForeignNode is no operation: what runs inside it is listed by itself.
    layers = [d for d in files.layers if not str(d.get("name")).startswith(FOREIGN)]
    return _by_nsys(files, ops, layers, nodes)


def _check_engine(files: EngineFiles, capture: Capture) -> None:
    """Foreign where a capture names regions that TensorRT compiled whole, and none of them is one
    of the engine's: it is of another engine, and may be of another model."""
    names = {str(d.get("name")) for d in files.layers}
    own = {name for name in names if name.startswith(FOREIGN)}
    used = np.unique(capture.ranges.name)
    traced = {capture.names[c] for c in used[used >= 0].tolist()}
    seen = {name for name in traced if name and name.startswith(FOREIGN)}
    if own and seen and not own & seen:
        what = (
            f"names {min(seen)}, and the engine's layers.json {min(own)}: it is of another engine"
        )
        raise Foreign(what, file=files.raw, fix="copy the run's own again, or profile this engine")


def _by_nsys(
    files: EngineFiles,
    ops: pa.Table,
    layers: Sequence[Mapping[str, Any]],
    nodes: Sequence[Mapping[str, Any]],
    checks: Sequence[Check] = (),
) -> EngineCapture:
    meta, total = files.trace or Trace(), raw_totals.nsys(files.raw)
    queued = meta.facts.queued is True
    return EngineCapture(
        ops, files.raw, meta.latency_ns, total, layers, nodes, DEVICE_FLOOR_NS, queued, checks
    )


class LayerTimes(Struct, kw_only=True):
    """captures/*.profile.json of TensorRT: the times of its layers in every iteration."""

    layers: list[str]
    iterations: list[list[Count]]

    def __post_init__(self) -> None:
        if any(len(times) != len(self.layers) for times in self.iterations):
            raise ValueError("an iteration has another number of layers")


def _iprofiler(
    raw: Path, precision: str, layers: Sequence[Mapping[str, Any]]
) -> tuple[pa.Table, dict[str, int]]:
    """Rows of ``{"layers": [names], "iterations": [[ns, ...], ...]}``, joined to the engine's
    layers by name and, for equal names, by which of them it is in execution order."""
    again, what = "run the profile stage again", "is no IProfiler capture"
    document = forms.check(read_json(raw), LayerTimes, raw, again, what)
    names, iterations = document.layers, document.iterations
    known, labels = by_label(layers), all_labelled(names)
    about = [known.get(label, {}) for label in labels]
    rows = [
        {
            "source": raw.name,
            "precision": precision,
            "phase": "inference",
            "iteration": i,
            "kind": "node",
            "name": name,
            "duration_ns": ns,
            "layer": label,
            "nodes": facts.get("nodes"),
            "modules": facts.get("modules") or None,
            "rule": facts.get("rule") or "unresolved",
        }
        for i, times in enumerate(iterations)
        for name, label, facts, ns in zip(names, labels, about, times, strict=True)
    ]
    return tables.table("ops", rows), {"node": sum(map(sum, iterations))}


def engine_ops(files: EngineFiles) -> Artefact:
    """The `ops` of one engine's profile by ONNX Runtime, joined to its layers.

    Warm-up rows have a null iteration. Facts: those of the reader, `coverage` (share of the time
    of operations that has modules, None without any time) and `unlisted` (names that layers.json
    does not have, with their nanoseconds). InputError for files that are missing or broken.
    """
    raw = profile_.read(files.raw, _profile(files).facts.warmup_runs or 0)
    ops = join(raw.main, files.layers, files.precision)
    facts = {**raw.facts, "coverage": coverage(ops), "unlisted": unlisted(ops)}
    notes = list(raw.notes)
    if facts["unlisted"]:
        names = ", ".join(list(facts["unlisted"])[:3])
        notes.append(f"{len(facts['unlisted'])} names in the profile are no layer: {names}")
    return Artefact("engine", {**raw.tables, "ops": ops}, facts, notes)


def _profile(files: EngineFiles) -> Measured:
    """What describes the backend's own profile. InputError where it does not say which one."""
    if files.profile is None or files.profile.profile is None:
        raise InputError(
            "does not say which profile it is of",
            file=files.raw.with_name(f"{files.name}.profile.meta.json"),
            fix="run the profile stage again",
        )
    return files.profile


def coverage(ops: pa.Table) -> float | None:
    """Share of the rows' self time that has modules; None where there is no time."""
    times = ops["self_ns"].to_pylist()
    resolved = [m is not None for m in ops["modules"].to_pylist()]
    total = sum(t for t in times if t is not None)
    if not total:
        return None
    known = sum(t for t, r in zip(times, resolved, strict=True) if r and t is not None)
    return float(known / total)


def unlisted(ops: pa.Table) -> dict[str, int]:
    """Names without a layer and their nanoseconds, the longest first."""
    sums: dict[str, int] = {}
    columns = (ops[c].to_pylist() for c in ("name", "nodes", "self_ns"))
    for name, nodes, time in zip(*columns, strict=True):
        if nodes is None:
            sums[name] = sums.get(name, 0) + (time or 0)
    return dict(sorted(sums.items(), key=lambda entry: -entry[1]))
