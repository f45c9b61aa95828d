"""From engine operations to the `layers` table: statistics over per-iteration sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..core import tables
from .audit import by_layer
from .kernel_precision import kernel_precision
from .sums import SUMMED, iterations_of, stat, timed_rows

MOVEMENT = "movement"
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
