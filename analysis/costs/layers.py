"""Sums of durations per layer and iteration, and their statistics, for millions of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ...core.errors import InputError
from ...core.kernel_names import kernel_precision
from ...core.nodes import NodeGraph
from ...core.resolve import Network, RawLayer, Resolution, resolve
from ...core.stats import Stat, interval_rank, median, percentile
from ..attribution.layer_info import PRECISIONS, LayerInfo
from ..attribution.nsys import _filled, _joined, _matches, resolutions
from ..attribution.resolution import fill, filled, nameless, raw_layers
from ..attribution.tensorrt_ranges import Runs, runs
from ..model.layer import MOVEMENT, Times
from ..readers.base import Artefact
from ..readers.nsys import ops as ops_
from ..readers.nsys.attribution import attribute
from ..readers.nsys.columns import KERNEL
from ..readers.nsys.load import load
from ..readers.nsys.source import NULL, Source
from ..readers.tensorrt import profile
from .iterations import SUMMED, iterations_of, stat, sums, timed_rows

Integers = npt.NDArray[np.int64]

Indices = npt.NDArray[np.int32]

_rank = lru_cache(maxsize=64)(interval_rank)


def per_layer(
    layer: Indices, iteration: Indices, duration: Integers, layers: int, iterations: int
) -> Iterator[Integers]:
    """Per layer its ns in each iteration, of the rows whose layer and iteration are not -1.

    A layer that did not run in an iteration took 0 ns there: that is known. One layer at a time,
    so that many layers and iterations need no more memory than their rows.
    """
    keep = (layer >= 0) & (iteration >= 0)
    if not keep.all():
        layer, iteration, duration = layer[keep], iteration[keep], duration[keep]
    narrow = layer.astype(np.int16) if layers <= np.iinfo(np.int16).max else layer
    order = np.argsort(narrow, kind="stable")
    ends = np.cumsum(np.bincount(layer, minlength=layers))
    begin = 0
    for end in ends.tolist():
        rows = order[begin:end]
        begin = end
        total = np.zeros(iterations, np.int64)
        np.add.at(total, iteration[rows], duration[rows])
        yield total


def summarise(samples: Integers) -> Stat | None:
    """As `core.stats.summarise`, of an array; null when it is empty."""
    n = len(samples)
    if not n:
        return None
    ordered = np.sort(samples)
    k = _rank(n)
    chosen = {
        "p90": percentile(ordered, 0.90),  # type: ignore[arg-type]
        "p99": percentile(ordered, 0.99),  # type: ignore[arg-type]
        "median": median(ordered),  # type: ignore[arg-type]
        "minimum": ordered[0],
        "maximum": ordered[-1],
    }
    return Stat(
        n=n,
        low=None if k is None else int(ordered[k - 1]),
        high=None if k is None else int(ordered[n - k]),
        **{name: int(value) for name, value in chosen.items()},
    )


_TOLD = ["source", "precision", "name", "layer", "nodes", "rule"]


def of_ops(ops: pa.Table, engine: str, described: Sequence[Mapping[str, Any]] = ()) -> pa.Table:
    """The `layers` table of one engine, the most expensive layer first.

    `ops`: rows of one source and precision. `described`: the layers list of the engine's
    layers.json (name, kind, nodes, modules, rule, precision_in, precision_out, compute_precision,
    tactic), which adds what a trace does not say and the layers that never ran (their times are
    null). Movement (rule carrier, copies) is kept apart from computation of the same layer. Where
    `described` does not tell in what a layer computes, its kernels' names may.

    Where nodes of an engine have kernels, their time is that of the kernels, and `calls` how often
    the node ran; a node without any has its time on the host, the kind "node" and null `kernels`.
    """
    about, ran = by_label(described), by_layer(ops)
    rows, column = _timed(ops.select([*SUMMED, *_TOLD]))
    rows, iteration = iterations_of(rows)
    numbers, columns = np.unique(iteration, return_inverse=True)
    groups = _groups(rows)
    order = np.argsort(groups.codes, kind="stable")
    starts = np.searchsorted(groups.codes[order], np.arange(len(groups.names) + 1))
    times, valid = rows[column].fill_null(0).to_numpy(), pc.is_valid(rows[column]).to_numpy()
    on_device = pc.equal(rows["kind"], "kernel").to_numpy(zero_copy_only=False)
    is_node = pc.equal(rows["kind"], "node").to_numpy(zero_copy_only=False)

    node_runs = _node_runs(ops)
    firsts = rows.take(pa.array(order[starts[:-1]])).to_pylist()
    found: list[dict[str, Any]] = []
    for g, (name, moves) in enumerate(groups.names):
        members = order[starts[g] : starts[g + 1]]
        first = firsts[g]
        sums = np.zeros(len(numbers), dtype=np.int64)
        np.add.at(sums, columns[members], times[members])
        known = bool(valid[members].all())
        summary = stat(sums) if known else None
        facts = about.get(name, {})
        kind = MOVEMENT if moves else facts.get("kind") or first["kind"]
        nodes_ran = bool(is_node[members].any())
        found.append(
            {
                "source": first["source"],
                "precision": first["precision"],
                "engine": engine,
                "layer": name,
                "kind": kind,
                "nodes": first["nodes"],
                "modules": first["modules"],
                "rule": first["rule"],
                "calls": len(members)
                if nodes_ran
                else node_runs[name] or len(np.unique(columns[members])),
                "kernels": int(on_device[members].sum()) if not nodes_ran else None,
                "total_ns": int(sums.sum()) if known else None,
                "median_ns": summary and summary.median,
                "p90_ns": summary and summary.p90,
                "p99_ns": summary and summary.p99,
                "ci_low_ns": summary and summary.low,
                "ci_high_ns": summary and summary.high,
                **_described(facts),
            }
        )
        if not moves and found[-1]["compute_precision"] is None:
            found[-1]["compute_precision"] = ran.get(name) or _by_tactic(facts)
    found.sort(key=lambda r: (-(r["total_ns"] or 0), r["layer"]))
    shown = {r["layer"] for r in found}
    found += [_never_ran(name, d, rows, engine) for name, d in about.items() if name not in shown]
    return tables.table("layers", found)


def _timed(ops: pa.Table) -> tuple[pa.Table, str]:
    """Rows with times as they add up, and beside kernels the nodes that have none."""
    rows, column = timed_rows(ops)
    host = without_kernels(ops)
    if host is None:
        return rows, column
    time = pc.coalesce(host["self_ns"], host["duration_ns"])
    return pa.concat_tables([rows, host.append_column(column, time)]), column


def without_kernels(ops: pa.Table) -> pa.Table | None:
    """Node executions of nodes that no kernel belongs to; null where there are no kernels, or no
    nodes, at all."""
    kernels = ops.filter(pc.equal(ops["kind"], "kernel"))
    nodes = ops.filter(pc.equal(ops["kind"], "node"))
    if not len(kernels) or not len(nodes):
        return None
    # Of the iterations alone: what was launched in warm-up only is no time of a node's.
    inside, _ = iterations_of(ops.select(["kind", "iteration", "layer"]))
    launched = pc.unique(inside.filter(pc.equal(inside["kind"], "kernel"))["layer"].drop_null())
    return nodes.filter(pc.invert(pc.is_in(_label(nodes), launched)))


def _label(rows: pa.Table) -> Any:
    return pc.coalesce(rows["layer"], rows["name"], pa.scalar("unnamed"))


def _node_runs(ops: pa.Table) -> Counter[str]:
    """How often each node ran in an iteration, where kernels are recorded beside nodes."""
    if without_kernels(ops) is None:
        return Counter()
    rows, _ = iterations_of(ops)
    return Counter(_label(rows.filter(pc.equal(rows["kind"], "node"))).to_pylist())


def by_label(described: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """A layers list by unique label: the name, with " #2" for the second of several of one name."""
    named = [d for d in described if isinstance(d.get("name"), str)]
    many = Counter(d["name"] for d in named)
    return {
        d["name"] if many[d["name"]] == 1 else f"{d['name']} #{(d.get('occurrence') or 0) + 1}": d
        for d in named
    }


class _Groups:
    def __init__(self, codes: Any, names: list[tuple[str, bool]]) -> None:
        self.codes, self.names = codes, names


def _groups(rows: pa.Table) -> _Groups:
    """A code per row; what has no layer is a layer of its own name."""
    name = _label(rows)
    moves = pc.or_(
        pc.fill_null(pc.equal(rows["rule"], "carrier"), False),
        pc.is_in(rows["kind"], pa.array(["memcpy", "memset"])),
    )
    text = pc.binary_join_element_wise(pc.if_else(moves, "m", "c"), name, "")
    encoded = pc.dictionary_encode(text).combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):
        if not encoded.num_chunks:
            return _Groups(np.zeros(0, dtype=np.int64), [])
        encoded = encoded.chunk(0)
    names = [(e[1:], e[0] == "m") for e in encoded.dictionary.to_pylist()]
    return _Groups(encoded.indices.to_numpy(), names)


_FACTS = ("precision_in", "precision_out", "compute_precision", "tactic")


def _described(facts: Mapping[str, Any]) -> dict[str, str | None]:
    return {k: None if facts.get(k) is None else _flat(facts[k]) for k in _FACTS}


def _flat(value: Any) -> str:
    """One text for a value that may be a list (the precisions of several inputs)."""
    if isinstance(value, (list, tuple)):
        return "+".join(dict.fromkeys(str(v) for v in value))
    return str(value)


def _by_tactic(facts: Mapping[str, Any]) -> str | None:
    """Where nothing was captured of its kernels, the tactic may be the name of one."""
    tactic = facts.get("tactic")
    told = kernel_precision(tactic) if isinstance(tactic, str) else None
    return told.compute if told else None


def _never_ran(label: str, about: Mapping[str, Any], rows: pa.Table, engine: str) -> dict[str, Any]:
    first = rows.slice(0, 1).to_pylist()
    return {
        "source": first[0]["source"] if first else None,
        "precision": first[0]["precision"] if first else None,
        "engine": engine,
        "layer": label,
        "kind": about.get("kind"),
        "nodes": about.get("nodes"),
        "modules": about.get("modules"),
        "rule": about.get("rule"),
        "calls": 0,
        **_described(about),
    }


def compute_precisions(names: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The compute precision of each kernel name, null where it does not tell."""
    encoded = pc.dictionary_encode(names)
    if isinstance(encoded, pa.ChunkedArray):
        encoded = pa.chunked_array(encoded.chunks).unify_dictionaries().combine_chunks()
        encoded = encoded.chunk(0) if isinstance(encoded, pa.ChunkedArray) else encoded
    found = [None if n is None else kernel_precision(n) for n in encoded.dictionary.to_pylist()]
    told = pa.array([f and f.compute for f in found], type=pa.string())
    return told.take(encoded.indices)


