"""The list of layers in a verbose build log, in the engine inspector's JSON form.

Without a GPU an engine cannot be loaded, so nothing can inspect it; TensorRT-RTX 1.7 prints its
layers while it builds, as one verbose message: ``Layers:`` and a line per layer,

    Name: N, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [1,64], Strides: [64,1],
    StrideOrder: [1,0], Datatype: Half, Format: (Linear) Row major linear format }], Constants:
    [ ... ], Outputs: [ ... ], TacticName: T, StreamId: 0, Metadata: [ONNX Layer: A]<U+001F>...

Names are not quoted and may hold commas; a value ends where the next key begins. Standard library
only; runs on Python 3.10. Source: logs of TensorRT-RTX 1.7.1.
"""

from __future__ import annotations

import re
from typing import Any

BEGIN = "Layers:\n"
_KEY = re.compile(
    r"(?:^|, )(Name|LayerType|Inputs|Constants|Outputs|TacticName|StreamId|Metadata): ?"
)
_TENSOR = re.compile(
    r"\{ Name: (.*?), Dimensions: \[([-\d, ]*)\].*?, Datatype: (\w+), Format: (.*?) \}"
)


def document(message: str | None) -> dict[str, Any] | None:
    """``{"Layers": [...]}`` of a log message, or None where it is none."""
    if message is None or not message.startswith(BEGIN):
        return None
    # Not str.splitlines: it cuts at U+001E, with which Metadata joins names.
    lines = message[len(BEGIN) :].replace("\r\n", "\n").split("\n")
    return {"Layers": [_layer(line) for line in lines if line.startswith("Name: ")]}


def _layer(line: str) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    keys = [m for m in _KEY.finditer(line) if _depth(line, m.start()) == 0]
    for i, key in enumerate(keys):
        end = keys[i + 1].start() if i + 1 < len(keys) else len(line)
        value = line[key.end() : end]
        tensors = key[1] in ("Inputs", "Constants", "Outputs")
        layer.setdefault(key[1], _tensors(value) if tensors else value)
    return layer


def _depth(line: str, end: int) -> int:
    return line.count("{", 0, end) - line.count("}", 0, end)


def _tensors(text: str) -> list[dict[str, Any]]:
    return [
        {
            "Name": name,
            "Dimensions": [int(n) for n in dimensions.split(",") if n.strip()],
            "Format/Datatype": kind,
            "Format": layout,
        }
        for name, dimensions, kind, layout in _TENSOR.findall(text)
    ]
