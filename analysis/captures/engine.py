"""An engine's capture to its side of the comparison, with its checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core import series
from ...core.run import Run
from ..checks import closure
from ..checks import latency as latency_
from ..checks import precision as precision_
from ..checks.closure import counted, lost
from ..costs.iterations import labels
from ..costs.layers import of_ops
from ..host import capture as capture_
from ..model.side import SideData
from ..rundir.files import optional
from . import engine_ops
from . import floors as floors_
from .captured import BACKENDS, Captured


def engine(run: Run, precision: str, backend: str) -> Captured:
    """The side of one engine. Its operations come from a capture, its latency from another run
    without the profiler."""
    name = f"{precision}.{backend}"
    latency = optional(run.file("captures", f"{name}.latency.json"))
    capture = engine_ops.read(run, precision, backend)
    ops = capture.ops
    traced = by_iteration(ops, capture.latency_ns)
    unprofiled = latency.get("latency_ns") or []
    checks = [
        closure.counted_once(counted(ops), capture.raw_ns, lost([ops])),
        closure.span_against_latency(closure.spans(ops), traced, capture.floor_ns),
        latency_.profiler_cost(traced.values(), latency, queued=capture.queued),
        *capture.checks,
    ]
    label = f"{BACKENDS.get(backend, backend)} {precision}"
    ran = precision_.kernel_time(ops)
    claims = backend in precision_.CLAIMING
    checks += filter(None, [precision_.check(precision, ran, claims=claims, label=label)])
    table = of_ops(ops, name, capture.described)
    meta = optional(run.file("captures", f"{name}.trace.meta.json"))
    host = capture_.read(capture.raw, meta)
    side = SideData(
        key=f"engine/{name}/inference",
        side="engine",
        label=label,
        precision=precision,
        phase="inference",
        backend=backend,
        source=capture.raw.name,
        ops=ops,
        labels=labels(ops, "no module"),
        latency_ns=unprofiled,
        target=latency.get("target"),
        processes=series.sizes(latency),
        traced_ns=traced,
        queued_ns=latency_.queued(latency),
        queued_processes=series.sizes(latency, "queued_n"),
        device={**latency_.device(latency), **engine_ops.on_cpu(run, name)},
        checks=checks,
        parity=parity(run, name),
        precision_run=ran.share if ran and ran.told() else None,
        layers=table,
        floors=floors_.of_engine(run, precision, backend, table),
        host=capture_.block(
            host,
            ops,
            unprofiled,
            latency_.queued(latency),
            cuda_graph=bool((latency.get("facts") or {}).get("cuda_graph")),
        ),
        warned=capture_.warned(host),
        nodes=capture.nodes,
        rebuild_noise=optional(run.file("captures", f"{name}.rebuild.json")).get(
            "relative_difference"
        ),
    )
    return Captured([side], ops)


def parity(run: Run, name: str) -> dict[str, Any] | None:
    """The engine's outputs against eager's; null where they were not compared."""
    found = optional(run.file("captures", f"{name}.accuracy.json"))
    if not found:
        return None
    model = optional(run.file("export", "model.json"))
    kept = {k: found.get(k) for k in ("max_abs", "max_rel", "cosine", "top1", "reference")}
    kept["random_weights"] = None if "weights" not in model else model["weights"] == "random"
    return kept


def by_iteration(ops: pa.Table, samples: Sequence[int] | None) -> dict[int, int]:
    """Latency of the profiled run by iteration; empty where the two do not fit together.

    The worker counts measured runs from 0, as readers do after the warm-up. Another number of
    runs in the trace than in the list means that some were not recorded: then nothing is joined.
    """
    if not samples:
        return {}
    numbers = set(pc.unique(ops["iteration"].drop_null()).to_pylist())
    return dict(enumerate(samples)) if numbers == set(range(len(samples))) else {}
