"""Operations of an engine from the best capture of it: kernels under nsys, else its own profile.

TensorRT under nsys: the NVTX ranges name what launched each kernel, also inside a ForeignNode,
where the engine's own profile has one time for the whole model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...core import documents, tables
from ...core import nodes as nodes_
from ...core.cli.progress import log
from ...core.errors import InputError
from ...core.files import read_json
from ...core.resolve import Network, load_network, node_status
from ...core.run import Run
from ...engines.layers import load as load_layers
from ..attribution.onnxruntime import join
from ..checks import clocks, raw_totals
from ..checks.closure import DEVICE_FLOOR_NS, SPAN_FLOOR_NS
from ..costs.layers import by_label
from ..model.comparison import Check
from ..readers.base import Artefact
from ..readers.onnxruntime import profile
from ..rundir import problems, provenance
from ..rundir.files import describing, needed, optional, small

FOREIGN = "{ForeignNode["
ORT_CUDA = "onnxruntime-cuda"


@dataclass(frozen=True)
class EngineCapture:
    """`ops` of the capture in `raw`; `latency_ns` of its iterations (null where it cannot be
    compared with them), `raw_ns` per kind summed by other code, `nodes` with their fate where
    the capture tells more than the engine's layer list, `floor_ns` for check (ii). `queued`: each
    inference was queued as a whole before it began, so its latency is the device's alone.
    `checks`: of how it was read."""

    ops: pa.Table
    raw: Path
    latency_ns: Sequence[int] | None
    raw_ns: Mapping[str, int] | None
    described: Sequence[Mapping[str, Any]]
    nodes: Sequence[Mapping[str, Any]]
    floor_ns: int = SPAN_FLOOR_NS
    queued: bool = False
    checks: Sequence[Check] = ()


def read(run: Run, precision: str, backend: str) -> EngineCapture:
    """The capture of one engine. InputError where a file is missing or broken."""
    name = f"{precision}.{backend}"
    described = needed(run.file("engines", f"{name}.layers.json"))
    trace = run.file("captures", f"{name}.trace.meta.json")
    if trace.exists() and backend == ORT_CUDA:
        return _onnxruntime_trace(run, name, precision, described, describing(trace))
    if trace.exists():
        return _nsys(run, name, precision, described, describing(trace))
    meta = needed(run.file("captures", f"{name}.profile.meta.json"))
    raw = run.file("captures", Path(meta.get("profile") or f"{name}.profile.json").name)
    provenance.check_raw(raw)
    layers, nodes = described.get("layers", ()), described.get("nodes", ())
    if backend.startswith("tensorrt"):
        ops, total = _iprofiler(raw, precision, layers)
        # IProfiler synchronises after each layer: its run's latency is of another execution.
        return EngineCapture(ops, raw, None, total, layers, nodes)

    ops = engine_ops(run.path, precision, backend).main
    warmup = int((meta.get("facts") or {}).get("warmup_runs") or 0)
    again = raw_totals.onnxruntime(raw, warmup) if small(raw) else None
    # On a GPU every launch waited for its kernel: that run's latency is of another execution.
    times = None if backend == ORT_CUDA else meta.get("latency_ns")
    return EngineCapture(ops, raw, times, again, layers, nodes)


def on_cpu(run: Run, name: str) -> dict[str, dict[str, int]]:
    """``{"on_cpu": {operator: nodes}}`` of a GPU engine with nodes on the CPU; else empty."""
    found = optional(run.file("engines", f"{name}.build.json")).get("on_cpu") or {}
    return {"on_cpu": dict(Counter(str(op) for op in found.values()))} if found else {}


def _onnxruntime_trace(
    run: Run, name: str, precision: str, described: Mapping[str, Any], meta: Mapping[str, Any]
) -> EngineCapture:
    from ..attribution import onnxruntime_nsys

    raw = run.file("captures", Path(meta.get("source") or f"{name}.sqlite").name)
    profile = run.file("captures", f"{name}.trace.profile.json")
    provenance.check_raw(raw)
    provenance.check_raw(profile)
    layers, nodes = described.get("layers", ()), described.get("nodes", ())
    ops, distance = onnxruntime_nsys.operations(raw, profile, meta, layers, precision)
    joined = clocks.joined(ops, distance)
    if not joined.ok:
        log(f"{raw.name}: {joined.text}")
    times = meta.get("latency_ns")
    queued = (meta.get("facts") or {}).get("queued") is True
    return EngineCapture(
        ops, raw, times, raw_totals.nsys(raw), layers, nodes, DEVICE_FLOOR_NS, queued, [joined]
    )


def _nsys(
    run: Run, name: str, precision: str, described: Mapping[str, Any], meta: Mapping[str, Any]
) -> EngineCapture:
    from ..attribution import nsys
    from ..attribution.tensorrt_ranges import runs
    from ..readers.nsys import sqlite
    from ..readers.nsys.attribution import attribute
    from ..readers.nsys.load import load

    raw = run.file("captures", Path(meta.get("source") or f"{name}.sqlite").name)
    provenance.check_raw(raw)
    graph = nodes_.load(nodes_file(run, name, precision))
    network = network_of(run, name)
    with sqlite.source(raw) as source:
        attribution = attribute(load(source))
    found = runs(attribution)
    resolved = nsys.resolutions(found, graph, network, attribution.capture.names)
    ops = nsys.operations(attribution, found, resolved, raw, precision)
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
    layers = [d for d in described.get("layers", ()) if not str(d.get("name")).startswith(FOREIGN)]
    times = meta.get("latency_ns")
    queued = (meta.get("facts") or {}).get("queued") is True
    return EngineCapture(
        ops, raw, times, raw_totals.nsys(raw), layers, nodes, DEVICE_FLOOR_NS, queued
    )


def nodes_file(run: Run, name: str, precision: str) -> Path:
    """nodes.json of the ONNX file that the engine was built from (TensorRT 8 builds fp16 from
    fp32.onnx). InputError for one of another model than the run's."""
    source = optional(run.file("engines", f"{name}.build.json")).get("source")
    stem = Path(source).stem if isinstance(source, str) else precision
    own = run.file("export", f"{stem}.nodes.json")
    found = own if own.exists() else run.file("export", "nodes.json")
    provenance.check_export(found)
    return found


