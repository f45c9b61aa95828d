"""What a GPU can do at most: from its own attributes in a capture, else from NVIDIA's data sheets.

Rates per SM and clock are those of the CUDA C++ Programming Guide ("Arithmetic Instructions",
throughput per clock cycle per multiprocessor) and of the architecture white papers; a fused
multiply-add is two FLOP, tensor rates are dense with FP32 accumulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

_PREFIX = "device__attribute_"


@dataclass(frozen=True)
class Device:
    """A GPU's sizes and peak rates; None is unknown. FLOP/s and bytes/s.

    `tensor` by precision (tf32, fp16, bf16). `fp16` is that of the ordinary cores. `source` says
    where the numbers are from.
    """

    name: str
    source: str
    capability: str | None = None
    sms: int | None = None
    l2_bytes: int | None = None
    clock_hz: float | None = None
    bandwidth: float | None = None
    fp32: float | None = None
    fp16: float | None = None
    tensor: Mapping[str, float] = field(default_factory=dict)


# FLOP per SM and clock by compute capability: fp32, fp16 outside tensor cores, tf32, fp16 tensor.
# The tensor rates of 8.6, 8.9 and 12.0 are halved on GeForce (FP32 accumulation).
_RATES: dict[str, tuple[int, int, int | None, int]] = {
    "7.0": (128, 256, None, 1024),
    "7.5": (128, 256, None, 1024),
    "8.0": (128, 512, 1024, 2048),
    "8.6": (256, 256, 512, 1024),
    "8.9": (256, 256, 512, 1024),
    "9.0": (256, 512, 2048, 4096),
    "10.0": (256, 512, 4096, 8192),
    "12.0": (256, 256, 512, 1024),
}
_NO_BF16 = ("7.0", "7.5")

_MIB = 1 << 20
_T = 1e12
# Part of the name: capability, SMs, L2 MiB, GB/s, TFLOP/s of fp32, tf32 and fp16 tensor (dense).
# The first that fits; more special names first.
_SHEETS: tuple[tuple[str, str, int, int, int, float, float | None, float], ...] = (
    ("H200", "9.0", 132, 50, 4800, 67.0, 494.7, 989.4),
    ("H100 PCIe", "9.0", 114, 50, 2039, 51.2, 378.0, 756.0),
    ("H100 NVL", "9.0", 132, 50, 3938, 60.0, 417.5, 835.0),
    ("H100", "9.0", 132, 50, 3352, 66.9, 494.7, 989.4),
    ("A100-SXM4-80GB", "8.0", 108, 40, 2039, 19.5, 156.0, 312.0),
    ("A100 80GB PCIe", "8.0", 108, 40, 1935, 19.5, 156.0, 312.0),
    ("A100", "8.0", 108, 40, 1555, 19.5, 156.0, 312.0),
    ("V100", "7.0", 80, 6, 900, 15.7, None, 125.0),
    ("L40S", "8.9", 142, 96, 864, 91.6, 183.0, 362.0),
    ("L40", "8.9", 142, 96, 864, 90.5, 90.5, 181.0),
    ("L4", "8.9", 58, 48, 300, 30.3, 60.0, 121.0),
    ("A10G", "8.6", 80, 6, 600, 31.5, 35.0, 70.0),
    ("A10", "8.6", 72, 6, 600, 31.2, 62.5, 125.0),
    ("T4", "7.5", 40, 4, 320, 8.1, None, 65.0),
    ("RTX 4090", "8.9", 128, 72, 1008, 82.6, 82.6, 165.2),
    ("RTX 3090", "8.6", 82, 6, 936, 35.6, 35.6, 71.2),
)


def of_capture(counters: pa.Table) -> Device | None:
    """The device of a capture's first launch; None where it names none.

    ncu writes the attributes into every raw page and report; a details page has none.
    """
    rows = counters.filter(pc.starts_with(counters["metric"], _PREFIX))
    if not len(rows):
        return None
    rows = rows.filter(pc.equal(rows["launch"], rows["launch"][0]))
    numbers, name = {}, None
    for row in rows.select(["metric", "value", "text"]).to_pylist():
        key = row["metric"].removeprefix(_PREFIX)
        if key == "display_name":
            name = row["text"]
        elif row["value"] is not None:
            numbers[key] = row["value"]
    return of_attributes(name or "GPU", numbers)


def of_attributes(name: str, attributes: Mapping[str, float]) -> Device:
    """Peaks from CUDA's device attributes; what they lack comes from the data sheet of `name`.

    Clocks are in kHz. Memory moves two bits per clock and line: HBM, and GDDR as CUDA reports its
    clock. Source: cudaDeviceProp in the CUDA runtime API.
    """
    get = attributes.get
    major, minor = get("compute_capability_major"), get("compute_capability_minor")
    sms, l2, clock = get("multiprocessor_count"), get("l2_cache_size"), get("clock_rate")
    memory, bus = get("memory_clock_rate"), get("global_memory_bus_width")
    sheet = of_name(name)
    device = Device(
        name,
        "device attributes of the capture; peak rates of this device are not known",
        None if major is None or minor is None else f"{major:.0f}.{minor:.0f}",
        None if sms is None else int(sms),
        None if l2 is None else int(l2),
        None if clock is None else clock * 1e3,
        None if memory is None or bus is None else memory * 1e3 * 2 * bus / 8,
    )
    rates = _RATES.get(device.capability or "")
    if rates is None or sms is None or clock is None:
        return sheet or device
    fp32, fp16, tf32, tensor = (None if r is None else r * (sms * clock * 1e3) for r in rates)
    if device.capability in ("8.6", "8.9", "12.0") and "GeForce" in name:
        tf32, tensor = (None if r is None else r / 2 for r in (tf32, tensor))
    bf16 = None if device.capability in _NO_BF16 else tensor
    known = {"tf32": tf32, "fp16": tensor, "bf16": bf16}
    if sheet is not None and device.l2_bytes is None:
        device = replace(device, l2_bytes=sheet.l2_bytes)
    if sheet is not None and device.bandwidth is None:
        device = replace(device, bandwidth=sheet.bandwidth)
    return replace(
        device,
        source="device attributes of the capture, at the highest clock",
        fp32=fp32,
        fp16=fp16,
        tensor={k: v for k, v in known.items() if v is not None},
    )


def of_name(name: str) -> Device | None:
    """A device by (part of) its marketing name, from NVIDIA's data sheets; None if not listed."""
    words = f" {name.replace('-', ' ')} ".casefold()
    for part, capability, sms, l2, bandwidth, fp32, tf32, fp16 in _SHEETS:
        if f" {part.replace('-', ' ')} ".casefold() in words:
            tensor = {"tf32": tf32, "fp16": fp16}
            if capability not in _NO_BF16:
                tensor["bf16"] = fp16
            return Device(
                name,
                f"NVIDIA's data sheet of the {part}",
                capability,
                sms,
                l2 * _MIB,
                None,
                bandwidth * 1e9,
                fp32 * _T,
                None,
                {k: v * _T for k, v in tensor.items() if v is not None},
            )
    return None
