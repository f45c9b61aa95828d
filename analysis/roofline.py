"""Roofline: measured FLOP and bytes of each layer and module against the device's peaks.

What bounds a layer (`bound`), by the share of its measured time that each resource would need
alone, at the device's peak:

- tensor: tensor-core FLOP / tensor peak of their precision; fp32: FLOP of the ordinary cores
  (half precision at its own rate) / their peak; memory: DRAM bytes / DRAM bandwidth;
- the largest share, if it is at least `BOUND` (60 %: below it NVIDIA's SpeedOfLight section, too,
  speaks of latency);
- else `launch`, if its kernels last less than `SHORT_NS` each: starting and draining the grid is
  then most of it; else `latency`.

It is null where a share is unknown that could decide. The duration is that of ncu's replayed,
serialised kernels. Counts: https://docs.nvidia.com/nsight-compute/ProfilingGuide/#roofline-charts
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from . import roofline_floor
from .counters_rules import DURATION
from .devices import Device
from .roofline_floor import Floor

BOUND = 0.6
SHORT_NS = 5_000

BYTES = "dram__bytes.sum"
_SASS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
# FLOP per thread instruction. Half-precision instructions work on pairs (HADD2, HMUL2, HFMA2), as
# in NVIDIA's SpeedOfLight_HierarchicalHalfRooflineChart.
_FP32 = {"fadd": 1, "fmul": 1, "ffma": 2}
_FP16 = {"hadd": 2, "hmul": 2, "hfma": 4}
# "# of math ops executed in Tensor path": a multiply-add is two.
TENSOR = {
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum": "tf32",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum": "bf16",
    "sm__ops_path_tensor_src_fp16_dst_fp32.sum": "fp16",
    "sm__ops_path_tensor_src_fp16_dst_fp16.sum": "fp16",
}
# For a capture to ask for. Those of TENSOR exist from compute capability 8.0 on: ncu refuses a
# name that the chip does not have, so ask for those that `ncu --query-metrics` lists.
METRICS: tuple[str, ...] = (
    DURATION,
    BYTES,
    *(_SASS.format(op) for op in (*_FP32, *_FP16)),
    *TENSOR,
    "sm__cycles_elapsed.avg.per_second",
)

TABLE = pa.schema(
    [
        ("name", pa.string()),  # layer label, or module path
        ("kernels", pa.int64()),
        ("duration_ns", pa.float64()),  # ncu's, never a latency
        ("flop_tensor", pa.float64()),
        ("flop_fp32", pa.float64()),
        ("flop_fp16", pa.float64()),
        ("flop", pa.float64()),
        ("bytes", pa.float64()),
        ("intensity", pa.float64()),  # FLOP per DRAM byte
        ("flop_per_second", pa.float64()),
        ("share_tensor", pa.float64()),
        ("share_fp32", pa.float64()),
        ("share_memory", pa.float64()),
        ("bound", pa.string()),
        ("why", pa.string()),
        ("floor_flop", pa.float64()),
        ("floor_bytes", pa.float64()),
        ("floor_ns", pa.float64()),
        ("distance", pa.float64()),  # duration over floor
    ]
)


@dataclass(frozen=True)
class Work:
    """What was measured of one layer or module; null is not measured."""

    duration_ns: float | None
    bytes: float | None
    tensor: Mapping[str, float | None]  # FLOP by precision
    fp32: float | None
    fp16: float | None
    kernels: int | None = None


def work(values: Mapping[str, float | None], kernels: int | None = None) -> Work:
    """FLOP and bytes from metric values in base units (sums over the layer's kernels).

    A precision of the tensor cores that was not asked for is unknown only where all are: a chip
    has fewer of them than the list.
    """

    def added(weights: Mapping[str, int]) -> float | None:
        parts = [(values.get(_SASS.format(op)), w) for op, w in weights.items()]
        return None if any(v is None for v, _ in parts) else sum((v or 0) * w for v, w in parts)

    tensor: dict[str, float | None] = {}
    for metric, precision in TENSOR.items():
        if metric in values:
            value, before = values[metric], tensor.get(precision, 0.0)
            tensor[precision] = None if value is None or before is None else before + value
    return Work(
        values.get(DURATION), values.get(BYTES), tensor, added(_FP32), added(_FP16), kernels
    )


def row(name: str, done: Work, device: Device | None, floor: Floor | None = None) -> dict[str, Any]:
    """One row of `TABLE`."""
    shares = _shares(done, device)
    bound, why = _bound(done, shares)
    tensor = _sum(done.tensor.values()) if done.tensor else None
    flop = _sum((tensor, done.fp32, done.fp16))
    known = flop is not None and done.duration_ns
    floor_ns = None if floor is None or device is None else roofline_floor.time_ns(floor, device)
    return {
        "name": name,
        "kernels": done.kernels,
        "duration_ns": done.duration_ns,
        "flop_tensor": tensor,
        "flop_fp32": done.fp32,
        "flop_fp16": done.fp16,
        "flop": flop,
        "bytes": done.bytes,
        "intensity": flop / done.bytes if flop is not None and done.bytes else None,
        "flop_per_second": flop / done.duration_ns * 1e9 if known else None,  # type: ignore[operator]
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
    """`TABLE` of the layers of `counters_sums.per_layer`; `floors` by label."""
    values: dict[str, dict[str, float | None]] = {}
    kernels: dict[str, int] = {}
    for r in _measured(layers):
        values.setdefault(r["layer"], {})[r["metric"]] = r["value"]
        kernels[r["layer"]] = r["kernels"]
    rows = [
        row(name, work(v, kernels[name]), device, (floors or {}).get(name))
        for name, v in values.items()
    ]
    return pa.Table.from_pylist(rows, schema=TABLE)


def of_modules(modules: pa.Table, device: Device | None) -> pa.Table:
    """`TABLE` of what runs wholly inside each module (`counters_sums.per_module`, `own`).

    Modules without a layer of their own are left out: they share all that they run.
    """
    values: dict[str, dict[str, float | None]] = {}
    for r in _measured(modules):
        if r["own_layers"]:
            values.setdefault(r["module"], {})[r["metric"]] = r["own"]
    rows = [row(name, work(v), device) for name, v in values.items()]
    return pa.Table.from_pylist(rows, schema=TABLE)


def _measured(table: pa.Table) -> list[dict[str, Any]]:
    wanted = set(METRICS)
    return [r for r in table.to_pylist() if r["metric"] in wanted]


def _shares(done: Work, device: Device | None) -> dict[str, float | None]:
    """Share of the duration that each resource needs at its peak."""
    if device is None or not done.duration_ns:
        return dict.fromkeys(("tensor", "fp32", "memory"))
    seconds = done.duration_ns / 1e9
    tensor = [_over(v, device.tensor.get(p)) for p, v in done.tensor.items()]
    # Data sheets do not list half precision outside tensor cores; it is at least that of fp32.
    half = _over(done.fp16, device.fp16 or device.fp32)
    needs = {
        "tensor": _sum(tensor) if tensor else None,
        "fp32": _sum((_over(done.fp32, device.fp32), half)),
        "memory": _over(done.bytes, device.bandwidth),
    }
    return {k: None if v is None else v / seconds for k, v in needs.items()}


def _bound(done: Work, shares: Mapping[str, float | None]) -> tuple[str | None, str]:
    known = {k: v for k, v in shares.items() if v is not None}
    unknown = sorted(shares.keys() - known.keys())
    top = max(known, key=known.__getitem__, default=None)
    if top is not None and known[top] >= BOUND:
        return top, f"{known[top]:.0%} of its time at the peak of {top}"
    if unknown:
        return None, f"not measured: {', '.join(unknown)}"
    said = ", ".join(f"{k} {v:.0%}" for k, v in known.items())
    if done.kernels and done.duration_ns and done.duration_ns / done.kernels < SHORT_NS:
        mean = done.duration_ns / done.kernels / 1e3
        return "launch", f"{mean:.1f} us a kernel; no resource near its peak ({said})"
    return "latency", f"no resource near its peak ({said})"


def _over(amount: float | None, rate: float | None) -> float | None:
    if amount == 0:
        return 0.0
    return None if amount is None or not rate else amount / rate


def _sum(values: Any) -> float | None:
    found = list(values)
    return None if any(v is None for v in found) else float(sum(found))
