"""What bounds each module, layer and kernel of a side, by its hardware counters.

Values are those of `roofline` (FLOP, DRAM bytes, peaks, what bounds) and of a few metrics of ncu's
ComputeWorkloadAnalysis and Occupancy. A layer is one by its label; a kernel row is all launches of
one kernel in one layer; a module row is what runs wholly inside the module, and its floor is the
sum of the floors of its layers, so as the engine cut them.

Launches that were given the counters of one that is the same work (`representative_of`) count like
measured ones, and are told apart in `measured`. Where a kernel of a layer has no counters at all,
the layer's sums, and those of the modules above it, are unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow.compute as pc

from ...core.module_paths import common_parent, depth, inside, ordered_tree, parent
from ..counters import launches as launches_
from ..counters import sums
from ..counters.launches import Launch
from ..model.comparison import LayerRow, ModuleRow
from ..model.counters import CountedRow, CountedSide
from ..model.layer import Floor
from . import roofline, sentence
from .bound_inputs import HEADLINES, About, Capture, peaks, peaks_source, values_of
from .flop import added

__all__ = ["Capture", "side"]

PIPES_SHOWN = 4
# ncu prints it as "Shared (FP64+Tensor)"; the name alone reads as shared memory.
_PARTS_OF = {"shared": ("tensor", "fp64")}


def side(
    capture: Capture, layers: Iterable[LayerRow], module_rows: Iterable[ModuleRow]
) -> CountedSide:
    """The counters of one side; its layers and modules give shares of time."""
    found = launches_.of_table(capture.counters)
    about = About(capture, found, layers, module_rows)
    device = about.device
    names = set(pc.unique(capture.counters["metric"]).to_pylist())
    without = Counter(str(x.get("function") or "a kernel") for x in about.uncounted)
    return CountedSide(
        key=capture.side.key,
        label=capture.side.label,
        sources=sorted(pc.unique(capture.counters["source"]).to_pylist()),
        device=device.name if device else None,
        peaks=peaks(about),
        peaks_source=peaks_source(about),
        clock_control=capture.clock_control,
        iterations=about.iterations,
        launches=len(found),
        measured=sum(about.is_measured(x) for x in found),
        uncounted=len(about.uncounted),
        uncounted_kernels=dict(without.most_common()),
        absent=round(sum(number for _, number in about.lacking.values())),
        missing=roofline.missing(names),
        rows=_rows(about),
        spread=about.twins.of(x.launch for x in found),
        widest=about.twins.widest(),
    )


def _rows(about: About) -> list[CountedRow]:
    """Modules in preorder, each followed by the layers whose closest common module it is, and
    these by their kernels; layers without a module last."""
    layers = sums.per_layer(about.table, list(about.launches))
    of_layer = values_of(layers, "layer", "value")
    of_module = values_of(sums.per_module(layers), "module", "own")
    by_layer: dict[str, list[Launch]] = defaultdict(list)
    for x in about.launches:
        by_layer[x.layer].append(x)
    owner = {x.layer: common_parent(x.modules) if x.modules else None for x in about.launches}
    of = _Layers(by_layer, owner, of_layer, _kernels(about))
    paths = ordered_tree(
        list(about.costs), sorted({m for x in about.launches for m in x.modules or ()})
    )
    found: list[CountedRow] = []
    for path in paths:
        wholly = [
            x for x in about.launches if x.modules and all(inside(m, path) for m in x.modules)
        ]
        if wholly:
            found.append(_module(about, path, wholly, of_module.get(path, {})))
        found += _layers_of(about, of, path)
    return found + _layers_of(about, of, None)


@dataclass(frozen=True)
class _Layers:
    """By layer: its launches, the closest module that all of it is in (null: none), the values of
    its metrics, and those of its kernels."""

    launches: Mapping[str, list[Launch]]
    owner: Mapping[str, str | None]
    values: Mapping[str, dict[str, float | None]]
    kernels: Mapping[str, dict[str, dict[str, float | None]]]


def _layers_of(about: About, of: _Layers, path: str | None) -> list[CountedRow]:
    """The layers that `path` owns, each followed by its kernels."""
    found = []
    for label, launches in of.launches.items():
        if of.owner[label] != path:
            continue
        around = None if path is None else f"module:{path}"
        below = 0 if path is None else depth(path) + 1
        row = _layer(about, label, launches, of.values.get(label, {}), around, below)
        found.append(row)
        for kernel, known in of.kernels[label].items():
            mine = [x for x in launches if x.kernel == kernel]
            found.append(_kernel(about, row, kernel, mine, known))
    return found


def _kernels(about: About) -> dict[str, dict[str, dict[str, float | None]]]:
    """Metric values by layer and kernel, by the same rules as a layer's."""
    names = {(x.layer, x.kernel): str(i) for i, x in enumerate(about.launches)}
    split = [replace(x, layer=names[x.layer, x.kernel]) for x in about.launches]
    values = values_of(sums.per_layer(about.table, split), "layer", "value")
    found: dict[str, dict[str, dict[str, float | None]]] = defaultdict(dict)
    for (layer, kernel), name in names.items():
        found[layer][kernel] = values.get(name, {})
    return found


