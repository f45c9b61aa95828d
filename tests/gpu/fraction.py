"""How far are counters of a fraction of the launches from those of every launch? Needs no GPU.

usage: python3 -P tests/gpu/fraction.py FRACTION EVERY
       python3 -P tests/gpu/fraction.py --train RUN PRECISION

The first compares two captures of one run, with the plan and meta files beside them:
fp16.tensorrt.ncu-rep and fp16.tensorrt.ncu-every.ncu-rep, say. The second is of one capture of
every launch of the training step
(`layerline ncu --of train --every --metrics smsp__inst_executed.sum --metrics dram__bytes.sum`):
a plan is made from nsys's train.PRECISION.sqlite, and each launch that it leaves out is given the
value of its representative.

Both sides are brought to the launches of one plan, so that a difference is between the same launch
of the same layer. Printed per metric: layers' means apart, launches that were given another's
apart, and the whole. Left out: attributes of launches, and extremes over the instances of a unit.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from layerline.analysis.counters import representatives
from layerline.analysis.counters.units import base_unit
from layerline.analysis.metrics.series import STATIC
from layerline.analysis.readers import registry
from layerline.core.replay import plan as plan_
from layerline.profile.ncu import eager_launches

ATTRIBUTES = (*STATIC, "launch__")
LIMIT = 0.1
EXTREMES = {"min", "max"}  # which blocks one SM or channel got differs from run to run


def of_captures(fraction: Path, every: Path) -> pd.DataFrame:
    """The values of both captures (`ours`, `truth`) by launch and metric, `layer`, and whether the
    launch was `given` another's."""
    plan = representatives.plan_beside(fraction)
    if plan is None:
        sys.exit(f"error: {fraction} has no plan beside it; name the capture at the fraction first")
    ours, truth = registry.read(fraction), registry.read(every)
    at_fraction = representatives.matched(plan, ours.tables["launches"])
    bare = {**plan, "reports": {}, "chosen": None}
    in_full = representatives.matched(bare, truth.tables["launches"])
    left = _values(representatives.for_every_launch(ours.main, at_fraction))
    right = _values(representatives.for_every_launch(truth.main, in_full))
    left["given"] = left.pop("representative_of").notna()
    return left.rename(columns={"value": "ours"}).join(right["value"].rename("truth"), how="inner")


def of_training(run: Path, precision: str) -> pd.DataFrame:
    """As `of_captures`, with the values that the plan would give."""
    captures, name = run / "captures", f"train.{precision}"
    meta = json.loads((captures / f"{name}.nsys.meta.json").read_text())
    launches = eager_launches.of_nsys(captures / f"{name}.sqlite", meta.get("modules") or {})
    chosen = plan_.plan(launches).chosen
    plan = plan_.document(launches, {"report": {x.index: x.index for x in chosen}}, chosen)
    every = registry.read(captures / f"{name}.ncu-every.ncu.csv")
    counters = representatives.of_file(every, captures / f"{name}.ncu-every.ncu.plan.json")
    values = _values(counters)
    of = {x["index"]: x["representative"] for x in plan["launches"]}
    launch, metric = (values.index.get_level_values(n) for n in ("launch", "metric"))
    source = pd.MultiIndex.from_arrays([launch.map(of), metric])
    ours = values["value"].reindex(source).to_numpy()
    return values.assign(ours=ours, truth=values["value"], given=launch != launch.map(of)).dropna(
        subset=["ours"]
    )


def _values(counters: Any) -> pd.DataFrame:
    columns = ["launch", "metric", "value", "unit", "layer", "representative_of"]
    frame = counters.select(columns).to_pandas().dropna(subset=["value"])
    frame = frame[frame["metric"].map(_compared)]
    # Reports and ncu's pages have other multiples of a unit.
    factors = {u: base_unit(None if pd.isna(u) else u)[0] for u in frame["unit"].unique()}
    value, layer = frame["value"] * frame["unit"].map(factors), frame["layer"].fillna("(no layer)")
    return frame.assign(value=value, layer=layer).set_index(["launch", "metric"])


def _compared(metric: str) -> bool:
    return not metric.startswith(ATTRIBUTES) and EXTREMES.isdisjoint(metric.split("."))


def apart(ours: Any, truth: Any) -> Any:
    """``|ours - truth| / |truth|``; infinite where the truth alone is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ours == truth, 0.0, np.abs(ours - truth) / np.abs(truth))


def layers(values: pd.DataFrame) -> pd.DataFrame:
    """Both means of each layer and metric, how far they are `apart`, and whether any of the layer's
    launches was `given` another's. Without what is 0 on both sides."""
    groups = values.groupby(["metric", "layer"])
    means = groups.agg(ours=("ours", "mean"), truth=("truth", "mean"), given=("given", "any"))
    means = means[(means["ours"] != 0) | (means["truth"] != 0)]
    return means.assign(apart=apart(means["ours"], means["truth"]))


def lines(values: pd.DataFrame) -> list[str]:
    """What was replayed, the differences of all layers, and a line per metric, the worst first."""
    by_layer = layers(values)
    given = values.groupby("launch")["given"].any()
    noise = by_layer[~by_layer["given"]]["apart"]
    beyond = by_layer[by_layer["apart"] > LIMIT].index.unique("layer")
    head = [
        f"replayed: {(~given).sum()} of {len(given)} launches ({(~given).mean():.1%})",
        f"layers apart: {_spread(by_layer['apart'])}; replayed in both: {_spread(noise)}",
        f"{len(beyond)} of {values['layer'].nunique()} layers have a metric beyond {LIMIT:.0%}",
    ]
    worst = by_layer["apart"].groupby(level="metric").max().sort_values(ascending=False)
    return head + [_line(m, by_layer.loc[m], values.xs(m, level="metric")) for m in worst.index]


def _line(metric: str, by_layer: pd.DataFrame, values: pd.DataFrame) -> str:
    given = values[values["given"]]
    whole = apart(values["ours"].sum(), values["truth"].sum())
    return (
        f"{metric}: {len(by_layer)} layers, {_spread(by_layer['apart'])} "
        f"({by_layer['apart'].idxmax()[:60]}); {len(given)} given launches, "
        f"{_spread(apart(given['ours'], given['truth']))}; all together {float(whole):.2%}"
    )


def _spread(relative: Any) -> str:
    if not len(relative):
        return "none"
    p90 = np.quantile(relative, 0.9, method="inverted_cdf")
    return f"median {np.median(relative):.3%}, p90 {p90:.2%}, worst {np.max(relative):.2%}"


def times(fraction: Path, every: Path) -> list[str]:
    """What the fraction took of the time of all, by the meta files."""
    metas = [
        json.loads(p.with_name(f"{representatives.stem(p)}.ncu.meta.json").read_text())
        for p in (fraction, every)
    ]
    for key in ("inputs", "options"):
        if metas[0].get(key) != metas[1].get(key):
            sys.exit(f"error: {every} is of other {key} than {fraction}")
    share = {k: sum(metas[0][k]) / sum(metas[1][k]) for k in ("profiled_seconds", "seconds")}
    return [
        f"time: {share['profiled_seconds']:.1%} from profiler start to stop, "
        f"{share['seconds']:.1%} with the start of the program"
    ]


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--train"]:
        said = lines(of_training(Path(arguments[1]), arguments[2]))
    else:
        fraction, every = map(Path, arguments)
        said = times(fraction, every) + lines(of_captures(fraction, every))
    sys.stdout.write("\n".join(said) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