def by_layer(ops: pa.Table) -> dict[str, str]:
    """Layer to the compute precision that takes the most of its kernels' time; layers whose
    kernels' names do not tell are left out."""
    ops = ops.select(["kind", "name", "layer", "duration_ns"])
    kernels = ops.filter(pc.and_(pc.equal(ops["kind"], "kernel"), pc.is_valid(ops["layer"])))
    if not len(kernels):
        return {}
    table = pa.table(
        {
            "layer": kernels["layer"],
            "precision": compute_precisions(kernels["name"]),
            "ns": kernels["duration_ns"],
        }
    )
    table = table.filter(pc.is_valid(table["precision"]))
    rows = table.group_by(["layer", "precision"]).aggregate([("ns", "sum")]).to_pylist()
    rows.sort(key=lambda r: (-(r["ns_sum"] or 0), r["precision"]))
    found: dict[str, str] = {}
    for r in rows:
        found.setdefault(r["layer"], r["precision"])
    return found


def of_artefact(artefact: Artefact, graph: NodeGraph | None, network: Network | None) -> pa.Table:
    """The `layers` table of an artefact, resolved; InputError where it names no layers."""
    if "layers" in artefact.tables:
        rows = artefact.tables["layers"].to_pylist()
        if graph is not None:
            fill(rows, raw_layers(rows, artefact), graph, network)
        return tables.table("layers", rows)
    ops = artefact.tables.get("ops")
    if ops is not None and "node" in ops["kind"].unique().to_pylist():
        return of_ops(_resolved_ops(ops, graph, network), engine=artefact.kind)
    raise nameless(artefact)


