"""The comparison: everything the report shows, made from tables. Pure: reads no file.

`build` takes one `MeasuredSide` per column (an engine, an eager phase) and makes the rows:
modules at every depth, blocks, kinds, rows without a module, layers, nodes and ratios.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ...core import module_paths
from ...core.accuracy import by_module
from ...core.accuracy.limits import DEFAULTS, Asked, judge
from ...core.series import in_order
from ...core.stats import Estimate
from ...core.tables import OUTSIDE_OPERATORS, UNRESOLVED
from ..costs import modules as modules_
from ..costs.iterations import Key, stat, sums
from ..costs.measured import MeasuredSide
from ..model import comparison
from ..model.counters import Counted, Uncounted
from ..model.layer import MOVEMENT
from ..model.side import Model
from ..roofline import bound
from . import lead, partition, ratios, savings

ROWS_FIRST = ("loss", "optimizer", "gradient accumulation", "gradient sums")


@dataclass(frozen=True)
class Context:
    """What is known of the runs beside their sides; shown as it is, see `Comparison`."""

    generated: str = ""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    comparability: Sequence[comparison.Difference] = ()
    skipped: Sequence[comparison.Skipped] = ()
    columns: Sequence[comparison.Column] = ()
    load: Mapping[str, float] = field(default_factory=dict)


NO_CONTEXT = Context()


def _against_eager(sides: Sequence[comparison.Side]) -> list[comparison.Ratio]:
    """Each engine against eager and what it is an alternative to."""
    return lead.mark_lead(ratios.ratios(sides), sides)


def build(
    sides: Sequence[MeasuredSide],
    model: Model,
    context: Context = NO_CONTEXT,
    *,
    sweep: comparison.Sweep | None = None,
    counters: Sequence[bound.Capture | Uncounted] = (),
    limits: Asked = DEFAULTS,
    pairing: Callable[[Sequence[comparison.Side]], Sequence[comparison.Ratio]] = _against_eager,
) -> comparison.Comparison:
    """The comparison of these sides, held against each other by `pairing`. Keys of sides are
    unique. An engine whose outputs are not within the limits is compared with nothing."""
    units = sorted({u for s in sides for u in s.sums.units()})
    paths = module_paths.ordered_tree(model.paths, units) if sides else []
    layer_rows, by_unit = _layers(sides)
    held = [judged(s.side, limits) for s in sides]
    right = [s for s in held if not s.wrong]
    modules = _module_rows(sides, paths, units, model, by_unit) + _other_rows(sides)
    kinds = _kinds(sides, paths, units, model)
    lost = {s.key: s.unresolved_ns or 0 for s in held}
    return comparison.Comparison(
        title=model.title,
        generated=context.generated,
        sides=held,
        ratios=[savings.add(r, kinds, lost) for r in pairing(right)],
        modules=modules,
        kinds=kinds,
        layers=layer_rows,
        nodes=[_node(s.side.key, n) for s in sides for n in s.nodes],
        unresolved=[u for s in sides for u in _unresolved(s)],
        comparability=list(context.comparability),
        skipped=list(context.skipped),
        manifest=context.manifest,
        sweep=_without(sweep, [s for s in held if s.wrong]),
        counters=_counted(counters, layer_rows, modules),
        columns=list(context.columns),
        partitions=partition.partitions(sides, model),
        load=context.load,
    )


def judged(side: comparison.Side, limits: Asked) -> comparison.Side:
    """The side with the verdict on its outputs, where they were compared."""
    if side.parity is None:
        return side
    held_to = limits.limits(side.precision, side.parity.get("limits"))
    verdict = judge(side.parity, held_to)
    of = side.parity, held_to, side.precision, list(side.errors.values())
    return replace(side, outputs=by_module.judge(verdict, *of))


def _without(
    sweep: comparison.Sweep | None, wrong: Sequence[comparison.Side]
) -> comparison.Sweep | None:
    """The sweep, with no batch of a wrong engine called the best."""
    keys = {s.stem for s in wrong}
    if sweep is None or not keys & {p.key for p in sweep.points}:
        return sweep
    remarks = [f"{s.label} does not compute what eager does: no batch of it is best" for s in wrong]
    best = [b for b in sweep.best if b.key not in keys]
    return replace(sweep, best=best, remarks=[*sweep.remarks, *remarks])


def _counted(
    counters: Sequence[bound.Capture | Uncounted],
    layers: Sequence[comparison.LayerRow],
    modules: Sequence[comparison.ModuleRow],
) -> Counted | None:
    """What bounds each module and layer; None where no side runs kernels."""
    if not counters:
        return None
    return Counted(
        sides=[bound.side(c, layers, modules) for c in counters if isinstance(c, bound.Capture)],
        uncounted=[c for c in counters if isinstance(c, Uncounted)],
    )


def _by_iteration(samples: Mapping[int, int]) -> list[int]:
    return [samples[i] for i in sorted(samples)]


def _present(
    sides: Sequence[MeasuredSide], regions: Sequence[Collection[str]]
) -> list[dict[str, comparison.Cost]]:
    """For every region, its cost by side key where something was measured."""
    found: list[dict[str, comparison.Cost]] = [{} for _ in regions]
    for side in sides:
        for costs, cost in zip(found, side.costs(regions), strict=True):
            if cost is not None:
                costs[side.key] = cost
    return found


def _module_rows(
    sides: Sequence[MeasuredSide],
    paths: Sequence[str],
    units: Sequence[str],
    model: Model,
    by_unit: Mapping[str, list[str]],
) -> list[comparison.ModuleRow]:
    """Modules in preorder, each followed by the blocks whose common parent it is."""
    inner = {module_paths.parent(p) for p in paths if p}
    regions = modules_.subtree_regions(paths, units)
    groups = _block_members(sides, inner)
    rows = []
    below: dict[str, list[comparison.ModuleRow]] = {}
    for members, costs in zip(groups, _present(sides, groups), strict=True):
        parent = module_paths.common_parent(members)
        below.setdefault(parent, []).append(
            comparison.ModuleRow(
                id="block:" + "+".join(members),
                parent=f"module:{parent}",
                name=_short(members, parent, inner),
                path=parent,
                module_class=None,
                kind="block",
                depth=module_paths.depth(parent) + 1,
                members=list(members),
                costs=costs,
                layers=_layers_of(members, by_unit),
            )
        )
    for path, costs, region in zip(paths, _present(sides, regions), regions, strict=True):
        row = comparison.ModuleRow(
            id=f"module:{path}",
            parent=f"module:{module_paths.parent(path)}" if path else None,
            name=path.rpartition(".")[2],
            path=path,
            module_class=model.classes.get(path),
            kind="module",
            depth=module_paths.depth(path),
            members=[],
            costs=costs,
            layers=[] if path in inner else _layers_of(region, by_unit),
        )
        rows += [row, *below.get(path, ())]
    return rows


def _block_members(sides: Sequence[MeasuredSide], inner: Collection[str]) -> list[tuple[str, ...]]:
    """The distinct blocks of all sides: linked modules, and the own operations of modules that
    have children. A leaf that shares nothing is its own block already."""
    return sorted(
        {
            members
            for side in sides
            for members in modules_.blocks(side.sums.keys)
            if len(members) > 1 or members[0] in inner
        }
    )


def _short(members: Sequence[str], parent: str, inner: Collection[str]) -> str:
    """The members' names below their common parent; of a module with children its own
    operations are meant, not its subtree."""
    cut = len(parent) + 1 if parent else 0

    def name(member: str) -> str:
        below = member[cut:]
        if member not in inner:
            return below
        return f"{below} (own operations)" if below else "own operations"

    return " + ".join(name(m) for m in members)


def _layers_of(units: Iterable[str], by_unit: Mapping[str, list[str]]) -> list[str]:
    return list(dict.fromkeys(i for u in units for i in by_unit.get(u, ())))


def _other_rows(sides: Sequence[MeasuredSide]) -> list[comparison.ModuleRow]:
    """Costs that are no module's: one row per label, unresolved and the time outside last."""
    costs: dict[str, dict[str, comparison.Cost]] = {}
    for side in sides:
        for key, samples in zip(side.sums.keys, side.sums.matrix, strict=True):
            summary = stat(samples)
            if key.label is not None and summary is not None:
                cost = comparison.Cost(summary, summary, side.share(summary.median))
                costs.setdefault(key.label, {})[side.key] = cost
        outside = in_order(_by_iteration(side.outside_ns))
        if outside is not None:
            # Not a part of operation time, so it has no share of it.
            cost = comparison.Cost(outside, outside, None)
            costs.setdefault(OUTSIDE_OPERATORS, {})[side.key] = cost
    last = {UNRESOLVED: 1, OUTSIDE_OPERATORS: 2}
    ordered = sorted(
        costs,
        key=lambda n: (last.get(n, 0), ROWS_FIRST.index(n) if n in ROWS_FIRST else 99, n),
    )
    return [
        comparison.ModuleRow(
            id=f"row:{name}",
            parent=None,
            name=name,
            path="",
            module_class=None,
            kind="row",
            depth=0,
            members=[],
            costs=costs[name],
            layers=[],
        )
        for name in ordered
    ]


