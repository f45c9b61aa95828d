"""TensorRT's engine inspector as text (LayerInformationFormat.ONELINE), also inside logs.

``Layers:`` then one line per layer, ``Name: A + B, LayerType: CaskConvolution, Inputs: [ { Name:
x, Location: Device, Dimensions: [1,3], Format/Datatype: Half }], ..., Metadata: [ONNX Layer: A]``
(detailed verbosity) or the bare name, then ``Bindings:`` and one name per line. Names are not
quoted and may hold commas, so a value ends where the next known key begins. trtexec prints the
block into its log; it blank-lines or interleaves it with log lines, which begin with ``[``.
"""

from __future__ import annotations

import re
from typing import Any

BEGIN = re.compile(r"^(?:\[[^\]]*\] *)*Layers:[ \t]*$", re.MULTILINE)
DETAILED = re.compile(r"^Name: .*?, LayerType: \w+", re.MULTILINE)
LOG_LINE = re.compile(r"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\]|&&&& ")

# A key after a comma at bracket depth 0 begins the next value.
_KEY = re.compile(
    r", (LayerType|Inputs|Outputs|ParameterType|ParameterSubType|TacticName|TacticValue|StreamId"
    r"|Metadata|Origin|PluginType|PluginVersion|PluginNamespace|Kernel|PaddingMode|PrePadding"
    r"|PostPadding|Stride|Dilation|OutMaps|Groups|Weights|Bias|Activation|Mode|NbInputArgs"
    r"|ElementWiseOperation|PoolingType|weights|dimensions|HasBias|HasReLU|HasSparseWeights): ?"
)
MOST_LAYERS = 300_000  # what is behind them is not read: no engine is as large
# A tensor's name ends before the next tensor, or each would be looked for up to the line's end.
_TENSOR = re.compile(
    r"\{ Name: ((?:(?!\{ Name: ).)*?)(?:, Location: (\w+))?, Dimensions: \[([-\d, ]*)\]"
    r"(?:, Strides: \[[-\d, ]*\])?, Format/Datatype: ([^{}]*?) \}"
)


def documents(text: str) -> list[dict[str, Any]]:
    """Each block as ``{"Layers": [...], "Bindings": [...]}``, as the JSON form has it."""
    starts = [m.end() for m in BEGIN.finditer(text)]
    if not starts:
        starts = [0]
    found = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        document = _block(text[start:end])
        if document["Layers"]:
            found.append(document)
    return found


def _block(text: str) -> dict[str, Any]:
    layers: list[Any] = []
    bindings: list[str] = []
    into: list[Any] = layers
    detailed = DETAILED.search(text) is not None
    for line in text.splitlines():
        line = line.strip()
        if len(layers) > MOST_LAYERS:
            break
        if line == "Bindings:":
            into = bindings
        elif not line:
            if into is bindings and bindings:
                break
        elif LOG_LINE.match(line):
            # The log goes on: whatever follows belongs to it, unless another layer does.
            if into and (not detailed or into is bindings):
                break
        elif into is bindings:
            bindings.append(line)
        elif line.startswith("Name: ") and ", LayerType: " in line:
            layers.append(_layer(line))
        elif not detailed:
            layers.append(line)
    return {"Layers": layers, "Bindings": bindings}


def _layer(line: str) -> dict[str, Any]:
    layer: dict[str, Any] = {}
    key, at = "Name", len("Name: ")
    for found in _KEY.finditer(line):
        name = found.group(1)
        # A layer's name is free text: only LayerType ends it.
        if (key == "Name" and name != "LayerType") or name in layer or name == key:
            continue
        if key == "Metadata":  # free text as well, and the last key
            break
        layer[key] = line[at : found.start()]
        key, at = name, found.end()
    layer[key] = line[at:]
    for side in ("Inputs", "Outputs"):
        layer[side] = [_tensor(m) for m in _TENSOR.finditer(layer.get(side, ""))]
    return layer


def _tensor(found: re.Match[str]) -> dict[str, Any]:
    name, location, dimensions, kind = found.groups()
    return {
        "Name": name,
        "Location": location,
        "Dimensions": [int(d) for d in dimensions.split(",") if d.strip(" -").isdigit()],
        "Format/Datatype": kind,
    }
