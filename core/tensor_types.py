"""Element types of tensors, from the words that tools use for them to the project's.

`Row major linear FP16 format`, `Channel major FP32 format where channel % 4 == 0` (TensorRT 8
and later), `Half`, `Float` (Myelin layers, TensorRT 10 and later, and weights), `float8e4m3fn`
(ONNX Runtime's profile), and `N/A due to dynamic shapes`, which is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# The floating ones, widest first.
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8")
_OWN = ("fp32", "fp16", "bf16", "fp8", "fp4", "int8", "uint8", "int4", "int32", "int64", "bool")
_NAMES = {
    **{name: name for name in _OWN},
    "float": "fp32",
    "float32": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "e4m3": "fp8",
    "float8": "fp8",
    "double": "fp64",
    "float64": "fp64",
    "float4": "fp4",
}
_WORD = re.compile(r"[A-Za-z]+\d*(?:m\d)?")


def precision_of(text: str | None) -> str | None:
    """The precision in a Format/Datatype string, e.g. "fp16"; None where it names none.

    >>> precision_of("Channel major FP16 format where channel % 8 == 0")
    'fp16'
    """
    for word in _WORD.findall(text or ""):
        known = _NAMES.get(word.lower())
        if known is not None:
            return known
    return None


def joined(precisions: Iterable[str | None]) -> str | None:
    """Several tensors' precisions as one text, each once, in order: ``fp16+int32``.

    A tensor of unknown precision among known ones shows as ``?``; all unknown, or none, is None.
    """
    distinct = list(dict.fromkeys("?" if p is None else p for p in precisions))
    return None if distinct in ([], ["?"]) else "+".join(distinct)
