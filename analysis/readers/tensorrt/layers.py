"""TensorRT's layer information: what an engine consists of. It has no timings.

Made by ``trtexec --exportLayerInfo``, ``IEngineInspector.get_engine_information`` (JSON or
ONELINE), ``torch_tensorrt``'s ``get_layer_info`` and ``dump_layer_info``. The quirks:

- without detailed verbosity `Layers` are plain strings;
- `Bindings` is missing from old versions; 8.4 has no Metadata and no StreamId; Myelin layers of
  10 and later have lower-case kinds, no tactic value, no tensor location;
- Metadata joins `[ONNX Layer: NAME]` with U+001E, inside Myelin with U+001F; names may hold `]`;
- several documents in one file, engine by engine or layer by layer
  (``get_layer_information``), also as one JSON string that holds JSON;
- ONELINE text, alone or inside trtexec's log, where the same engine is printed twice;
- optimisation profiles: names of all but the first end in ` [profile N]`.

Tables: `layers` (`nodes` from Metadata, null where TensorRT gave none; `engine` numbers the
documents of a file that has several), `tensors` (inputs and outputs of each layer) and `details`
(index in the engine, metadata, tactic value, stream, and the other fields as JSON).
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from ....core.errors import InputError
from ....core.tables import schema, table
from ....core.tensor_types import joined, precision_of
from ..base import HEAD_BYTES, Artefact, Head, int64
from ..bounded import (
    LOG_LINE,
    MAX_JSON_BYTES,
    decode,
    json_start,
    lines,
    parse_json_documents,
    read_bytes,
    shown,
)
from . import profile, trtexec_log

KIND = "trt-layers"
DESCRIPTION = "TensorRT layer information (trtexec --exportLayerInfo, engine inspector)"

MAX_ENGINES = 1_000  # in one file
MAX_ROWS = 300_000  # layers, and tensors; real engines have thousands

TENSORS = schema(
    "source text, engine text, index int, layer text, direction text, tensor text, "
    "dimensions ints, precision text, format text, location text"
)
DETAILS = schema(
    "source text, engine text, index int, layer text, metadata text, tactic_value text, "
    "stream int, profile int, other text"
)

_LAYERS_KEY = re.compile(r'"Layers"\s*:\s*\[')
_ONE_LAYER = re.compile(r'\{\s*"Name"\s*:\s*"')
_PROFILE = re.compile(r" \[profile (\d{1,9})\]\Z")
_NODE = re.compile(r"\[ONNX Layer: (.*?)\](?=[\x1e\x1f\[]|\Z)", re.DOTALL)

# The engine inspector as text (LayerInformationFormat.ONELINE).
_BEGIN = re.compile(r"^(?:\[[^\]]*\] *)*Layers:[ \t]*$", re.MULTILINE)

# A key after a comma at bracket depth 0 begins the next value.
_KEY = re.compile(
    r", (LayerType|Inputs|Outputs|ParameterType|ParameterSubType|TacticName|TacticValue|StreamId"
    r"|Metadata|Origin|PluginType|PluginVersion|PluginNamespace|Kernel|PaddingMode|PrePadding"
    r"|PostPadding|Stride|Dilation|OutMaps|Groups|Weights|Bias|Activation|Mode|NbInputArgs"
    r"|ElementWiseOperation|PoolingType|weights|dimensions|HasBias|HasReLU|HasSparseWeights): ?"
)
# A tensor's name ends before the next tensor, or each would be looked for up to the line's end.
_TENSOR = re.compile(
    r"\{ Name: ((?:(?!\{ Name: ).)*?)(?:, Location: (\w+))?, Dimensions: \[([-\d, ]*)\]"
    r"(?:, Strides: \[[-\d, ]*\])?, Format/Datatype: ([^{}]*?) \}"
)


def sniff(head: Head) -> bool:
    """`"Layers": [`, a layer's own document, or the inspector's text."""
    if _is_json(head.json):
        text = head.json[:4096].replace('\\"', '"')
        return bool(
            _LAYERS_KEY.search(text)
            or (_ONE_LAYER.match(text.lstrip('["')) and '"LayerType"' in text)
        )
    text = head.stripped
    if trtexec_log.TABLE.search(text):
        return False  # a log that has times, too: see `profile`
    if "\x00" in text[:1024]:
        return False
    return bool(
        trtexec_log.LISTS_LAYERS.search(text) or (_BEGIN.match(text) and "\n" in text.strip())
    )


def _is_json(text: str) -> bool:
    return text.startswith(("{", "[", '"')) and not LOG_LINE.match(text)


def read(path: Path) -> Artefact:
    """The layers of every engine in the file, in the engine's order; of trtexec's log their times,
    where it has them.

    InputError where a document is not layer information, or holds no layer.
    """
    if trtexec_log.TABLE.search(decode(read_bytes(path, MAX_JSON_BYTES))):
        return profile.read(path)  # of the same log, the times
    return information(path)


def information(path: Path) -> Artefact:
    """As `read`, also of a log that has times, too."""
    engines, notes = _engines(read_bytes(path, MAX_JSON_BYTES), path)
    if not any(engine["Layers"] for engine in engines):
        raise InputError(
            "names no layer", file=path, fix="build the engine with detailed profiling verbosity"
        )
    return _artefact(path, engines, notes)


def _engines(data: bytes, path: Path) -> tuple[list[dict[str, Any]], list[str]]:
    notes: list[str] = []
    text = decode(data[:HEAD_BYTES])
    if _is_json(text[json_start(text) :]):
        documents = parse_json_documents(data, path)
        engines = _from_json(documents, path)
    else:
        content = decode(data)
        if "\x00" in content:
            raise InputError("has a hole of NUL bytes", file=path, fix="copy it again")
        engines = _from_text(content)
    layers = sum(len(engine["Layers"]) for engine in engines)
    if len(engines) > MAX_ENGINES or layers > MAX_ROWS:
        raise InputError(
            f"holds {len(engines):,} engines with {layers:,} layers, more than any real file",
            file=path,
        )
    distinct = []
    for engine in engines:
        if engine not in distinct:
            distinct.append(engine)
    if len(distinct) < len(engines):
        notes.append(
            f"The same engine is printed {len(engines)} times; it is taken once."
            if len(distinct) == 1
            else "Engines that are printed twice are taken once."
        )
    return distinct, notes


def _from_json(documents: list[Any], path: Path) -> list[dict[str, Any]]:
    engines: list[dict[str, Any]] = []
    single: list[Any] = []  # layers that came one by one
    for document in documents:
        if isinstance(document, str) and document.lstrip().startswith("{"):
            engines += _from_json(parse_json_documents(document.encode(), path), path)
            continue
        for item in document if isinstance(document, list) else [document]:
            if isinstance(item, dict) and isinstance(item.get("Layers"), list):
                engines.append(item)
            elif isinstance(item, dict) and isinstance(item.get("Name"), str):
                single.append(item)
            else:
                what = "is JSON with `Layers` or layers in it, but not TensorRT's"
                if isinstance(item, dict) and "Layers" in item:
                    what = f"Layers is {shown(item['Layers'])}, no list"
                raise InputError(what, file=path, fix="export it again")
    if single:
        engines.append({"Layers": single, "Bindings": []})
    return engines


def onnx_nodes(metadata: str | None) -> list[str] | None:
    """The ONNX node names in a layer's Metadata; None where it names none.

    >>> onnx_nodes("[ONNX Layer: a/Gemm]\\x1f[ONNX Layer: a/Relu]")
    ['a/Gemm', 'a/Relu']
    """
    names = list(dict.fromkeys(_NODE.findall(metadata or "")))
    return names or None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _tensors(layer: dict[str, Any], side: str, path: Path) -> list[dict[str, Any]]:
    tensors = layer.get(side, [])
    if not isinstance(tensors, list) or not all(isinstance(t, dict) for t in tensors):
        raise InputError(f"has a layer whose {side} are no list of tensors", file=path)
    return tensors


def _artefact(path: Path, engines: list[dict[str, Any]], notes: list[str]) -> Artefact:
    layers: list[dict[str, Any]] = []
    tensors: list[dict[str, Any]] = []
    details: list[dict[str, Any]] = []
    bindings: list[list[str]] = []
    names_only = 0
    for number, engine in enumerate(engines):
        where = {"source": path.name, "engine": str(number) if len(engines) > 1 else None}
        names = engine.get("Bindings")
        bindings.append([b for b in names if isinstance(b, str)] if isinstance(names, list) else [])
        for index, layer in enumerate(engine["Layers"]):
            if isinstance(layer, str):
                layer = {"Name": layer}
                names_only += 1
            if not isinstance(layer, dict) or not isinstance(layer.get("Name"), str):
                name = layer.get("Name") if isinstance(layer, dict) else layer
                what = f"Layers[{index}]: Name is {shown(name)}, no text"
                raise InputError(what, file=path, fix="export it again")
            mine = _tensor_rows(layer, path)
            layers.append({**where, **_layer_row(layer, mine)})
            key = {**where, "index": index, "layer": layer["Name"]}
            tensors += [{**key, **tensor} for tensor in mine]
            details.append({**key, **_detail_row(layer)})
            if len(tensors) > MAX_ROWS:
                raise InputError(f"holds more than {MAX_ROWS:,} tensors", file=path)
    if names_only:
        notes.append(
            f"{names_only} layers are names only: the engine was not built with detailed "
            "profiling verbosity, so kinds, precisions and ONNX nodes are unknown."
        )
    profiles = {d["profile"] for d in details if d["profile"]}
    if profiles:
        notes.append(
            f"{len(profiles) + 1} optimisation profiles: the same layers come once for each."
        )
    facts: dict[str, Any] = {
        "engines": len(engines),
        "layers": len(layers),
        "bindings": bindings[0] if len(bindings) == 1 else bindings,
        "layers_with_onnx_nodes": sum(1 for row in layers if row["nodes"]),
        "detailed": names_only == 0,
    }
    tables = {"layers": table("layers", layers)}
    if names_only < len(layers):
        tables["tensors"] = pa.Table.from_pylist(tensors, schema=TENSORS)
        tables["details"] = pa.Table.from_pylist(details, schema=DETAILS)
    return Artefact(KIND, tables, facts, notes)


def _layer_row(layer: dict[str, Any], tensors: list[dict[str, Any]]) -> dict[str, Any]:
    def precision(side: str) -> str | None:
        return joined(t["precision"] for t in tensors if t["direction"] == side)

    return {
        "layer": layer["Name"],
        "kind": _text(layer.get("LayerType")),
        "nodes": onnx_nodes(_text(layer.get("Metadata"))),
        "precision_in": precision("input"),
        "precision_out": precision("output"),
        "tactic": _text(layer.get("TacticName")) or _text(layer.get("TacticValue")) or None,
    }


def _tensor_rows(layer: dict[str, Any], path: Path) -> list[dict[str, Any]]:
    rows = []
    for side, direction in (("Inputs", "input"), ("Outputs", "output")):
        for tensor in _tensors(layer, side, path):
            kind = _text(tensor.get("Format/Datatype"))
            dimensions = tensor.get("Dimensions")
            if not isinstance(dimensions, list) or any(int64(d) is None for d in dimensions):
                dimensions = None
            rows.append(
                {
                    "direction": direction,
                    "tensor": _text(tensor.get("Name")),
                    "dimensions": dimensions,
                    "precision": precision_of(kind),
                    "format": kind,
                    "location": _text(tensor.get("Location")),
                }
            )
    return rows


# What a table has a column for; all else is JSON in `other`.
_COLUMNS = frozenset(
    ["Name", "LayerType", "Inputs", "Outputs", "Metadata", "TacticName", "TacticValue", "StreamId"]
)


def _detail_row(layer: dict[str, Any]) -> dict[str, Any]:
    stream = layer.get("StreamId")
    if isinstance(stream, str) and stream.strip().isdecimal() and len(stream) < 18:
        stream = int(stream)
    profile = _PROFILE.search(layer["Name"])
    other = {k: v for k, v in layer.items() if k not in _COLUMNS}
    return {
        "metadata": _text(layer.get("Metadata")) or None,
        "tactic_value": _text(layer.get("TacticValue")),
        "stream": int64(stream),
        "profile": int(profile.group(1)) if profile else None,
        "other": json.dumps(other) if other else None,
    }


# --- the engine inspector's text ------------------------------------------------------------------


def _from_text(text: str) -> list[dict[str, Any]]:
    """Each block of ONELINE text as the JSON form has it: ``{"Layers": [...], "Bindings": [...]}``.

    ``Layers:`` then one line per layer, ``Name: A + B, LayerType: CaskConvolution, Inputs: [ {
    Name: x, Location: Device, Dimensions: [1,3], Format/Datatype: Half }], ..., Metadata: [ONNX
    Layer: A]`` (detailed verbosity) or the bare name, then ``Bindings:`` and one name per line.
    Names are not quoted and may hold commas, so a value ends where the next known key begins.
    trtexec prints the block into its log, with blank lines and log lines (``[``) in between.
    """
    starts = [m.end() for m in _BEGIN.finditer(text)]
    if not starts:
        starts = [0]
    engines = []
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        document = _block(text[start:end])
        if document["Layers"]:
            engines.append(document)
    return engines


def _block(text: str) -> dict[str, Any]:
    layers: list[Any] = []
    bindings: list[str] = []
    into: list[Any] = layers
    detailed = trtexec_log.LISTS_LAYERS.search(text) is not None
    for line in lines(text):
        line = line.strip()
        if len(layers) > MAX_ROWS:
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
    for match in _KEY.finditer(line):
        name = match.group(1)
        # A layer's name is free text: only LayerType ends it.
        if (key == "Name" and name != "LayerType") or name in layer or name == key:
            continue
        if key == "Metadata":  # free text as well, and the last key
            break
        layer[key] = line[at : match.start()]
        key, at = name, match.end()
    layer[key] = line[at:]
    for side in ("Inputs", "Outputs"):
        layer[side] = [_tensor(m) for m in _TENSOR.finditer(layer.get(side, ""))]
    return layer


def _tensor(match: re.Match[str]) -> dict[str, Any]:
    name, location, dimensions, kind = match.groups()
    return {
        "Name": name,
        "Location": location,
        "Dimensions": [int(d) for d in dimensions.split(",") if d.strip(" -").isdigit()],
        "Format/Datatype": kind,
    }
