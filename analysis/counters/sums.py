"""Counters per layer and per module. Nothing is aggregated that has no right rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...core.module_paths import inside, tree
from ...core.roofline_metrics import DURATION
from ...core.tables import schema
from .launches import Launch
from .units import CONSTANT, MEAN, PRINTED_DURATION, SUM, base_unit, rule

UNRESOLVED = "(unresolved)"  # no path of a module has brackets

# `value`: median over iterations of the layer's value in one iteration, `low` and `high` the
# smallest and largest; `kernels`: launches per iteration. Units are base units.
PER_LAYER = schema(
    "layer text, modules texts, metric text, unit text, rule text, value real, low real, "
    "high real, iterations int, kernels int"
)
# `own`: over layers wholly inside the module's subtree; `shared`: over layers partly inside;
# `own_kernels`: launches per iteration of the layers wholly inside.
PER_MODULE = schema(
    "module text, metric text, unit text, rule text, own real, shared real, own_layers int, "
    "shared_layers int, own_kernels int"
)


def per_layer(counters: pa.Table, launches: list[Launch]) -> pa.Table:
    """The metrics of each layer of one capture, in execution order (`PER_LAYER`).

    `counters` as read or joined, with its `launches`. A layer that lacks a value, or for a mean
    a duration, in any of its launches has a null value, as has a metric without a rule where there
    is more than one launch in an iteration: of one launch the value is the layer's.
    """
    if not len(counters):
        return PER_LAYER.empty_table()
    by_iteration = _of_iterations(_values(counters, launches))
    groups = by_iteration.groupby(["place", "metric"], sort=True)
    frame = groups.agg(
        unit=("unit", "first"),
        rule=("rule", "first"),
        value=("value", "median"),
        low=("value", "min"),
        high=("value", "max"),
        iterations=("value", "size"),
        known=("value", "count"),
        kernels=("kernels", "first"),
    ).reset_index()
    # One iteration without a value leaves the layer without one.
    frame.loc[frame["known"] < frame["iterations"], ["value", "low", "high"]] = np.nan
    layers = list(dict.fromkeys(x.layer for x in launches))
    modules = {x.layer: x.modules for x in launches}
    frame["layer"] = [layers[place] for place in frame["place"]]
    frame["modules"] = [modules[layer] for layer in frame["layer"]]
    return pa.Table.from_pandas(frame, schema=PER_LAYER, preserve_index=False)


def per_module(layers: pa.Table) -> pa.Table:
    """The metrics of each module's subtree from those of the layers (`PER_MODULE`).

    Sums add up over layers; means are weighted by the layers' durations. A layer whose modules
    are unknown is in no module (`unresolved` has them). Metrics without a rule, and constants, are
    left out.
    """
    modules = {layer: of for layer, of in _modules(layers).items() if of}
    grid = _grid(layers, list(modules))
    if grid is None:
        return PER_MODULE.empty_table()
    rows: list[dict[str, Any]] = []
    for module in sorted(tree(m for of in modules.values() for m in of)):
        within = [[inside(m, module) for m in of] for of in modules.values()]
        own = np.asarray([all(i) for i in within])
        shared = np.asarray([any(i) and not all(i) for i in within])
        rows += _rows(module, grid, own, shared)
    return pa.Table.from_pylist(rows, schema=PER_MODULE)


def unresolved(layers: pa.Table) -> pa.Table:
    """The metrics of the layers whose modules are unknown, as a module `UNRESOLVED` of its own
    (`PER_MODULE`): with those of the root module it is all that was measured. Empty where there is
    none."""
    grid = _grid(layers, [layer for layer, of in _modules(layers).items() if not of])
    if grid is None:
        return PER_MODULE.empty_table()
    every = np.ones(len(grid.values), np.bool_)
    return pa.Table.from_pylist(_rows(UNRESOLVED, grid, every, ~every), schema=PER_MODULE)


def _modules(layers: pa.Table) -> dict[str, list[str] | None]:
    """The modules of each layer."""
    rows = layers.select(["layer", "modules"]).to_pylist()
    return {row["layer"]: row["modules"] for row in rows}


@dataclass(frozen=True)
class _Grid:
    """Values of layers (rows) by metric (columns), their durations and launches; unit and rule by
    metric."""

    values: Any
    time: Any
    kernels: Any
    rules: dict[str, tuple[str | None, str]]


def _grid(layers: pa.Table, chosen: list[str]) -> _Grid | None:
    """The chosen layers' metrics that have a rule for several layers; None where none has."""
    every = layers.to_pandas()
    frame = every[every["rule"].isin([SUM, MEAN])]
    if frame.empty or not chosen:
        return None
    grid = frame.pivot(index="layer", columns="metric", values="value").reindex(chosen)
    timed = next((name for name in (DURATION, PRINTED_DURATION) if name in grid), None)
    time = np.full(len(grid), np.nan) if timed is None else grid[timed].to_numpy(float)
    kernels = every.drop_duplicates("layer", keep="last").set_index("layer")["kernels"]
    about = frame.drop_duplicates("metric").set_index("metric")
    rules = {m: (_none(about.loc[m, "unit"]), about.loc[m, "rule"]) for m in grid.columns}
    return _Grid(grid.to_numpy(float), time, kernels[chosen].to_numpy(), rules)


