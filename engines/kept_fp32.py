"""An ONNX file of half precision in which some nodes compute in fp32: casts around them.

For libraries that take precisions from the types in the file. Inside, weights and constants are
those of the fp32 file where it has them; the tensors between kept nodes are fp32 too. A tensor
``t`` in fp32 is called ``t/fp32``; what other nodes read keeps its name and type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..core import nodes
from ..core.accuracy import precision_plan
from ..core.files import read_json
from .onnxruntime_graph import EXTERNAL_ABOVE_BYTES, FP32, all_nodes, read_model

# What is computed in half when the file is made may be off by more than a rounding.
_ROUNDED = 0.02
# What is beyond fp16 is infinite there, or was made its own largest number (finfo.min of a mask).
_LARGEST = 65504.0
# A node and the place among its inputs, as nodes have one name in both files; an initializer; or
# a Constant node.
Key = str | tuple[str, int]


def kept(nodes_file: Path, modules: Collection[str]) -> list[str]:
    """The nodes that a plan keeps in fp32. InputError for a module that the model lacks."""
    graph = nodes.load(nodes_file)
    precision_plan.check_modules(graph, modules)
    tensors = read_json(nodes_file).get("tensors") or {}
    return precision_plan.kept_nodes(graph, tensors, modules)


def write(source: Path, names: Collection[str], to: Path) -> None:
    """Write `source` to `to` with the nodes of these names in fp32; the fp32 file beside `source`
    gives their weights where it is there. Weights beyond protobuf's limit go to a file beside."""
    import onnx

    model = onnx.load(str(source))
    full = source.with_name("fp32.onnx")
    constants = _constants(onnx.load(str(full)).graph) if full.exists() else {}
    rewrite(model, set(names), _types(source), constants)
    large = sum(len(i.raw_data) for i in model.graph.initializer) > EXTERNAL_ABOVE_BYTES
    onnx.save_model(
        model, str(to), save_as_external_data=large, location=f"{to.name}.data" if large else None
    )


def rewrite(
    model: Any, names: Collection[str], types: Mapping[str, int], constants: Mapping[Key, Any]
) -> None:
    """Change a ModelProto in place. `types`: element type by tensor; `constants`: TensorProtos in
    fp32 by `Key`. Nodes with a graph inside stay as they are."""
    from onnx import TensorProto, helper

    graph = model.graph
    halves = {t for t, kind in types.items() if kind in (TensorProto.FLOAT16, TensorProto.BFLOAT16)}
    inside = [n for n in graph.node if n.name in names and not any(map(_graphs, n.attribute))]
    ours = {id(n) for n in inside}
    written = {t for n in inside for t in n.output if t in halves}
    others = {t for n in graph.node if id(n) not in ours for t in (*n.input, *_captured(n))}
    others |= {o.name for o in graph.output}
    stored = {i.name: i for i in graph.initializer}
    done: set[str] = set(written)
    nodes_: list[Any] = []
    made: dict[str, dict[str, str]] = {}

    def constant(node: Any, i: int) -> str:
        """An initializer's name in fp32: one in half may stand for several in fp32."""
        tensor = node.input[i]
        full = _full(stored[tensor], constants, (node.name, i), tensor)
        copies, of = made.setdefault(tensor, {}), full.name if full is not None else ""
        if of not in copies:
            copies[of] = f"{tensor}/{of}{FP32}" if copies else tensor + FP32
            graph.initializer.append(_in_fp32(stored[tensor], full, copies[of]))
        return copies[of]

    def cast(from_: str, to: str, kind: int) -> Any:
        name = f"{to}/Cast" if to.endswith(FP32) else f"{from_}/Cast"
        return helper.make_node("Cast", [from_], [to], name=name, to=kind)

    for node in graph.node:
        if id(node) not in ours:
            nodes_.append(node)
            continue
        for i, tensor in enumerate(node.input):
            if tensor not in halves:
                continue
            if tensor in stored:
                node.input[i] = constant(node, i)
                continue
            if tensor not in done:
                done.add(tensor)
                nodes_.append(cast(tensor, tensor + FP32, TensorProto.FLOAT))
            node.input[i] = tensor + FP32
        _retype(node, constants)
        nodes_.append(node)
        for i, tensor in enumerate(node.output):
            if tensor in written:
                node.output[i] = tensor + FP32
                if tensor in others:
                    nodes_.append(cast(tensor + FP32, tensor, types[tensor]))
    copies = [type(n).FromString(n.SerializeToString()) for n in nodes_]
    del graph.node[:]
    graph.node.extend(copies)
    read = {t for n in graph.node for t in (*n.input, *_captured(n))} | others
    used = read | {t for n in graph.node for t in n.output}
    for field in (graph.initializer, graph.value_info):
        for i in reversed([i for i, v in enumerate(field) if v.name not in used]):
            del field[i]


def _graphs(attribute: Any) -> bool:
    return bool(attribute.g.node or attribute.graphs)


def _captured(node: Any) -> list[str]:
    """What the graphs inside a node read."""
    found = []
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            found += [t for n in all_nodes(inner) for t in n.input] + [o.name for o in inner.output]
    return found


def _retype(node: Any, constants: Mapping[Key, Any]) -> None:
    """Half types that the node's attributes name become fp32."""
    from onnx import TensorProto

    for attribute in node.attribute:
        if attribute.name in ("to", "dtype") and attribute.i in (
            TensorProto.FLOAT16,
            TensorProto.BFLOAT16,
        ):
            attribute.i = TensorProto.FLOAT
        elif attribute.name == "value" and attribute.t.data_type in (
            TensorProto.FLOAT16,
            TensorProto.BFLOAT16,
        ):
            full = _full(attribute.t, constants, node.name)
            attribute.t.CopyFrom(_in_fp32(attribute.t, full, attribute.t.name))


def _full(stored: Any, constants: Mapping[Key, Any], *keys: Key) -> Any:
    """The fp32 file's TensorProto that is this one in half; None where there is none. Each file
    numbers its constants for itself: what has the name may be another one."""
    import numpy as np
    from onnx import numpy_helper

    def values(of: Any) -> Any:
        return np.clip(numpy_helper.to_array(of).astype(np.float32), -_LARGEST, _LARGEST)

    for full in filter(None, map(constants.get, keys)):
        if list(full.dims) == list(stored.dims) and np.allclose(
            values(full), values(stored), rtol=_ROUNDED, atol=1e-7, equal_nan=True
        ):
            return full
    return None


def _in_fp32(stored: Any, full: Any, name: str) -> Any:
    """A TensorProto in fp32, of `full` where that is known."""
    import numpy as np
    from onnx import numpy_helper

    values = numpy_helper.to_array(stored if full is None else full)
    return numpy_helper.from_array(np.ascontiguousarray(values, dtype=np.float32), name)


def _constants(graph: Any) -> dict[Key, Any]:
    from onnx import TensorProto

    stored = {i.name: i for i in graph.initializer}
    found: dict[Key, Any] = dict(stored)
    for node in graph.node:
        found |= {(node.name, i): stored[t] for i, t in enumerate(node.input) if t in stored}
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type:
                found[node.name] = attribute.t
    return {k: v for k, v in found.items() if v.data_type == TensorProto.FLOAT}


def _types(source: Path) -> dict[str, int]:
    """Element type by tensor; ONNX's inference needs no weights, so also above 2 GB."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(read_model(source)).graph
    typed = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    typed |= {v.name: v.type.tensor_type.elem_type for v in graph.output}
    return typed | {i.name: i.data_type for i in graph.initializer}