def _kinds(
    sides: Sequence[MeasuredSide], paths: Sequence[str], units: Sequence[str], model: Model
) -> list[comparison.Kind]:
    """Kinds that are repeated or have operations of their own, the most expensive first."""
    groups = module_paths.kinds(paths)
    inside: dict[str, list[str]] = {k: [] for k in groups}
    for unit in units:
        for kind in dict.fromkeys(map(module_paths.kind_of, module_paths.ancestors(unit)[:-1])):
            inside[kind].append(unit)
    own = set(units)
    names = [k for k, ms in groups.items() if inside[k] and (len(ms) > 1 or own & set(ms))]
    found: list[comparison.Kind] = []
    for name, costs in zip(names, _present(sides, [inside[n] for n in names]), strict=True):
        classes = {model.classes.get(m) for m in groups[name]}
        found.append(
            comparison.Kind(
                name=name,
                module_class=classes.pop() if len(classes) == 1 else None,
                count=len(groups[name]),
                costs=costs,
            )
        )
    return sorted(found, key=lambda k: -max((c.own.median or 0) for c in k.costs.values()))


def _layers(
    sides: Sequence[MeasuredSide],
) -> tuple[list[comparison.LayerRow], dict[str, list[str]]]:
    """Layer rows, and the ids of the layers that serve each unit."""
    rows: list[comparison.LayerRow] = []
    by_unit: dict[str, list[str]] = {}
    for side in sides:
        if side.layers is None:
            continue
        for i, row in enumerate(side.layers.to_pylist()):
            identity = f"{side.key}#{i}"
            for module in row["modules"] or ():
                by_unit.setdefault(module, []).append(identity)
            median = row["median_ns"]
            rows.append(
                comparison.LayerRow(
                    id=identity,
                    side=side.key,
                    layer=row["layer"],
                    kind=row["kind"] or "unknown",
                    rule=row["rule"] or UNRESOLVED,
                    nodes=row["nodes"] or [],
                    modules=row["modules"] or [],
                    calls=row["calls"],
                    kernels=row["kernels"],
                    time=Estimate(
                        median=median,
                        low=row["ci_low_ns"],
                        high=row["ci_high_ns"],
                        n=len(side.sums.iterations) if median is not None else 0,
                    ),
                    share=None if median is None else side.share(median),
                    # Movement has the floor of nobody, also where it shares a layer's name.
                    floor=None if row["kind"] == MOVEMENT else side.floors.get(row["layer"]),
                    precision_in=row["precision_in"],
                    precision_out=row["precision_out"],
                    compute_precision=row["compute_precision"],
                    tactic=row["tactic"],
                )
            )
    return rows, by_unit


