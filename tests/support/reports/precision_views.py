"""Eighteen sides: two engines, eager inference, forward, backward and step in three precisions.

The model has two modules of 2 and 1 units of time; `b` shares 3 µs more with nobody in particular.
A unit is the side's own (`unit`). The step has an optimizer besides.
"""

from __future__ import annotations

from typing import Any

import report_views as views

PRECISIONS = ("fp32", "tf32", "fp16")
# Nanoseconds of a unit by kind of side; tf32 takes half of it, fp16 a quarter.
UNIT = {
    "onnxruntime-cuda": 8_000,
    "tensorrt": 4_000,
    "inference": 16_000,
    "forward": 20_000,
    "backward": 400_000,
    "step": 420_000,
}
SCALE = {"fp32": 4, "tf32": 2, "fp16": 1}
NAMES = {"onnxruntime-cuda": "ONNX Runtime CUDA", "tensorrt": "TensorRT"}
WORDS = {"inference": "", "step": " training step"}
OPTIMIZER = 100_000


def key(precision: str, kind: str) -> str:
    """The key of a side: an engine by its backend, eager by its phase."""
    if kind in NAMES:
        return f"engine/{precision}.{kind}/inference"
    return f"eager/{precision}/{kind}"


def unit(precision: str, kind: str) -> int:
    """Nanoseconds of a unit on that side."""
    return UNIT[kind] * SCALE[precision] // 4


def _label(precision: str, kind: str) -> str:
    if kind in NAMES:
        return f"{NAMES[kind]} {precision}"
    return f"eager {precision}{WORDS.get(kind, f' {kind}')}"


def _side(precision: str, kind: str) -> dict[str, Any]:
    u = unit(precision, kind)
    engine = kind in NAMES
    made = views.side(
        key(precision, kind),
        _label(precision, kind),
        precision,
        "inference" if engine else kind,
        4 * u,
        3 * u,
        backend=kind if engine else "torch",
        precision_run={precision: 0.75, "unknown": 0.25},
    )
    if not engine:
        made["checks"][2] |= {"ok": None, "text": "The profiled run took 25 % longer."}
    made["host"] = {
        "iterations": 6,
        "values": {"issue": views.estimate(5 * u), "launches": views.estimate(7)},
        "missing": {
            "cuDNN": "nsys could not trace it (Tracing cuDNN version 9 is not supported)",
            "cuBLAS": "asked for; nsys recorded no call into cuBLAS",
        },
        "traced_share": 0.5,
        "unprofiled_share": 0.25,
        "unprofiled_source": "busy",
        "launch_bound": False,
        "confirmed": None,
    }
    return made


def three_precisions() -> dict[str, Any]:
    """The view, its sides in the order in which a run is read: engines first, then eager."""
    pairs = [(p, k) for k in NAMES for p in PRECISIONS]
    pairs += [(p, k) for p in ("fp16", "fp32", "tf32") for k in UNIT if k not in NAMES]
    view = views.empty()
    view["title"] = "two modules"
    view["sides"] = [_side(p, k) for p, k in pairs]
    whole = {(p, k): 3 * unit(p, k) for p, k in pairs}

    def row(path: str, units: int, *, shared: int = 0) -> dict[str, Any]:
        return {
            "id": f"module:{path}",
            "parent": "module:" if path else None,
            "name": path,
            "path": path,
            "module_class": "Linear" if path else "Model",
            "kind": "module",
            "depth": 1 if path else 0,
            "members": [],
            "costs": {
                key(p, k): views.cost(units * unit(p, k), shared, whole[p, k]) for p, k in pairs
            },
            "layers": [],
        }

    view["modules"] = [row("", 3), row("a", 2), row("b", 1, shared=3_000)]
    optimizer = {**row("optimizer", 0), "id": "row:optimizer", "parent": None, "kind": "row"}
    optimizer["costs"] = {key(p, "step"): views.cost(OPTIMIZER, 0) for p in PRECISIONS}
    view["modules"].append({**optimizer, "path": "", "module_class": None, "depth": 0})
    view["kinds"] = [
        {"name": m["path"], "module_class": "Linear", "count": 1, "costs": m["costs"]}
        for m in view["modules"][1:3]
    ]
    view["manifest"] = {
        "model": {"model": "two"},
        "machine": {"before": {"cpu": "Example CPU", "load_1min": 0.5}, "after": None},
        "versions": {"torch": "2.13.0"},
        "steps": [
            {"step": f"profile/{i}", "command": ["layerline", "profile"], "options": {"n": i}}
            for i in range(50)
        ],
        "files": {"export/fp32.onnx": "0123456789abcdef" * 4},
    }
    return view
