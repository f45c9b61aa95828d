"""The sides of the comparison: what is known of each, and its operations as a matrix."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from ..core.stats import Stat
from . import modules
from .floors import LayerFloor
from .report import view as contract
from .sums import Sums, stat, sums


@dataclass(frozen=True)
class SideData:
    """One column: its operations and what is known about them.

    `ops`: rows of this source, precision and phase. `labels`: a name for each row of `ops` that
    has no module ("optimizer"; "unresolved" where nothing is known). `latency_ns`: unprofiled
    samples in their order, `target` how narrow their interval was to be (half of it over the
    median), `processes` how many of them each process took. `traced_ns`: latency in the profiled
    run by iteration. `outside_ns`: wall time in no operator, by iteration. `layers`: the layers
    table of an engine. `rebuild_noise`: how far apart the medians of two builds of it were, over
    the first; null where it was not built again.
    `queued_ns`: unprofiled device times of inferences that were queued whole before they began.
    `host`: what the host did in a capture by nsys; null without one.
    `floors`: by layer label, what the layer's nodes ask for at least.
    `device`: what else was measured beside the latency, by the names of `report.view.Side`.
    """

    key: str
    side: str
    label: str
    precision: str
    phase: str
    backend: str
    source: str
    ops: pa.Table
    labels: Any = None
    latency_ns: Sequence[int] = ()
    target: float | None = None
    processes: Sequence[int] = ()
    traced_ns: Mapping[int, int] = field(default_factory=dict)
    outside_ns: Mapping[int, int] = field(default_factory=dict)
    closure: Sequence[contract.Closure] = ()
    parity: Mapping[str, Any] | None = None
    precision_run: Mapping[str, float] | None = None
    layers: pa.Table | None = None
    nodes: Sequence[Mapping[str, Any]] = ()
    rebuild_noise: float | None = None
    queued_ns: Sequence[int] = ()
    queued_processes: Sequence[int] = ()
    device: Mapping[str, Any] = field(default_factory=dict)
    host: contract.HostSide | None = None
    warned: Sequence[str] = ()
    floors: Mapping[str, LayerFloor] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """What is known of the model: module paths in registration order and their classes."""

    title: str
    paths: Sequence[str] = ()
    classes: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Column:
    """A side with its matrix."""

    data: SideData
    sums: Sums
    total: int | None  # median per iteration

    def costs(self, regions: Sequence[Collection[str]]) -> list[contract.Cost | None]:
        """The cost of each region, null where nothing ran for it."""
        return [
            None if b is None else as_cost(b.own, b.upper, self.total)
            for b in modules.bounds(self.sums, regions)
        ]


def reduced(side: SideData) -> Column:
    """Reduce a side's operations."""
    made = sums(side.ops, side.labels)
    total = stat(made.total()) if made.iterations else None
    return Column(side, made, total.median if total else None)


def estimate(summary: Stat | None) -> contract.Estimate:
    """A summary as the report's estimate."""
    if summary is None:
        return {"median": None, "low": None, "high": None, "n": 0}
    return {"median": summary.median, "low": summary.low, "high": summary.high, "n": summary.n}


def as_cost(own: Stat, upper: Stat, total: int | None) -> contract.Cost:
    """A cost of the report, in [own, upper]; its share is of `total`, null where that is not its
    whole."""
    return {
        "own": own.median,
        "own_low": own.low,
        "own_high": own.high,
        "shared": upper.median - own.median,
        "share": upper.median / total if total else None,
        "upper_low": upper.low,
        "upper_high": upper.high,
    }


def precision_run(layers: pa.Table | None) -> dict[str, float]:
    """Compute precision to its share of the time of the layers that compute.

    A layer without one computes nothing (movement, integers) and has no part in this; where the
    engine does not even tell what goes in, it is "unknown". Empty where nothing is known.
    """
    if layers is None:
        return {}
    time: dict[str, int] = {}
    columns = [layers[c].to_pylist() for c in ("compute_precision", "precision_in", "total_ns")]
    for precision, given, total in zip(*columns, strict=True):
        name = precision or ("unknown" if given is None else None)
        if total and name:
            time[name] = time.get(name, 0) + total
    if set(time) <= {"unknown"}:
        return {}
    everything = sum(time.values())
    ordered = sorted(time.items(), key=lambda item: -item[1])
    return {p: t / everything for p, t in ordered}


def widened(summary: Stat | None, noise: float | None) -> Stat | None:
    """The summary with its interval made wider by the noise of building: another build's median
    may lie that much off, so no comparison may rest on less."""
    if summary is None or not noise or summary.low is None or summary.high is None:
        return summary
    low, high = round(summary.low * (1 - noise)), round(summary.high * (1 + noise))
    return replace(summary, low=max(low, 0), high=high)