def times(artefact: Artefact) -> Times:
    """What is known of the artefact's iterations, and of the time of all layers in one."""
    if "layers" not in artefact.tables:
        ops = artefact.tables["ops"]
        found = sums(ops)
        numbers, totals = found.iterations, found.total()
        if without_kernels(ops) is not None:
            # An iteration of nodes without any kernel took 0 ns of kernels.
            numbers = tuple(np.unique(iterations_of(ops)[1]).tolist())
            by_number = dict(zip(found.iterations, totals.tolist(), strict=True))
            totals = np.array([by_number.get(n, 0) for n in numbers], dtype=np.int64)
        total = None if found.unknown else stat(totals)
        return Times(len(numbers) or None, total)
    told = artefact.facts.get("iterations")
    known = told if isinstance(told, int) and told > 0 else None
    # TensorRT's medians are over a layer's own reports, fewer where it did not always run.
    return Times(known, None, own_reports=artefact.kind == profile.KIND)


def _resolved_ops(ops: pa.Table, graph: NodeGraph | None, network: Network | None) -> pa.Table:
    """Operations with the resolution of their name, each distinct name once."""
    if graph is None:
        return ops
    rows = ops.select(["name", "layer"]).to_pylist()
    names = [r["layer"] or r["name"] or "" for r in rows]
    distinct = list(dict.fromkeys(names))
    resolved = resolve([RawLayer(name=n) for n in distinct], graph, network)
    by_name = {n: filled(w) for n, w in zip(distinct, resolved, strict=True)}
    for column in ("nodes", "modules", "rule"):
        at = ops.schema.get_field_index(column)
        values = pa.array([by_name[n][column] for n in names], ops.schema.field(at).type)
        ops = ops.set_column(at, ops.schema.field(at), values)
    return ops