def _node(side: str, node: Mapping[str, Any]) -> comparison.Node:
    return comparison.Node(
        side=side,
        name=node["name"],
        op=node.get("op", ""),
        module=node.get("module"),
        status=node.get("status", "missing"),
        layer=node.get("layer"),
    )


def _unresolved(side: MeasuredSide) -> list[comparison.Unresolved]:
    """The operations without a module that nothing explains, by name, the largest first."""
    if Key(None, UNRESOLVED) not in side.sums.keys:
        return []
    rows = side.ops.select(["layer", "name", "modules", "rule"]).to_pylist()
    labels = side.labels.to_pylist()
    names = [
        (r["layer"] or r["name"] or "unnamed") if not r["modules"] and label == UNRESOLVED else None
        for r, label in zip(rows, labels, strict=True)
    ]
    part = side.ops.filter(pa.array([n is not None for n in names]))
    by_name = sums(part, pa.array([n for n in names if n is not None]))
    found = []
    for key, samples in zip(by_name.keys, by_name.matrix, strict=True):
        summary = stat(samples)
        if summary is not None:
            found.append(
                comparison.Unresolved(
                    side=side.key,
                    name=key.label or "",
                    ns=summary.median,
                    share=side.share(summary.median),
                    why="no name, index, tensor or order tells which module it serves",
                )
            )
    return sorted(found, key=lambda u: -(u.ns or 0))
