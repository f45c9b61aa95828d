"""ONNX files with more outputs, and parts of them: what a tensor's value is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ELEMENTS = {"float32": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}


def written(file: Path) -> set[str]:
    """The tensors that the nodes of a file write."""
    return {t for n in _load(file).graph.node for t in n.output if t}


def with_outputs(
    file: Path, to: Path, names: Iterable[str], types: Mapping[str, Any] | None = None
) -> None:
    """Write a copy of `file` that has these tensors as outputs too. `types` as of nodes.json, for
    a library that does not infer them."""
    model = _load(file)
    have = {o.name for o in model.graph.output}
    for name in names:
        if name not in have:
            model.graph.output.append(_info(name, types.get(name) if types else None))
    _save(model, file, to)


def part(
    file: Path, to: Path, given: Mapping[str, Any], wanted: str, types: Mapping[str, Any]
) -> set[str]:
    """Write the part of `file` that makes the tensor `wanted`, with the tensors of `given` as
    inputs; gives the names of the inputs that it has, those of the model among them."""
    model = _load(file)
    graph = model.graph
    writers = {t: n for n in graph.node for t in n.output if t}
    inputs = {i.name: i for i in graph.input}
    needed, used, wait = set(), set(), [wanted]
    while wait:
        tensor = wait.pop()
        if tensor in used or (tensor in given and tensor != wanted):
            used.add(tensor)
            continue
        used.add(tensor)
        node = writers.get(tensor)
        if node is not None and id(node) not in needed:
            needed.add(id(node))
            wait += [t for t in [*node.input, *_captured(node)] if t]
    nodes = [n for n in graph.node if id(n) in needed]
    made = {t for n in nodes for t in n.output}
    entering = [t for t in given if t in used and t not in made] + [t for t in inputs if t in used]
    stored = [i for i in graph.initializer if i.name in used]
    infos = [inputs[t] if t in inputs else _info(t, types.get(t)) for t in dict.fromkeys(entering)]
    copies = [type(n).FromString(n.SerializeToString()) for n in nodes]
    kept = [type(i).FromString(i.SerializeToString()) for i in stored]
    kinds = [type(i).FromString(i.SerializeToString()) for i in infos]
    for field in ("node", "initializer", "input", "output", "value_info"):
        graph.ClearField(field)
    graph.node.extend(copies)
    graph.initializer.extend(kept)
    graph.input.extend(kinds)
    graph.output.append(_info(wanted, types.get(wanted)))
    _save(model, file, to)
    return {i.name for i in kinds}


def _captured(node: Any) -> list[str]:
    """What the subgraphs of a node read."""
    return [t for a in node.attribute for n in a.g.node for t in [*n.input, *_captured(n)]]


def _info(name: str, described: Any) -> Any:
    from onnx import TensorProto, ValueInfoProto, helper

    if not described:
        return ValueInfoProto(name=name)
    kind = getattr(TensorProto, _ELEMENTS[described["dtype"]])
    return helper.make_tensor_value_info(name, kind, described.get("shape"))


def _load(file: Path) -> Any:
    import onnx

    return onnx.load(str(file), load_external_data=False)


def _save(model: Any, source: Path, to: Path) -> None:
    """With the weights that lie beside `source` reached from `to`."""
    to.write_bytes(model.SerializeToString())
    beside = {
        e.value for i in model.graph.initializer for e in i.external_data if e.key == "location"
    }
    for name in beside:
        link = to.parent / name
        if not link.exists():
            link.symlink_to((source.parent / name).resolve())