def of_source(
    source: Source,
    graph: NodeGraph | None,
    network: Network | None,
    precision: str | None = None,
    iteration: str | None = None,
    info: LayerInfo | None = None,
) -> tuple[pa.Table, list[str], list[Stat | None]]:
    """The `layers` table of an nsys export, what to know about it, and per engine in it the time
    of its layers per iteration (null where a time is unknown). `info`: what the engine says of
    its layers."""
    # Names of kernels tell what a product applies; they take half the time of reading.
    attribution = attribute(load(source, described=graph is not None))
    found = runs(attribution, iteration)
    if not found.layers:
        asked = "no layer was found in the capture"
        if iteration is not None:
            asked = f"no GPU operation lies in a range named {iteration}"
        raise InputError(
            asked,
            file=source.path,
            fix="capture with nsys profile --trace=cuda,nvtx and detailed profiling verbosity",
        )
    resolved = resolutions(found, graph, network, attribution.capture.names, info)
    table = of_runs(found, resolved, source.path.name, precision, info)
    notes = [*ops_.notes(attribution), *found.notes, *_several(found), *_told(found, info)]
    return table, notes, per_iteration(found)


def _several(found: Runs) -> list[str]:
    """That a capture holds several engines, and how often each ran."""
    engines = found.engines
    if len(engines) == 1:
        return []
    parts = []
    for i, (count, process) in enumerate(zip(engines.iterations, engines.processes, strict=True)):
        own = [x.name for x in found.layers if x.engine == i]
        layers = f"{own[0]}" + (f" and {len(own) - 1} more layers" if len(own) > 1 else "")
        parts.append(f"engine {i + 1} ({layers}; process {process}) {count} enqueues")
    return [
        f"the capture holds {len(engines)} engines, told apart by their processes and layers: "
        + ", ".join(parts)
    ]


