"""ONNX files with more outputs, and parts of them: what a tensor's value is read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_ELEMENTS = {"float32": "FLOAT", "float16": "FLOAT16", "bfloat16": "BFLOAT16"}


def with_outputs(
    file: Path, to: Path, names: Iterable[str], types: Mapping[str, Any] | None = None
) -> set[str]:
    """Write a copy of `file` that has as outputs too those of `names` that its nodes write; gives
    the names of its inputs. `types` as of nodes.json, for a library that does not infer them."""
    model = _load(file)
    written = {t for n in model.graph.node for t in n.output if t}
    have = {o.name for o in model.graph.output}
    for name in dict.fromkeys(names):
        if name in written and name not in have:
            model.graph.output.append(_info(name, types.get(name) if types else None))
    _save(model, file, to)
    return {i.name for i in model.graph.input}


def part(
    file: Path, to: Path, given: Mapping[str, Any], wanted: str, types: Mapping[str, Any]
) -> set[str]:
    """Write the part of `file` that makes the tensor `wanted`, with the tensors of `given` as
    inputs; gives the names of the inputs that it has, those of the model among them."""
    model = _load(file)
    graph = model.graph
    writers = {t: k for k, n in enumerate(graph.node) for t in n.output if t}
    inputs = {i.name: i for i in graph.input}
    needed: set[int] = set()
    used, wait = {wanted}, [wanted]
    while wait:
        k = writers.get(wait.pop())
        if k is None or k in needed:
            continue
        needed.add(k)
        reads = {t for t in [*graph.node[k].input, *_captured(graph.node[k])] if t}
        wait += reads - used - given.keys()
        used |= reads
    nodes = [graph.node[k] for k in sorted(needed)]
    made = {t for n in nodes for t in n.output}
    entering = [t for t in given if t in used and t not in made] + [t for t in inputs if t in used]
    infos = [inputs[t] if t in inputs else _info(t, types.get(t)) for t in dict.fromkeys(entering)]
    stored = [i for i in graph.initializer if i.name in used]
    kept = type(graph)(node=nodes, initializer=stored, input=infos)
    kept.output.append(_info(wanted, types.get(wanted)))
    for field in ("node", "initializer", "input", "output", "value_info"):
        graph.ClearField(field)
    graph.MergeFrom(kept)
    _save(model, file, to)
    return {i.name for i in graph.input}


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
