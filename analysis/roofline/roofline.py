"""Roofline: measured FLOP and bytes of each layer and module against the device's peaks.

What bounds a layer (`bound`), by the share of its measured time that each resource would need
alone, at the device's peak. Compute peaks are those at the clock the kernels ran at, where it was
measured: under load a GPU lowers it, and ncu may lock it.

- tensor: tensor-core FLOP / tensor peak of their precision; fp32: FLOP of the ordinary cores
  (half precision at its own rate) / their peak; memory: DRAM bytes / DRAM bandwidth;
- the largest share, if it is at least `BOUND` (60 %: below it NVIDIA's SpeedOfLight section, too,
  speaks of latency);
- else `launch`, if its kernels last less than `SHORT_NS` each: starting and draining the grid is
  then most of it; else `latency`.

It is None where a share is unknown that could decide. The duration is that of ncu's replayed,
serialised kernels. Counts: https://docs.nvidia.com/nsight-compute/ProfilingGuide/#roofline-charts
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...core.roofline_metrics import BYTES, CLOCK, DURATION, FP16, FP32, METRICS, SASS, TENSOR
from ...core.tables import schema
from ..formatting import percent
from ..model.layer import Floor
from . import floor as floor_
from .devices import Device
from .flop import added

BOUND = 0.6
SHORT_NS = 5_000

# `name`: layer label, or module path; `duration_ns`: ncu's, never a latency; `intensity`: FLOP per
# DRAM byte; `distance`: duration over floor.
TABLE = schema(
    "name text, kernels int, duration_ns real, clock_hz real, flop_tensor real, flop_fp32 real, "
    "flop_fp16 real, flop real, bytes real, intensity real, flop_per_second real, "
    "share_tensor real, share_fp32 real, share_memory real, bound text, why text, "
    "floor_flop real, floor_bytes real, floor_ns real, distance real"
)


@dataclass(frozen=True)
class Work:
    """What was measured of one layer or module; None is not measured."""

    duration_ns: float | None
    bytes: float | None
    tensor: Mapping[str, float | None]  # FLOP by precision
    fp32: float | None
    fp16: float | None
    kernels: int | None = None
    clock_hz: float | None = None  # of the SMs while the kernels ran


def work(values: Mapping[str, float | None], kernels: int | None = None) -> Work:
    """FLOP and bytes from metric values in base units (sums over the layer's kernels).

    Tensor FLOP are known where those of each precision are: one that was not measured may be all
    there is.
    """

    def instructions(weights: Mapping[str, int]) -> float | None:
        counts = {op: values.get(SASS.format(op)) for op in weights}
        return added(None if n is None else n * weights[op] for op, n in counts.items())

    def first(groups: tuple[tuple[str, ...], ...]) -> float | None:
        sums = (added(values.get(m) for m in group) for group in groups)
        return next((s for s in sums if s is not None), None)

    tensor = {precision: first(groups) for precision, groups in TENSOR.items()}
    return Work(
        duration_ns=values.get(DURATION),
        bytes=values.get(BYTES),
        tensor=tensor,
        fp32=instructions(FP32),
        fp16=instructions(FP16),
        kernels=kernels,
        clock_hz=values.get(CLOCK),
    )


def missing(known: Collection[str]) -> list[str]:
    """The metrics that a capture lacks for a roofline; of alternatives, those of the first."""
    needed = [DURATION, BYTES, *(SASS.format(op) for op in (*FP32, *FP16))]
    for groups in TENSOR.values():
        if not any(all(m in known for m in group) for group in groups):
            needed += groups[0]
    return [m for m in needed if m not in known]


def row(name: str, done: Work, device: Device | None, floor: Floor | None = None) -> dict[str, Any]:
    """One row of `TABLE`."""
    shares = _shares(done, device)
    bound, why = _bound(done, shares)
    tensor = added(done.tensor.values())
    flop = added((tensor, done.fp32, done.fp16))
    floor_ns = None if floor is None or device is None else floor_.time_ns(floor, device)
    per_second = None
    if flop is not None and done.duration_ns:
        per_second = flop / done.duration_ns * 1e9
    return {
        "name": name,
        "kernels": done.kernels,
        "duration_ns": done.duration_ns,
        "clock_hz": done.clock_hz,
        "flop_tensor": tensor,
        "flop_fp32": done.fp32,
        "flop_fp16": done.fp16,
        "flop": flop,
        "bytes": done.bytes,
        "intensity": flop / done.bytes if flop is not None and done.bytes else None,
        "flop_per_second": per_second,
        **{f"share_{k}": v for k, v in shares.items()},
        "bound": bound,
        "why": why,
        "floor_flop": None if floor is None else floor.flop,
        "floor_bytes": None if floor is None else floor.bytes,
        "floor_ns": floor_ns,
        "distance": done.duration_ns / floor_ns if done.duration_ns and floor_ns else None,
    }


def of_layers(
    layers: pa.Table, device: Device | None, floors: Mapping[str, Floor | None] | None = None
) -> pa.Table:
    """`TABLE` of the layers of `sums.per_layer`; `floors` by label."""
    values: dict[str, dict[str, float | None]] = defaultdict(dict)
    kernels: dict[str, int] = {}
    measured = layers.filter(pc.is_in(layers["metric"], pa.array(METRICS)))
    for r in measured.to_pylist():
        values[r["layer"]][r["metric"]] = r["value"]
        kernels[r["layer"]] = r["kernels"]
    rows = [
        row(name, work(v, kernels[name]), device, (floors or {}).get(name))
        for name, v in values.items()
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def of_modules(modules: pa.Table, device: Device | None) -> pa.Table:
    """`TABLE` of what runs wholly inside each module (`sums.per_module`, `own`).

    Modules without a layer of their own are left out: they share all that they run.
    """
    own = modules.filter(pc.greater(modules["own_layers"], 0))
    columns = own.select(["module", "metric", "own", "own_kernels"])
    return of_layers(columns.rename_columns(["layer", "metric", "value", "kernels"]), device)


def _shares(done: Work, device: Device | None) -> dict[str, float | None]:
    """Share of the duration that each resource needs at its peak."""
    if device is None or not done.duration_ns:
        return dict.fromkeys(("tensor", "fp32", "memory"))
    seconds = done.duration_ns / 1e9
    slower = done.clock_hz / device.clock_hz if done.clock_hz and device.clock_hz else 1.0

    def compute(flop: float | None, peak: float | None) -> float | None:
        return _over(flop, None if peak is None else peak * slower)

    # Data sheets do not list half precision outside tensor cores; it is at least that of fp32.
    half = compute(done.fp16, device.fp16 or device.fp32)
    needs = {
        "tensor": added(compute(v, device.tensor.get(p)) for p, v in done.tensor.items()),
        "fp32": added((compute(done.fp32, device.fp32), half)),
        "memory": _over(done.bytes, device.bandwidth),
    }
    return {k: None if v is None else v / seconds for k, v in needs.items()}


def _bound(done: Work, shares: Mapping[str, float | None]) -> tuple[str | None, str]:
    known = {k: v for k, v in shares.items() if v is not None}
    unknown = sorted(shares.keys() - known.keys())
    top = max(known, key=known.__getitem__, default=None)
    if top is not None and known[top] >= BOUND:
        return top, f"{percent(known[top])} of its time at the peak of {top}"
    if unknown:
        return None, f"not measured: {', '.join(unknown)}"
    each = ", ".join(f"{k} {percent(v)}" for k, v in known.items())
    if done.kernels and done.duration_ns and done.duration_ns / done.kernels < SHORT_NS:
        mean = done.duration_ns / done.kernels / 1e3
        return "launch", f"{mean:.1f} us a kernel; no resource near its peak ({each})"
    return "latency", f"no resource near its peak ({each})"


def _over(amount: float | None, rate: float | None) -> float | None:
    if amount == 0:
        return 0.0
    return None if amount is None or not rate else amount / rate