def network_of(run: Run, name: str) -> Network | None:
    """The engine's network.json; null where its backend leaves none, or it was built elsewhere."""
    path = run.file("engines", f"{name}.network.json")
    try:
        found = load_network(path) if path.exists() else None
    except InputError as e:
        if not problems.note(e):
            raise
        return None
    return found if found is not None and found.layers else None


def _iprofiler(
    raw: Path, precision: str, layers: Sequence[Mapping[str, Any]]
) -> tuple[pa.Table, dict[str, int]]:
    """Rows of ``{"layers": [names], "iterations": [[ns, ...], ...]}``, joined to the engine's
    layers by name and, for equal names, by which of them it is in execution order."""
    document = documents.check(
        read_json(raw), documents.LayerTimes, raw, "run the profile stage again",
        "is no IProfiler capture",
    )  # fmt: skip
    names, iterations = document.layers, document.iterations
    known, many, seen = by_label(layers), Counter(names), Counter[str]()
    labels = []
    for name in names:
        seen[name] += 1
        labels.append(name if many[name] == 1 else f"{name} #{seen[name]}")
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


def engine_ops(run: Path, precision: str, backend: str) -> Artefact:
    """The `ops` of one engine's profile in a run directory, joined to its layers.

    Warm-up rows have a null iteration. Facts: those of the reader, `coverage` (share of the time
    of operations that has modules, null without any time) and `unlisted` (names that layers.json
    does not have, with their nanoseconds). InputError for files that are missing or broken.
    """
    stem = f"{precision}.{backend}"
    meta = needed(run / "captures" / f"{stem}.profile.meta.json")
    listed = load_layers(run / "engines" / f"{stem}.layers.json")
    if meta.get("profile") is None:
        raise InputError(
            "does not say which profile it is of",
            file=run / "captures" / f"{stem}.profile.meta.json",
            fix="run the profile stage again",
        )
    warmup = int(meta["facts"]["warmup_runs"])
    raw = profile.read(run / "captures" / Path(meta["profile"]).name, warmup)
    ops = join(raw.main, listed["layers"], precision)
    facts = {**raw.facts, "coverage": coverage(ops), "unlisted": unlisted(ops)}
    notes = list(raw.notes)
    if facts["unlisted"]:
        names = ", ".join(list(facts["unlisted"])[:3])
        notes.append(f"{len(facts['unlisted'])} names in the profile are no layer: {names}")
    return Artefact("engine", {**raw.tables, "ops": ops}, facts, notes)


def coverage(ops: pa.Table) -> float | None:
    """Share of the rows' self time that has modules; null where there is no time."""
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
