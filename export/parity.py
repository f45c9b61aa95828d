"""Does the ONNX file compute what the eager model computes? On the same tokens, in numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import CheckFailed
from ..core.machine import usable_cpus

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16
TOLERANCE = 1e-4  # of max_abs, fp32 only
# What a lower precision explains, of max_rel and cosine; beyond it a file computes something else.
LARGEST_SHARE, LEAST_COSINE = 0.5, 0.9
_TRACED = (
    "look for writes into views, random numbers and code that asks whether it is traced; "
    "see docs/models.md"
)


def compare(reference: Array, got: Array) -> dict[str, Any]:
    """How far `got` is from `reference`: arrays of one shape, [..., features].

    max_abs, max_rel, cosine, top1, n: see `core.accuracy.figures`; all but n are None when a value
    is NaN or infinite (`non_finite`: how many of `got` are where the reference is not).
    """
    from ..core.accuracy.figures import of_output

    if reference.shape != got.shape:
        raise CheckFailed(f"the output has shape {got.shape}, eager {reference.shape}")
    found = of_output(got, reference)
    non_finite = found["nonfinite"] + found["reference_nonfinite"]
    known = {k: None if non_finite else found[k] for k in ("max_abs", "max_rel", "cosine", "top1")}
    return {**known, "n": found["n"], "non_finite": found["nonfinite"]}


def run_file(path: Path, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The outputs of an ONNX file in ONNX Runtime on the CPU, its optimisations off."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = usable_cpus()
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    wanted = {i.name: i.type for i in session.get_inputs()}
    given = {k: _of_type(v, wanted[k]) for k, v in inputs.items() if k in wanted}
    values = [v.numpy() for v in session.run_with_ort_values(names, given)]
    return dict(zip(names, values, strict=True))


def refusals() -> tuple[type[Exception], ...]:
    """What `run_file` raises where ONNX Runtime does not take a file, or fails in it."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return tuple(
        t for t in vars(state).values() if isinstance(t, type) and issubclass(t, Exception)
    )


def operator(error: str) -> str:
    """The operator that ONNX Runtime says it does not run; "" where it names none."""
    found = re.search(r"of operator \((\w+)\)|implementation for (\w+)\(", error)
    return (found[1] or found[2]) if found else ""


def _of_type(array: Array, type_: str) -> Any:
    """An OrtValue of an ONNX Runtime's type. Floating inputs are kept in fp32."""
    import numpy as np
    import onnxruntime as ort
    import torch

    if type_ == "tensor(bfloat16)":
        bits = torch.from_numpy(array).to(torch.bfloat16).view(torch.uint16).numpy()
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _BFLOAT16)
    if type_ == "tensor(float16)":
        array = array.astype(np.float16)
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def entry(
    reference: Mapping[str, Array],
    got: Mapping[str, Array] | None,
    *,
    precision: str,
    tolerance: float,
    facts: Mapping[str, Any],
) -> dict[str, Any]:
    """parity.json's entry for one file: the main (first) output's figures, and each output's.

    `got` None: this machine's ONNX Runtime cannot run the file; everything measured is None.
    `facts` say what was compared (reference, random_weights, reason).
    """
    enforced = precision == "fp32"
    outputs = {} if got is None else {k: compare(v, got[k]) for k, v in reference.items()}
    main = next(iter(outputs.values()), dict.fromkeys(("max_abs", "max_rel", "cosine", "top1")))
    ok: bool | None = None
    if got is not None:
        # a tolerance exceeded is tested as "not within": NaN is never within
        ok = all(o["non_finite"] == 0 and o["max_abs"] is not None for o in outputs.values())
        ok = ok and not (enforced and any(not o["max_abs"] <= tolerance for o in outputs.values()))
        floats = [outputs[k] for k, v in reference.items() if v.dtype.kind == "f"]
        ok = ok and (enforced or not any(_another(o) for o in floats))
    return {
        **main,
        "n": main.get("n", 0),
        "tolerance": tolerance if enforced else None,
        "enforced": enforced,
        "ok": ok,
        **facts,
        "outputs": outputs,
    }


def _another(figures: Mapping[str, Any]) -> bool:
    """Whether an output is another function of the inputs, whatever the precision. Figures of
    outputs that are 0 throughout are None and say nothing."""
    share, cosine = figures["max_rel"], figures["cosine"]
    return (share is not None and share > LARGEST_SHARE) or (
        cosine is not None and cosine < LEAST_COSINE
    )


def fault(parity: Mapping[str, Any], name: str) -> CheckFailed:
    """What is wrong with a file whose entry is not ok, and what to do about one in fp32."""
    bad = parity["outputs"]
    for output, figures in bad.items():
        if figures["non_finite"]:
            return CheckFailed(
                f"{name}: {figures['non_finite']} of {figures['n']} values of {output} are NaN or "
                "infinite in ONNX Runtime",
                fix=_TRACED,
            )
    if any(o["max_abs"] is None for o in bad.values()):
        return CheckFailed(
            f"{name}: the eager fp32 model itself gives NaN or infinity", fix="check its weights"
        )
    worst = max(o["max_abs"] for o in bad.values())
    if any(_another(o) for o in bad.values()):
        share = max(o["max_rel"] or 0.0 for o in bad.values())
        return CheckFailed(
            f"{name}: computes something else than eager fp32: it differs by {worst:.3g}, "
            f"{share:.2g} times the largest value",
            fix=_TRACED,
        )
    return CheckFailed(
        f"{name}: differs from eager fp32 by {worst:.3g}, more than {parity['tolerance']:.3g}",
        fix="raise --tolerance if that is acceptable for this model",
    )
