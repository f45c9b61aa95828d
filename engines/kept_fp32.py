"""An ONNX file of half precision in which some nodes compute in fp32: casts around them.

For libraries that take precisions from the types in the file. Inside, weights are those of the fp32
file where it has them; the tensors between kept nodes are fp32 too. A tensor ``t`` in fp32 is
called ``t/fp32``; what other nodes read keeps its name and type.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ..core import nodes
from ..core.accuracy import precision_plan
from ..core.files import read_json
from .onnxruntime_graph import FP32, all_nodes, read_model

# Protobuf ends at 2 GiB.
_EXTERNAL_ABOVE = 900_000_000


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
    large = sum(len(i.raw_data) for i in model.graph.initializer) > _EXTERNAL_ABOVE
    onnx.save_model(
        model, str(to), save_as_external_data=large, location=f"{to.name}.data" if large else None
    )


def rewrite(
    model: Any, names: Collection[str], types: Mapping[str, int], constants: Mapping[str, Any]
) -> None:
    """Change a ModelProto in place. `types`: element type by tensor; `constants`: arrays in fp32 by
    initializer, or by the name of a Constant node. Nodes with a graph inside stay as they are."""
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
            if tensor not in done:
                done.add(tensor)
                if tensor in stored:
                    graph.initializer.append(_in_fp32(stored[tensor], constants.get(tensor)))
                else:
                    nodes_.append(cast(tensor, tensor + FP32, TensorProto.FLOAT))
            node.input[i] = tensor + FP32
        _retype(node, constants.get(node.name))
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


def _retype(node: Any, constant: Any) -> None:
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
            attribute.t.CopyFrom(_in_fp32(attribute.t, constant))


def _in_fp32(stored: Any, constant: Any) -> Any:
    """A TensorProto as fp32, of `constant` where that is of the same shape."""
    import numpy as np
    from onnx import numpy_helper

    if constant is None or list(constant.shape) != list(stored.dims):
        constant = numpy_helper.to_array(stored)
    name = stored.name + FP32 if stored.name else ""
    return numpy_helper.from_array(np.ascontiguousarray(constant, dtype=np.float32), name)


def _constants(graph: Any) -> dict[str, Any]:
    from onnx import TensorProto, numpy_helper

    values = {i.name: i for i in graph.initializer}
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "value" and attribute.t.data_type:
                values[node.name] = attribute.t
    found = {k: v for k, v in values.items() if v.data_type == TensorProto.FLOAT}
    return {k: numpy_helper.to_array(v) for k, v in found.items()}


def _types(source: Path) -> dict[str, int]:
    """Element type by tensor; ONNX's inference needs no weights, so also above 2 GB."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(read_model(source)).graph
    typed = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info)}
    typed |= {v.name: v.type.tensor_type.elem_type for v in graph.output}
    return typed | {i.name: i.data_type for i in graph.initializer}