def _rows(module: str, grid: _Grid, own: Any, shared: Any) -> list[dict[str, Any]]:
    """A row per metric; `own` and `shared` choose the layers."""
    is_sum = np.asarray([how == SUM for _, how in grid.rules.values()])
    mine = _together(grid.values[own], grid.time[own], is_sum)
    others = _together(grid.values[shared], grid.time[shared], is_sum)
    return [
        {
            "module": module,
            "metric": metric,
            "unit": unit,
            "rule": how,
            "own": _none(mine[i]),
            "shared": _none(others[i]),
            "own_layers": int(own.sum()),
            "shared_layers": int(shared.sum()),
            "own_kernels": int(grid.kernels[own].sum()),
        }
        for i, (metric, (unit, how)) in enumerate(grid.rules.items())
    ]


def durations(counters: pa.Table) -> dict[int, float]:
    """ns per launch that ncu measured, of launches that have it."""
    names = pa.array([DURATION, PRINTED_DURATION])
    chosen = counters.filter(pc.is_in(counters["metric"], names))
    return {
        r["launch"]: r["value"] * base_unit(r["unit"])[0]
        for r in chosen.select(["launch", "value", "unit"]).to_pylist()
        if r["value"] is not None
    }


def _values(counters: pa.Table, launches: list[Launch]) -> pd.DataFrame:
    """One row per launch and metric, in base units, with the launch's place and duration."""
    places = {layer: i for i, layer in enumerate(dict.fromkeys(x.layer for x in launches))}
    about = pd.DataFrame(
        {
            "launch": [x.launch for x in launches],
            "place": [places[x.layer] for x in launches],
            "iteration": [x.iteration for x in launches],
        }
    )
    rows = counters.select(["launch", "metric", "unit", "value"]).to_pandas()
    # A metric that several sections print is one value.
    rows = rows.drop_duplicates(["launch", "metric"]).merge(about, on="launch")
    rows["weight"] = rows["launch"].map(durations(counters)).astype(float)
    units = {u: base_unit(None if pd.isna(u) else u) for u in rows["unit"].unique()}
    rows["value"] = rows["value"].astype(float) * rows["unit"].map(lambda u: units[u][0])
    pairs = list(zip(rows["metric"].tolist(), rows["unit"].tolist(), strict=True))
    kinds = {k: rule(k[0], None if pd.isna(k[1]) else k[1]) for k in set(pairs)}
    rows["rule"] = pd.Series([kinds[key] for key in pairs], index=rows.index, dtype=object)
    rows["unit"] = rows["unit"].map(lambda u: units[u][1])
    return rows


def _of_iterations(rows: pd.DataFrame) -> pd.DataFrame:
    """The value of each layer and metric in each iteration."""
    rows = rows.assign(weighted=rows["value"] * rows["weight"])
    keys = ["place", "metric", "iteration"]
    groups = rows.groupby(keys, sort=True)
    frame = groups.agg(
        unit=("unit", "first"),
        rule=("rule", "first"),
        kernels=("value", "size"),
        known=("value", "count"),
        timed=("weight", "count"),
        total=("value", "sum"),
        weighted=("weighted", "sum"),
        weight=("weight", "sum"),
        low=("value", "min"),
        high=("value", "max"),
    )
    complete = frame["known"] == frame["kernels"]
    same = complete & (frame["low"] == frame["high"])
    timed = complete & (frame["timed"] == frame["kernels"]) & (frame["weight"] > 0)
    value = pd.Series(np.nan, index=frame.index)
    value = value.mask((frame["rule"] == SUM) & complete, frame["total"])
    mean = (frame["weighted"] / frame["weight"].where(frame["weight"] > 0)).where(
        ~same, frame["low"]
    )
    value = value.mask((frame["rule"] == MEAN) & (timed | same), mean)
    alone = frame["rule"].isna() & (frame["kernels"] == 1)
    value = value.mask(((frame["rule"] == CONSTANT) | alone) & same, frame["low"])
    return frame.assign(value=value).reset_index()


def _together(values: Any, time: Any, is_sum: Any) -> Any:
    """Sum or mean over layers (rows) of each metric (columns); NaN where a layer's is unknown."""
    total = values.sum(axis=0)
    weight = time.sum()
    if not len(values) or not weight > 0:
        mean = np.full(values.shape[1], np.nan)
    else:
        mean = (values * time[:, None]).sum(axis=0) / weight
    return np.where(is_sum, total, mean)


def _none(value: Any) -> Any:
    return None if pd.isna(value) else value
