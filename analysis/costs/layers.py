"""The `layers` table: what each layer of an engine costs, from operations, captures, layer lists.

Whatever a capture is, its layers become rows and its operations columns (`Operations`);
`with_times` puts the kernels and the statistics over iterations into the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import stats, tables
from ...core.errors import InputError
from ...core.labels import labelled
from ...core.nodes import NodeGraph
from ...core.resolve import Network, Resolution
from ...core.stats import Stat
from ..attribution import layer_info, resolution
from ..attribution.layer_info import PRECISIONS, LayerInfo
from ..attribution.nsys import info_notes, layers_in_info, resolutions
from ..attribution.tensorrt_ranges import Runs, runs
from ..model.layer import MOVEMENT, Times
from ..readers.base import Artefact
from ..readers.nsys import ops as ops_
from ..readers.nsys.attribution import GRAPHS_FIX, attribute
from ..readers.nsys.load import load
from ..readers.nsys.range_forest import Flags
from ..readers.nsys.source import NULL, Codes, Integers, Source
from ..readers.tensorrt import profile
from .iterations import SUMMED, TIME, iterations_of, stat, timed_rows
from .kernel_precisions import by_layer, by_tactic

Row = resolution.Row


@dataclass(frozen=True)
class Operations:
    """Operations as columns: the numbers of their layer and iteration (-1 for none), their time in
    ns (`NULL` where it is unknown), and whether they are kernels.

    `iterations`: how many there are. `own`: for each layer which of them are its engine's; None
    where all are.
    """

    layer: Codes
    iteration: Codes
    ns: Integers
    kernel: Flags
    iterations: int
    own: Sequence[Flags] | None = None

    def sums(self, layers: int) -> Iterator[Integers | None]:
        """Per layer its ns in each of its iterations; None where a time is unknown.

        A layer that did not run in an iteration took 0 ns there: that is known. One layer at a
        time, so that many layers and iterations need no more memory than their rows.
        """
        layer, iteration, ns = self.layer, self.iteration, self.ns
        unknown = set(layer[ns == NULL].tolist())
        keep = (layer >= 0) & (iteration >= 0)
        if not keep.all():
            layer, iteration, ns = layer[keep], iteration[keep], ns[keep]
        narrow = layer.astype(np.int16) if layers <= np.iinfo(np.int16).max else layer
        order = np.argsort(narrow, kind="stable")
        ends = np.cumsum(np.bincount(layer, minlength=layers))
        for i, (begin, end) in enumerate(pairwise([0, *ends.tolist()])):
            rows = order[begin:end]
            total = np.zeros(self.iterations, np.int64)
            np.add.at(total, iteration[rows], ns[rows])
            own = total if self.own is None else total[self.own[i]]
            yield None if i in unknown else own


def independent(samples: Integers) -> Stat | None:
    """The summary of samples that are taken as independent of one another."""
    return stats.of_ordered(np.sort(samples).tolist())


def with_times(
    layers: Sequence[Row], ops: Operations, summarise: Callable[[Integers], Stat | None]
) -> list[Row]:
    """Rows of layers with their kernels, time and its statistics, in the same order.

    `summarise` gives those of a layer's sums per iteration. A layer with an operation of unknown
    time has unknown times.
    """
    kernels = np.bincount(ops.layer[ops.kernel & (ops.layer >= 0)], minlength=len(layers))
    rows = []
    for row, count, samples in zip(layers, kernels.tolist(), ops.sums(len(layers)), strict=True):
        summary = None if samples is None else summarise(samples)
        rows.append(
            {
                **row,
                "kernels": count,
                "total_ns": None if samples is None else int(samples.sum()),
                "median_ns": summary and summary.median,
                "p90_ns": summary and summary.p90,
                "p99_ns": summary and summary.p99,
                "ci_low_ns": summary and summary.low,
                "ci_high_ns": summary and summary.high,
            }
        )
    return rows


_COLUMNS = [*SUMMED, "source", "precision", "name", "layer", "nodes", "rule"]


def of_ops(ops: pa.Table, engine: str, described: Sequence[Mapping[str, Any]] = ()) -> pa.Table:
    """The `layers` table of one engine, the most expensive layer first.

    `ops`: rows of one source and precision. `described`: the layers list of the engine's
    layers.json (name, kind, nodes, modules, rule, precision_in, precision_out, compute_precision,
    tactic), which adds what a trace does not say and the layers that never ran (their times are
    None). Movement (rule carrier, copies) is kept apart from computation of the same layer. Where
    `described` does not say in what precision a layer computes, its kernels' names may.

    Where nodes of an engine have kernels, their time is that of the kernels, and `calls` how often
    the node ran; a node without any has its time on the host, the kind "node" and `kernels` None.
    """
    descriptions, precisions = by_label(described), by_layer(ops)
    rows, node_runs = _timed(ops.select(_COLUMNS))
    rows, number = iterations_of(rows)
    numbers, iteration = np.unique(number, return_inverse=True)
    group, groups = _groups(rows)
    firsts = rows.take(pa.array(np.unique(group, return_index=True)[1])).to_pylist()
    with_nodes = set(group[_are(rows, "node")].tolist())
    calls = _calls(groups, group, iteration, with_nodes, node_runs)
    layers: list[Row] = []
    for g, ((name, moves), first) in enumerate(zip(groups, firsts, strict=True)):
        about = descriptions.get(name, {})
        kind = MOVEMENT if moves else about.get("kind") or first["kind"]
        layers.append(_row({**first, "kind": kind}, engine, name, about, calls[g]))
        if not moves and layers[g]["compute_precision"] is None:
            layers[g]["compute_precision"] = precisions.get(name) or by_tactic(about)
    ns = rows[TIME].fill_null(NULL).to_numpy()
    timed = with_times(
        layers, Operations(group, iteration, ns, _are(rows, "kernel"), len(numbers)), stat
    )
    for g in with_nodes:
        timed[g]["kernels"] = None
    timed.sort(key=lambda r: (-(r["total_ns"] or 0), r["layer"]))
    source = {c: firsts[0][c] if firsts else None for c in ("source", "precision")}
    ran = {name for name, _ in groups}
    never_ran = [
        _row({**about, **source}, engine, name, about, 0)
        for name, about in descriptions.items()
        if name not in ran
    ]
    return tables.table("layers", [*timed, *never_ran])


def _row(
    layer: Mapping[str, Any], engine: str, label: str, description: Mapping[str, Any], calls: int
) -> Row:
    """A row without times."""
    own = ("source", "precision", "kind", "nodes", "modules", "rule")
    return {
        "engine": engine,
        "layer": label,
        **{c: layer.get(c) for c in own},
        **{c: _text(description.get(c)) for c in (*PRECISIONS, "compute_precision")},
        "calls": calls,
    }


def _text(value: Any) -> str | None:
    """One text for a value that may be a list (the precisions of several inputs)."""
    if isinstance(value, (list, tuple)):
        return "+".join(dict.fromkeys(str(v) for v in value))
    return None if value is None else str(value)


def _calls(
    groups: Sequence[tuple[str, bool]],
    group: Codes,
    iteration: Codes,
    with_nodes: Collection[int],
    node_runs: Mapping[str, int],
) -> list[int]:
    """How often each group ran: as its node, else once in each iteration it is in."""
    rows = np.bincount(group).tolist()
    pairs = np.unique(iteration * len(groups) + group)
    iterations = np.bincount(pairs % len(groups)).tolist()
    return [
        rows[g] if g in with_nodes else node_runs.get(name) or iterations[g]
        for g, (name, _) in enumerate(groups)
    ]


def _timed(ops: pa.Table) -> tuple[pa.Table, Counter[str]]:
    """Rows with times as they add up. Where kernels are recorded beside nodes: also the nodes that
    have none, and how often each node ran in an iteration."""
    rows, host = timed_rows(ops), without_kernels(ops)
    if host is None:
        return rows, Counter()
    node_runs = Counter(_label(tables.of_kinds(iterations_of(ops)[0], ["node"])).to_pylist())
    return pa.concat_tables([rows, timed_rows(host)]), node_runs


def _are(rows: pa.Table, kind: str) -> Flags:
    flags: Flags = pc.equal(rows["kind"], kind).to_numpy()
    return flags


def without_kernels(ops: pa.Table) -> pa.Table | None:
    """Node executions of nodes that no kernel belongs to; None where there are no kernels, or no
    nodes, at all."""
    nodes = tables.of_kinds(ops, ["node"])
    if not len(nodes) or not len(tables.of_kinds(ops.select(["kind"]), ["kernel"])):
        return None
    # Of the iterations alone: what was launched in warm-up only is no time of a node's.
    inside, _ = iterations_of(ops.select(["kind", "iteration", "layer"]))
    launched = pc.unique(tables.of_kinds(inside, ["kernel"])["layer"])
    return nodes.filter(pc.invert(pc.is_in(_label(nodes), launched)))


def _label(rows: pa.Table) -> Any:
    """What has no layer is a layer of its own name."""
    return pc.coalesce(rows["layer"], rows["name"], pa.scalar("unnamed"))


def by_label(described: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """A layers list by unique label: the name, with " #2" for the second of several of one name."""
    named = [d for d in described if isinstance(d.get("name"), str)]
    many = Counter(d["name"] for d in named)
    return {labelled(d["name"], d.get("occurrence") or 0, many[d["name"]] > 1): d for d in named}


def _groups(rows: pa.Table) -> tuple[Integers, list[tuple[str, bool]]]:
    """The group of each row, and of each group the layer and whether it is its movement."""
    moves = pc.or_(
        pc.fill_null(pc.equal(rows["rule"], "carrier"), False),
        pc.is_in(rows["kind"], pa.array(["memcpy", "memset"])),
    )
    texts = pc.binary_join_element_wise(pc.if_else(moves, "m", "c"), _label(rows), "")
    group, distinct = tables.codes(texts)
    return group, [(text[1:], text[0] == "m") for text in distinct]


def of_artefact(
    artefact: Artefact,
    graph: NodeGraph | None,
    network: Network | None,
    info: LayerInfo | None = None,
) -> tuple[pa.Table, list[str]]:
    """The `layers` table of an artefact, resolved, and notes on it; InputError where it names no
    layers. `info`: the engine's own description of its layers."""
    notes: list[str] = []
    if info is not None:
        rows, raw, notes = layer_info.joined(artefact, info)
    elif "layers" in artefact.tables:
        rows = artefact.tables["layers"].to_pylist()
        raw = resolution.raw_layers(rows, artefact)
    else:
        ops = artefact.tables.get("ops")
        if ops is None or "node" not in ops["kind"].unique().to_pylist():
            raise resolution.nameless(artefact)
        if graph is not None:
            ops = resolution.resolve_ops(ops, graph, network)
        return of_ops(ops, artefact.kind), notes
    if graph is not None:
        resolution.resolve_rows(rows, raw, graph, network)
    return tables.table("layers", rows), notes


