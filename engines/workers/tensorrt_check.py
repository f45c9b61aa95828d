"""TensorRT's network beside the ONNX file: types and shapes that differ are a wrong engine.

A parser that does not know an opset may build another network than the model and say nothing:
TensorRT 8.6 leaves out the axes of opset 18's reductions, and a norm averages over everything. What
it builds then has another shape, which is known before anything is built.

Not held against a network, because TensorRT does so on purpose:

- integers and bool are of any width and each other's type (INT64 is INT32 up to TensorRT 9);
- double is float; where precision is a flag of the build, any float is any other;
- a scalar is a vector of one element;
- what either side does not know: an open dimension, a type without a name here, a tensor that the
  other side does not have (folded, renamed, the parser's own).

Standard library only; runs on Python 3.10.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common import WorkerError

# TensorRT's DataType (NvInfer.h) to NumPy's names, those of nodes.json.
DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT64": "int64",
    "INT32": "int32",
    "INT8": "int8",
    "UINT8": "uint8",
    "BOOL": "bool",
}
_FLOATS = ("float64", "float32", "float16", "bfloat16")
_WHOLE = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8", "bool")


@dataclass(frozen=True)
class Difference:
    """A tensor that is another in the network than in the ONNX file. `node` None: an input."""

    tensor: str
    node: Mapping[str, Any] | None
    network: str
    file: str


def tensor_type(tensor: Any) -> dict[str, Any]:
    """``{"dtype": "float16", "shape": [1, null]}`` of an ITensor; null is unknown or open."""
    try:
        shape = [None if d < 0 else int(d) for d in tensor.shape]
    except ValueError:  # the number of dimensions is not known
        shape = None
    name = str(tensor.dtype).rpartition(".")[2]
    return {"dtype": DTYPES.get(name, name.lower() or None), "shape": shape}


def differences(
    document: Mapping[str, Any], tensors: Mapping[str, Mapping[str, Any]], typed: bool
) -> Iterator[Difference]:
    """Where `tensors` (of the network) are not those of nodes.json, in the graph's order.

    `typed`: the network is strongly typed, so its floats are those of the file.
    """
    known = document.get("tensors") or {}
    written = [(t, None) for t in document.get("inputs") or ()]
    written += [(t, node) for node in document["nodes"] for t in node["outputs"] if t]
    for name, node in written:
        ours, theirs = known.get(name), tensors.get(name)
        if ours is None or theirs is None:
            continue
        if not _same_shape(ours["shape"], theirs["shape"]):
            yield Difference(name, node, _sizes(theirs["shape"]), _sizes(ours["shape"]))
        elif not _same_type(ours["dtype"], theirs["dtype"], typed):
            yield Difference(name, node, theirs["dtype"], ours["dtype"])


def require_same(
    document: Mapping[str, Any],
    tensors: Mapping[str, Mapping[str, Any]],
    typed: bool,
    library: str,
    fix: str,
) -> int:
    """WorkerError (2) naming the first tensor that differs, its node and module; `fix` is what to
    do. Gives the number of tensors that were compared."""
    found = list(differences(document, tensors, typed))
    if not found:
        return len(tensors.keys() & (document.get("tensors") or {}).keys())
    first, node = found[0], found[0].node
    what = f"input {first.tensor}" if node is None else f"{node['name']} ({_module(node)})"
    more = f"; so are {len(found) - 1} tensors after it" if len(found) > 1 else ""
    raise WorkerError(
        f"{library} parses {what} as something else than the ONNX file has: its tensor "
        f"{first.tensor} is {first.network} instead of {first.file}{more}. Nothing was built",
        fix,
    )


def _module(node: Mapping[str, Any]) -> str:
    module = node.get("module")
    return "module unknown" if module is None else f"module {module or '(the model itself)'}"


def _sizes(shape: list[int | None]) -> str:
    return f"[{', '.join('?' if d is None else str(d) for d in shape)}]"


def _same_shape(ours: list[int | None], theirs: list[int | None] | None) -> bool:
    if theirs is None or {tuple(ours), tuple(theirs)} == {(), (1,)}:
        return True
    pairs = zip(ours, theirs, strict=False)
    return len(ours) == len(theirs) and all(a == b or None in (a, b) for a, b in pairs)


def _same_type(ours: str, theirs: str | None, typed: bool) -> bool:
    if ours in _WHOLE and theirs in (*_FLOATS, *_WHOLE):
        return theirs in _WHOLE
    if ours in _FLOATS and theirs in (*_FLOATS, *_WHOLE):
        return theirs in _FLOATS and (not typed or (_single(ours) == _single(theirs)))
    return True


def _single(name: str) -> str:
    return "float32" if name == "float64" else name
