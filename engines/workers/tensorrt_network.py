"""Names for TensorRT's network layers, and network.json: which layer is which ONNX node, and the
type and shape of every tensor.

The parser names the layer that computes an ONNX node after the node, and leaves the helpers around
it (casts, broadcasts, shape shuffles) with names of its own; TensorRT 8 also leaves Normalization
layers unnamed. Every layer is given a node: by its own name, by the ONNX tensor it writes, or, for
a helper whose tensors are the parser's own, by the layers that read what it writes. Layers that
had no name of an ONNX node are renamed after theirs, so that the name reaches Myelin and NVTX.

Standard library only; runs on Python 3.10.
"""

from __future__ import annotations

from typing import Any

from tensorrt_check import tensor_type


def _tensors(layer: Any, side: str) -> list[str]:
    count = getattr(layer, f"num_{side}s")
    tensors = (getattr(layer, f"get_{side}")(i) for i in range(count))
    return [t.name for t in tensors if t is not None]


def describe(network: Any) -> list[dict[str, Any]]:
    """index, name, kind, inputs and outputs of every layer, as the parser left them."""
    layers = []
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        layers.append(
            {
                "index": index,
                "name": layer.name,
                "kind": str(layer.type).rsplit(".", maxsplit=1)[-1],
                "inputs": _tensors(layer, "input"),
                "outputs": _tensors(layer, "output"),
            }
        )
    return layers


def tensors(network: Any) -> dict[str, dict[str, Any]]:
    """Type and shape of every input of the network and every tensor that a layer writes, by name,
    as nodes.json has them: ``{"dtype": "float16", "shape": [1, 512, 768]}``."""
    found = [network.get_input(i) for i in range(network.num_inputs)]
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        found += [layer.get_output(i) for i in range(layer.num_outputs)]
    return {t.name: tensor_type(t) for t in found if t is not None}


def assign_nodes(layers: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> None:
    """Set ``layer["node"]`` to the ONNX node's name, or None for constants and unknown layers.

    A helper takes the node of its readers when they agree (walking from the outputs backwards, so
    that chains of helpers resolve); two different readers leave it None.
    """
    names = {n["name"] for n in nodes}
    by_output = {t: n["name"] for n in nodes for t in n["outputs"] if t}
    readers: dict[str, list[dict[str, Any]]] = {}
    for layer in layers:
        for tensor in layer["inputs"]:
            readers.setdefault(tensor, []).append(layer)
    for layer in layers:
        owners = {by_output[t] for t in layer["outputs"] if t in by_output}
        if layer["name"] in names:
            owners = {layer["name"]}
        layer["node"] = owners.pop() if len(owners) == 1 else None
    for layer in reversed(layers):
        if layer["node"] is None and layer["kind"] != "CONSTANT":
            around = {r["node"] for t in layer["outputs"] for r in readers.get(t, ())}
            layer["node"] = around.pop() if len(around) == 1 else None


def rename(network: Any, layers: list[dict[str, Any]], nodes: list[dict[str, Any]]) -> int:
    """Name layers that carry no node's name after their node; gives how many were renamed.

    Names stay unique: the second layer of a node is ``NODE_helper_2``, and so on. Constants keep
    their names (they are weights). `layers` is updated; the old name is kept as "parser_name".
    """
    known = {n["name"] for n in nodes}
    taken = {layer["name"] for layer in layers}
    renamed = 0
    for layer in layers:
        base = layer["node"]
        if base is None or layer["name"] in known or layer["kind"] == "CONSTANT":
            continue
        name, number = base, 1
        while name in taken:
            number += 1
            name = f"{base}_helper_{number}"
        taken.add(name)
        layer["parser_name"], layer["name"] = layer["name"], name
        network.get_layer(layer["index"]).name = name
        renamed += 1
    return renamed


def keep_fp32(trt: Any, network: Any, layers: list[dict[str, Any]], nodes: list[str]) -> int:
    """Constrain the layers of these ONNX nodes to compute in fp32 and to write it; gives how many.

    `layers` is what `assign_nodes` left. Constants have no precision, a cast's type is its own, and
    layers without a floating tensor (shapes, indices, comparisons of integers) are left alone.
    """
    wanted, floats = set(nodes), (trt.DataType.FLOAT, trt.DataType.HALF)
    floats += (trt.DataType.BF16,) if hasattr(trt.DataType, "BF16") else ()
    constrained = 0
    for described in layers:
        if described["node"] not in wanted or described["kind"] in ("CONSTANT", "CAST", "SHAPE"):
            continue
        layer = network.get_layer(described["index"])
        read = [layer.get_input(i) for i in range(layer.num_inputs)]
        written = [layer.get_output(i) for i in range(layer.num_outputs)]
        if not any(t is not None and t.dtype in floats for t in (*read, *written)):
            continue
        layer.precision = trt.DataType.FLOAT
        for i, tensor in enumerate(written):
            if tensor is not None and tensor.dtype in floats:
                layer.set_output_type(i, trt.DataType.FLOAT)
        constrained += 1
    return constrained