def times(artefact: Artefact) -> Times:
    """What is known of the artefact's iterations, and of the time of all layers in one."""
    if "layers" in artefact.tables:
        count = artefact.facts.get("iterations")
        known = count if isinstance(count, int) and count > 0 else None
        # TensorRT's medians are over a layer's own reports, fewer where it did not always run.
        return Times(known, None, own_reports=artefact.kind == profile.KIND)
    ops = artefact.tables["ops"].select([*SUMMED, "name", "layer"])
    rows, iteration = iterations_of(timed_rows(ops))
    timed = pc.is_valid(rows[TIME]).to_numpy()
    # An iteration of nodes without any kernel took 0 ns of kernels.
    numbers = np.unique(iterations_of(ops)[1])
    totals = np.zeros(len(numbers), np.int64)
    ns = rows[TIME].drop_null().to_numpy()
    np.add.at(totals, np.searchsorted(numbers, iteration[timed]), ns)
    return Times(len(numbers) or None, stat(totals) if timed.all() else None)


def of_nsys(
    source: Source,
    graph: NodeGraph | None,
    network: Network | None,
    precision: str | None = None,
    iteration: str | None = None,
    info: LayerInfo | None = None,
) -> tuple[pa.Table, list[str], Times]:
    """The `layers` table of an nsys export, notes on it, and the times of its iterations, or of
    the enqueues of each of several engines. `info`: the engine's own description of its layers."""
    # Names of kernels tell what a product applies; they take half the time of reading.
    attribution = attribute(load(source, described=graph is not None))
    capture = runs(attribution, iteration)
    if not capture.layers:
        what = "no layer was found in the capture"
        if iteration is not None:
            what = f"no GPU operation lies in a range named {iteration}"
        fix = "capture with nsys profile --trace=cuda,nvtx and detailed profiling verbosity"
        if attribution.untold:
            what += f"; {attribution.untold} operations are of CUDA graphs made before it began"
            fix = GRAPHS_FIX
        raise InputError(what, file=source.path, fix=fix)
    resolved = resolutions(capture, graph, network, attribution.capture, info)
    own = [capture.engines.of == i for i in range(len(capture.engines))]
    of_layers = [own[x.engine] for x in capture.layers]
    ops = Operations(
        capture.layer, capture.iteration, capture.ns, capture.kernel, capture.iterations, of_layers
    )
    table = of_runs(capture, ops, resolved, source.path.name, precision, info)
    notes = [*ops_.notes(attribution), *capture.notes, *info_notes(capture, info)]
    return table, notes, _times_of_runs(capture, ops, own)