def _told(found: Runs, info: LayerInfo | None) -> list[str]:
    """How many layers `info` knows something of. A ForeignNode's ranges have names of their own,
    so that few is no fault."""
    if info is None:
        return []
    known = sum(i is not None for i in _matches(found, info))
    told = f"{info.source} describes {known} of the {len(found.layers)} layers of the capture"
    return [told, *info.notes]


def per_iteration(found: Runs) -> list[Stat | None]:
    """Per engine the ns of its layers together in one iteration; null where an operation's time
    is unknown."""
    total = np.zeros(found.iterations, np.int64)
    unknown = np.zeros(found.iterations, np.bool_)
    for placed in found.placed:
        inside = (placed.layer >= 0) & (placed.iteration >= 0)
        times = placed.duration[inside]
        unknown[placed.iteration[inside][times == NULL]] = True
        np.add.at(total, placed.iteration[inside], times)
    own = [found.engines.of == i for i in range(len(found.engines))]
    return [None if unknown[mine].any() else summarise(total[mine]) for mine in own]


def of_runs(
    found: Runs,
    resolved: Sequence[Resolution | None],
    source: str,
    precision: str | None,
    info: LayerInfo | None = None,
) -> pa.Table:
    """The `layers` table, the most expensive layer first.

    Times are those of GPU operations, the statistics over sums per iteration of the layer's own
    engine. A layer with an
    operation of unknown duration has unknown times.
    """
    layer = _joined([p.layer for p in found.placed], np.int32)
    iteration = _joined([p.iteration for p in found.placed], np.int32)
    duration = _joined([p.duration for p in found.placed], np.int64)
    n = len(found.layers)
    unknown = np.zeros(n, np.bool_)
    unknown[layer[(duration == NULL) & (layer >= 0)]] = True
    kernels = np.zeros(n, np.int64)
    for placed in found.placed:
        if placed.launched.operations.kind == KERNEL:
            inside = placed.layer[placed.layer >= 0]
            kernels += np.bincount(inside, minlength=n)
    rows = []
    matches = None if info is None else _matches(found, info)
    sums = per_layer(layer, iteration, duration, n, found.iterations)
    for i, samples in enumerate(sums):
        what = resolved[i]
        if len(found.engines) > 1:
            samples = samples[found.engines.of == found.layers[i].engine]
        stat = None if unknown[i] else summarise(samples)
        rows.append(
            {
                "source": source,
                "precision": precision,
                "engine": _engine(found, i),
                "layer": found.layers[i].label,
                **_filled(what),
                "kind": None if what is None else what.kind,
                "calls": int(found.calls[i]),
                "kernels": int(kernels[i]),
                "total_ns": None if unknown[i] else int(samples.sum()),
                "median_ns": stat and stat.median,
                "p90_ns": stat and stat.p90,
                "p99_ns": stat and stat.p99,
                "ci_low_ns": stat and stat.low,
                "ci_high_ns": stat and stat.high,
            }
        )
        known = None if info is None or matches is None else matches[i]
        if info is not None and known is not None:
            rows[-1].update({k: info.rows[known][k] for k in PRECISIONS})
    rows.sort(key=lambda r: (r["total_ns"] is None, -(r["total_ns"] or 0)))
    return tables.table("layers", rows)


def _engine(found: Runs, layer: int) -> str | None:
    if found.engine is None or len(found.engines) == 1:
        return found.engine
    return f"{found.engine} #{found.layers[layer].engine + 1}"
