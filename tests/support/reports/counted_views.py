"""A model of two blocks with hardware counters whose every number is worked out by hand.

The device: 100 SMs of compute capability 9.0 at 1 GHz, so 25.6 TFLOP/s fp32 and 409.6 TFLOP/s fp16
tensor; memory of 4000 bit at 1 GHz, two bits a clock: 1 TB/s. All kernels ran at its highest clock.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import rendering
import report_views as views

from layerline.analysis.model.counters import CountedSide
from layerline.analysis.model.layer import Floor
from layerline.analysis.roofline import bound
from layerline.core.roofline_metrics import BYTES, CLOCK, DURATION, FP16, FP32, SASS
from layerline.core.tables import table

KEY = "engine/fp16.tensorrt/inference"
SOURCE = "fp16.tensorrt.ncu-rep"
TENSOR = "sm__ops_path_tensor_src_fp16.sum"
ZERO = [
    *(SASS.format(op) for op in (*FP32, *FP16)),
    "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
]
ATTRIBUTES = {
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "multiprocessor_count": 100,
    "clock_rate": 1_000_000,
    "memory_clock_rate": 1_000_000,
    "global_memory_bus_width": 4000,
    "l2_cache_size": 1 << 20,
}
# layer: modules, kernel, us by nsys, floors (FLOP, bytes); then what ncu counted: ns, FLOP, bytes.
LAYERS: dict[str, tuple[list[str], str, int, tuple[float, float] | None]] = {
    "h_0_fc/Gemm": (["h.0.fc"], "gemm", 9, (2.56e9, 1e6)),
    "h_0_ln/Norm": (["h.0.ln"], "norm", 18, (1e6, 16e6)),
    "h_0_add/Add": (["h.0"], "add", 1, None),
    "h_1_fc/Gemm": (["h.1.fc"], "gemm", 9, (2.56e9, 1e6)),
    "h_1_ln/Norm": (["h.1.ln"], "norm", 18, (1e6, 16e6)),
    "h_1_add/Add": (["h.1"], "add", 1, None),
}
# 2.56e9 FLOP at 409.6e12 take 6.25 us: 62.5 % of 10 us. 16e6 bytes at 1e12 take 16 us: 80 % of 20.
COUNTED = {
    "h_0_fc/Gemm": (10_000.0, 2.56e9, 1.3e6),
    "h_0_ln/Norm": (20_000.0, 0.0, 16e6),
    "h_0_add/Add": (2_000.0, 0.0, 1e5),
    "h_1_fc/Gemm": (11_000.0, 2.56e9, 1.3e6),
}
OF = {"h_1_ln/Norm": "h_0_ln/Norm", "h_1_add/Add": "h_0_add/Add"}


def counters(left_out: tuple[str, ...] = (), kernel: str | None = None) -> pa.Table:
    """The joined counters: `OF` has the layers that were given another's; metrics `left_out`."""
    rows: list[dict[str, Any]] = []
    for number, (layer, (modules, name, _, _)) in enumerate(LAYERS.items()):
        given = OF.get(layer)
        ns, flop, size = COUNTED[given or layer]
        values = {DURATION: (ns, "ns"), BYTES: (size, "byte"), TENSOR: (flop, None)}
        values |= dict.fromkeys(ZERO, (0.0, "inst"))
        values[CLOCK] = (1e9, "cycle/second")
        values["sm__inst_executed.avg.per_cycle_active"] = (1.5, "inst/cycle")
        values["sm__warps_active.avg.pct_of_peak_sustained_active"] = (25.0, "%")
        values["sm__inst_issued.avg.pct_of_peak_sustained_active"] = (40.0, "%")
        values["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"] = (70.0, "%")
        values["sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active"] = (3.0, "%")
        if number == 0:
            values |= {f"device__attribute_{k}": (float(v), None) for k, v in ATTRIBUTES.items()}
        rows += [
            {
                "source": SOURCE,
                "layer": layer,
                "kernel": kernel or name,
                "launch": number,
                "representative_of": None if given is None else list(LAYERS).index(given),
                "metric": metric,
                "value": value,
                "unit": unit,
                "nodes": [layer],
                "modules": modules,
                "rule": "name",
            }
            for metric, (value, unit) in values.items()
            if metric not in left_out
        ]
    return table("counters", rows)


def plan() -> dict[str, Any]:
    """Which launches are the same work: block 1's are block 0's."""
    kinds = [0, 1, 2, 0, 1, 2]
    return {"launches": [{"index": i, "key": k} for i, k in enumerate(kinds)]}


def counted(
    table: pa.Table | None = None, document: dict[str, Any] | None = None, **parts: Any
) -> CountedSide:
    """The counters `table` of the document's first side. `parts`: of the capture, for others than
    the floors and the plan of these layers."""
    shown = rendering.comparison(document or view())
    floors = {
        layer: Floor(*least) for layer, (_, _, _, least) in LAYERS.items() if least is not None
    }
    whole = {"floors": floors, "plan": plan(), "clock_control": "base", **parts}
    capture = bound.Capture(shown.sides[0], counters() if table is None else table, **whole)
    return bound.side(capture, shown.layers, shown.modules)


def view(kernels: int = 1) -> dict[str, Any]:
    """The view without counters; each layer ran `kernels` kernels in each of ten iterations."""
    total = sum(us for _, _, us, _ in LAYERS.values()) * 1000
    found = views.empty()
    found["title"] = "two blocks"
    found["sides"] = [views.side(KEY, "TensorRT fp16", "fp16", "inference", total * 2, total)]
    paths = ["", "h", *(f"h.{b}{p}" for b in (0, 1) for p in ("", ".fc", ".ln"))]
    for path in paths:
        inside = [
            us
            for modules, _, us, _ in LAYERS.values()
            if not path or all(m == path or m.startswith(path + ".") for m in modules)
        ]
        found["modules"].append(
            {
                "id": f"module:{path}",
                "parent": f"module:{path.rpartition('.')[0]}" if path else None,
                "name": path.rpartition(".")[2],
                "path": path,
                "module_class": None,
                "kind": "module",
                "depth": path.count(".") + 1 if path else 0,
                "members": [],
                "costs": {KEY: views.cost(sum(inside) * 1000, 0, total)},
                "layers": [],
            }
        )
    for i, (layer, (modules, _, us, _)) in enumerate(LAYERS.items()):
        found["layers"].append(
            {
                "id": f"{KEY}#{i}",
                "side": KEY,
                "layer": layer,
                "kind": "kernel",
                "rule": "name",
                "nodes": [layer],
                "modules": modules,
                "calls": 10,
                "kernels": 10 * kernels,
                "time": views.estimate(us * 1000, n=10),
                "share": us * 1000 / total,
                "precision_in": None,
                "precision_out": None,
                "compute_precision": "fp16",
                "tactic": None,
            }
        )
    return found


def counted_view(kernel: str | None = None) -> dict[str, Any]:
    """The view with its counters, and an engine that has none."""
    found = view()
    found["counters"] = {
        "sides": [counted(counters(kernel=kernel), found)],
        "uncounted": [
            {
                "key": "engine/fp32.tensorrt/inference",
                "label": "TensorRT fp32",
                "why": "ncu may not read performance counters here (ERR_NVGPUCTRPERM)",
                "fix": "run ncu as root",
                "refused": True,
            }
        ],
    }
    return found