def _times_of_runs(capture: Runs, ops: Operations, own: list[Flags]) -> Times:
    """The time of all layers in one iteration, of several engines for each in its own; None where
    an operation's time is unknown."""
    engine = np.asarray([*(x.engine for x in capture.layers), -1])
    sums = replace(ops, layer=engine[ops.layer], own=own).sums(len(own))
    totals = [None if samples is None else independent(samples) for samples in sums]
    if len(totals) > 1:
        return Times(None, None, engines=tuple(totals))
    return Times(None if totals[0] is None else totals[0].n, totals[0])


def of_runs(
    capture: Runs,
    ops: Operations,
    resolved: Sequence[Resolution | None],
    source: str,
    precision: str | None,
    info: LayerInfo | None = None,
) -> pa.Table:
    """The `layers` table, the most expensive layer first.

    Times are those of GPU operations, the statistics over sums per iteration of the layer's own
    engine.
    """
    described = [None] * len(capture.layers) if info is None else layers_in_info(capture, info)
    several = len(capture.engines) > 1
    layers = [
        {
            "source": source,
            "precision": precision,
            "engine": f"{capture.engine} #{layer.engine + 1}" if several else capture.engine,
            "layer": layer.label,
            **resolution.columns_of(what),
            "kind": what and what.kind,
            "calls": int(calls),
            **({} if info is None or i is None else {c: info.rows[i][c] for c in PRECISIONS}),
        }
        for layer, what, calls, i in zip(
            capture.layers, resolved, capture.calls, described, strict=True
        )
    ]
    rows = with_times(layers, ops, independent)
    rows.sort(key=lambda r: (r["total_ns"] is None, -(r["total_ns"] or 0)))
    return tables.table("layers", rows)