def _module(
    about: About,
    path: str,
    launches: list[Launch],
    values: dict[str, float | None],
) -> CountedRow:
    labels = list(dict.fromkeys(x.layer for x in launches))
    lacking = sum(n for of, n in about.lacking.values() if of and all(inside(m, path) for m in of))
    cost = about.costs.get(path)
    share = None
    if cost is not None and cost.own.median is not None and about.total:
        share = cost.own.median / about.total
    around = f"module:{parent(path)}" if path else None
    given = _Row("module", f"module:{path}", path, around, depth(path), launches, lacking, share)
    return _row(about, given, values, _summed(about, labels))


def _layer(
    about: About,
    label: str,
    launches: list[Launch],
    values: dict[str, float | None],
    parent: str | None,
    depth: int,
) -> CountedRow:
    lacking = about.lacking[label][1] if label in about.lacking else 0
    share = about.share(label)
    given = _Row("layer", f"layer:{label}", label, parent, depth, launches, lacking, share)
    floor = about.capture.floors.get(label)
    return _row(about, given, values, floor and _floor(floor.flop, floor.bytes))


def _kernel(
    about: About,
    layer: CountedRow,
    kernel: str,
    launches: list[Launch],
    values: dict[str, float | None],
) -> CountedRow:
    identity = f"kernel:{layer.name}\x1f{kernel}"
    given = _Row("kernel", identity, kernel, layer.id, layer.depth + 1, launches, 0, None)
    return _row(about, given, values, None)


@dataclass(frozen=True)
class _Row:
    kind: str
    id: str
    name: str
    parent: str | None
    depth: int
    launches: list[Launch]
    lacking: float
    share: float | None


def _row(
    about: About,
    of: _Row,
    values: dict[str, float | None],
    floor: Floor | None,
) -> CountedRow:
    if of.lacking:
        values = {}
    per_iteration = max(1, round(len(of.launches) / about.iterations))
    made = roofline.row(of.name, roofline.work(values, per_iteration), about.device)
    why = made["why"]
    if of.lacking:
        number = round(of.lacking)
        why = f"{number} of its {per_iteration + number} kernels have no counters"
    elif about.device is None:
        why = "the capture does not name its device"
    row = CountedRow(
        id=of.id,
        parent=of.parent,
        kind=of.kind,
        name=of.name,
        modules=sorted({m for x in of.launches for m in x.modules or ()}),
        depth=of.depth,
        launches=len(of.launches),
        measured=sum(about.is_measured(x) for x in of.launches),
        replay_ns=made["duration_ns"],
        clock_hz=made["clock_hz"],
        flop=made["flop"],
        bytes=made["bytes"],
        intensity=made["intensity"],
        flop_per_second=made["flop_per_second"],
        shares={k: made[f"share_{k}"] for k in ("tensor", "fp32", "memory")},
        bound=made["bound"],
        why=why,
        floor=floor,
        metrics={
            k: next((v for n in names if (v := values.get(n)) is not None), None)
            for k, names in HEADLINES.items()
        },
        pipes=_pipes(values),
        spread=about.twins.of(x.launch for x in of.launches),
        share=of.share,
    )
    return replace(row, text=sentence.sentence(row))


def _summed(about: About, labels: Iterable[str]) -> Floor | None:
    """The floors of layers added up; layers that only move data ask for nothing."""
    parts = [about.capture.floors.get(x) for x in labels if not about.moves_only(x)]
    if not parts or any(p is None for p in parts):
        return None
    return _floor(added(p.flop for p in parts if p), added(p.bytes for p in parts if p))


def _floor(flop: float | None, size: float | None) -> Floor | None:
    return None if flop is None and size is None else Floor(flop, size)


def _pipes(values: Mapping[str, float | None]) -> dict[str, float]:
    """The busiest pipes, in percent of their peak. Cycles of a pipe come before its instructions
    where a capture has both: they are what it can do at most. Of a pipe and its parts, the parts
    (FP64 and tensor cores); of the tensor cores and their kinds of product, the whole."""
    found: dict[str, float] = {}
    for cycles in (False, True):
        for metric, value in values.items():
            name = _pipe(metric)
            if name and value is not None and ("_cycles_active" in metric) == cycles:
                found[name] = value
    found = {n: v for n, v in found.items() if not found.keys() & set(_PARTS_OF.get(n, ()))}
    if "tensor" in found:  # its kinds say nothing more
        found = {n: v for n, v in found.items() if not n.startswith("tensor_")}
    busiest = sorted(found, key=lambda n: (-found[n], n))[:PIPES_SHOWN]
    return {n: found[n] for n in busiest if found[n] > 0}


def _pipe(metric: str) -> str | None:
    name, _, rollup = metric.partition(".")
    if rollup != "avg.pct_of_peak_sustained_active":
        return None
    for prefix in ("sm__inst_executed_pipe_", "sm__pipe_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix).removesuffix("_cycles_active")
    return None
