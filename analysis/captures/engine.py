"""An engine's capture to its side of the comparison, with its checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import to_builtins

from ...core import tables
from ...core.documents import Accuracy, Measured, Model
from ..checks import closure
from ..checks import latency as latency_
from ..checks import precision as precision_
from ..checks.closure import counted, lost
from ..costs.iterations import labels
from ..costs.layers import by_label, of_ops
from ..costs.measured import MeasuredSide
from ..host import capture as capture_
from ..model.comparison import Side
from . import engine_ops
from . import floors as floors_
from .captured import BACKENDS, Captured, Series, measured
from .files import EngineFiles


def engine(files: EngineFiles) -> Captured:
    """The side of one engine. Its operations come from a capture, its latency from another run
    without the profiler."""
    name, precision, backend = files.name, files.precision, files.backend
    latency = files.latency or Measured()
    capture = engine_ops.read(files)
    ops = capture.ops
    traced = by_iteration(ops, capture.latency_ns)
    checks = [
        closure.counted_once(counted(ops), capture.raw_ns, lost([ops])),
        closure.span_against_latency(closure.spans(ops), traced, capture.floor_ns),
        latency_.profiler_cost(traced.values(), latency, ops, queued=capture.queued),
        *capture.checks,
    ]
    label = f"{BACKENDS.get(backend, backend)} {precision}"
    listed = {
        label: layer["compute_precision"]
        for label, layer in by_label(capture.described).items()
        if isinstance(layer.get("compute_precision"), str)
    }
    ran = precision_.kernel_time(ops, listed)
    claims = backend in precision_.CLAIMING
    checks += filter(None, [precision_.check(precision, ran, claims=claims, label=label)])
    table = of_ops(ops, name, capture.described)
    host = capture_.read(capture.raw, files.command)
    side = Side(
        task="engine",
        precision=precision,
        backend=backend,
        phase="inference",
        label=label,
        source=capture.raw.name,
        precision_run=ran.share if ran and ran.known else precision_.precision_run(table),
        checks=checks,
        parity=parity(files.accuracy, files.model),
        device={
            **latency_.device(latency),
            **on_cpu(files),
            **kept_fp32(files),
            **otherwise(files),
            **ranged(files),
        },
        host=capture_.block(host, ops, latency.latency_ns, latency.queued_ns),
        warned=capture_.warned(host),
        rebuild_noise=None if files.rebuild is None else files.rebuild.relative_difference,
    )
    whole = measured(
        side,
        ops,
        labels(ops, "no module"),
        Series(latency.latency_ns, latency.sizes(), latency.target, latency.warmup_ns),
        traced,
        Series(latency.queued_ns, latency.queued_sizes()),
        layers=table,
        nodes=capture.nodes,
        floors=floors_.of_engine(files, table),
    )
    return Captured(files, [whole], ops)


def unmeasured(
    precision: str, backend: str, source: str, accuracy: Accuracy, model: Model | None
) -> MeasuredSide:
    """The side of an engine of which only the outputs are known, from the file `source`."""
    side = Side(
        task="engine",
        precision=precision,
        backend=backend,
        phase="inference",
        label=f"{BACKENDS.get(backend, backend)} {precision}",
        source=source,
        parity=parity(accuracy, model),
    )
    ops = tables.table("ops", [])
    return measured(side, ops, labels(ops, "no module"), Series(), {})


def parity(accuracy: Accuracy | None, model: Model | None) -> dict[str, Any] | None:
    """The engine's outputs against eager's; None where they were not compared."""
    if accuracy is None:
        return None
    weights = Model() if model is None else model
    known = {"weights": weights.weights, "random_weights": weights.random_weights}
    return {**to_builtins(accuracy), **known}


def on_cpu(files: EngineFiles) -> dict[str, dict[str, int]]:
    """``{"on_cpu": {operator: nodes}}`` of a GPU engine with nodes on the CPU; else empty."""
    operators = {} if files.build is None else files.build.on_cpu
    return {"on_cpu": dict(Counter(operators.values()))} if operators else {}


def kept_fp32(files: EngineFiles) -> dict[str, list[str]]:
    """``{"kept_fp32": [module, ...]}`` of an engine built with a precision plan; else empty."""
    kept = [] if files.build is None else files.build.options.precision_plan.modules_fp32
    return {"kept_fp32": kept} if kept else {}


def otherwise(files: EngineFiles) -> dict[str, list[str]]:
    """``{"otherwise": [what torch.compile would do and the package does not]}``; else empty."""
    build = files.build
    if build is None:
        return {}
    said = [f"breaks the graph at {b.place} ({b.why})" for b in build.graph_breaks]
    if build.recompiles:
        said.append(f"compiles again for equal inputs ({build.recompiles} times in two calls)")
    return {"otherwise": said} if said else {}


def ranged(files: EngineFiles) -> dict[str, list[str]]:
    """``{"compiled": [what is unusual about the package]}`` of one with ranges; else empty."""
    if files.build is None or not files.build.ranged:
        return {}
    why = "a second compilation chose other kernels"
    return {"compiled": [f"has a range around each kernel, which costs the host time ({why})"]}


def by_iteration(ops: pa.Table, samples: Sequence[int]) -> dict[int, int]:
    """Latency of the profiled run by iteration; empty where the two do not fit together.

    The worker counts measured runs from 0, as readers do after the warm-up. Another number of
    runs in the trace than in the list means that some were not recorded: then nothing is joined.
    """
    if not samples:
        return {}
    numbers = set(pc.unique(ops["iteration"].drop_null()).to_pylist())
    return dict(enumerate(samples)) if numbers == set(range(len(samples))) else {}
