"""The optimised graph that ONNX Runtime saved: its nodes by unique names, what they run in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import InputError, ToolMissing
from ..core.nodes import NodeGraph
from ..core.resolve import RawLayer
from ..core.resolve.spelling import blocked_output
from ..core.tensor_types import FLOATS, precision_of
from .layers import EngineLayer

# Operators that only move or convert: nothing is computed in any precision.
_MOVE = frozenset(
    {
        "Cast", "Concat", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
        "MemcpyFromHost", "MemcpyToHost", "Pad", "ReorderInput", "ReorderOutput", "Reshape",
        "ScatterElements", "ScatterND", "Shape", "Slice", "Split", "Squeeze", "Tile", "Transpose",
        "Unsqueeze", "Where",
    }
)  # fmt: skip

# The CPU kernels of these take half tensors but convert them and compute in float:
# onnxruntime/core/providers/cpu/nn/layer_norm_impl.cc, contrib_ops/cpu/skip_layer_norm.cc
# (ConvertMLFloat16ToFloatIfNeeded). Others have no half kernels there: casts are inserted.
_FLOAT_INSIDE = frozenset(
    {
        "LayerNormalization", "SimplifiedLayerNormalization", "SkipLayerNormalization",
        "SkipSimplifiedLayerNormalization", "RMSNormalization",
    }
)  # fmt: skip
# Products are no part of another operator: what they read is not bounded by what they write.
_PRODUCTS = frozenset({"Conv", "FusedConv", "FusedGemm", "FusedMatMul", "Gemm", "MatMul"})
CPU = "CPUExecutionProvider"
# Protobuf ends at 2 GiB. Weights of half precision become float when casts of them are folded,
# and shared weights are written once for each use: a wide margin.
EXTERNAL_ABOVE_BYTES = 900_000_000
_CAST_PREFIX = "InsertedPrecisionFreeCast_"
# Of a tensor's copy in fp32, beside a module that a precision plan keeps there.
FP32 = "/fp32"
NCHWC_DOMAIN = "com.microsoft.nchwc"


def read_model(path: Path) -> Any:
    """The ModelProto without its external weights. InputError for a broken file."""
    try:
        import onnx
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    except ImportError as e:
        raise ToolMissing(f"{e.name} is not installed", fix='pip install "layerline[model]"') from e
    try:
        model = onnx.load(str(path), load_external_data=False)
    except FileNotFoundError:
        raise InputError("no such file", file=path, fix="layerline export RUN writes it") from None
    except (DecodeError, ValueError) as e:
        reason = " ".join(str(e).split())
        raise InputError(
            f"is no ONNX model, or is cut short ({reason})", file=path, fix="export it again"
        ) from None
    if not model.graph.node:
        raise InputError("is an ONNX model without nodes", file=path, fix="export it again")
    return model


def all_nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a GraphProto in graph order, those of subgraphs after the node with them."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in [attribute.g, *attribute.graphs]:
                if inner.node:
                    yield from all_nodes(inner)


def name_uniquely(model: Any) -> int:
    """Give nodes without a name, or with one taken, a name of their own; how many.

    ONNX Runtime leaves the parts of an inlined function without a name. They are named by
    operator and output tensor, which no two nodes share.
    """
    seen = {node.name for node in all_nodes(model.graph)}
    used: set[str] = set()
    changed = 0
    for node in all_nodes(model.graph):
        if not node.name or node.name in used:
            tensor = next((t for t in node.output if t), "nothing")
            base = node.name or f"{node.op_type}/{tensor}"
            name, n = (base, 1) if base not in seen else (f"{base}_{1}", 2)
            while name in seen:
                name, n = f"{base}_{n}", n + 1
            node.name = name
            seen.add(name)
            changed += 1
        used.add(node.name)
    return changed


def engine_layers(model: Any, probed: Mapping[str, Any], graph: NodeGraph) -> list[EngineLayer]:
    """The layers of a saved graph, in the order of a run.

    `probed` is the worker's record of one run: types and provider by node name. Nodes that did
    not run (the other branch of an If) come last, with unknown precisions. `graph` is the
    exported model.
    """
    nodes = {node.name: node for node in all_nodes(model.graph)}
    bounds = _Bounds(list(nodes.values()), graph)
    order = [name for name in probed if name in nodes]
    order += [name for name in nodes if name not in probed]
    return [_layer(nodes[name], probed.get(name), bounds) for name in order]


def _layer(node: Any, record: Mapping[str, Any] | None, bounds: _Bounds) -> EngineLayer:
    inputs, outputs = bounds.of(node)
    raw = RawLayer(name=node.name, op=node.op_type, inputs=inputs, outputs=outputs)
    real = (tuple(node.input), tuple(node.output))
    if record is None:
        return EngineLayer(raw, *real)
    before, after = _precisions(record.get("inputs")), _precisions(record.get("outputs"))
    return EngineLayer(
        raw,
        *real,
        precision_in=_main(before),
        precision_out=_main(after),
        compute_precision=_computes(node.op_type, record.get("provider"), before, after),
        tactic=record.get("provider"),
    )


class _Bounds:
    """The model's tensors around a node of the optimised graph.

    ONNX Runtime replaces an operator without a kernel of the wanted type by its function body
    (Softmax in half precision: five nodes) between tensors of its own. Each part is bounded by
    the nearest tensors of the model, before and after.
    """

    def __init__(self, nodes: Sequence[Any], graph: NodeGraph) -> None:
        self._known = {t for n in graph.nodes for t in (*n.inputs, *n.outputs)}
        self._known |= {*graph.inputs, *graph.outputs, *graph.initializers}
        self._names = graph.by_name
        self._writer = {t: n for n in nodes for t in n.output if t}
        self._readers: dict[str, list[Any]] = {}
        for n in nodes:
            for t in n.input:
                self._readers.setdefault(t, []).append(n)
        stands = (*_blocked(nodes, graph), *_alike(nodes, graph))
        self._stands = {t: model for t, model in stands if not self._is_known(t)}

    def of(self, node: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """(inputs, outputs) for the resolver."""
        real = (tuple(node.input), tuple(node.output))
        if node.name in self._names:
            return real
        if any(t in self._stands for t in real[0] + real[1]):
            before, after = (tuple(self._stands.get(t, t) for t in side) for side in real)
            return before, after
        if any(self._is_known(t) for t in node.output) and all(
            self._is_known(t) or t not in self._writer for t in node.input
        ):
            return real
        before = self._reach(node.input, back=True)
        if before and node.op_type in _MOVE:  # carried: whose tensor it moves is what counts
            return real
        after = self._reach(node.output, back=False)
        if not before:  # fed by constants of the function's own: bounded as the whole body is
            body = self._between(after)
            before = tuple(t for n in body for t in n.input if self._is_known(t))
        return before, after or real[1]

    def _between(self, tensors: Sequence[str]) -> list[Any]:
        """The nodes that write `tensors`, back to where the model's tensors begin."""
        between: dict[str, Any] = {}
        pending = [self._writer[t] for t in tensors if t in self._writer]
        while pending:
            node = pending.pop()
            if node.name not in between:
                between[node.name] = node
                inner = (t for t in node.input if t and not self._is_known(t))
                pending.extend(self._writer[t] for t in inner if t in self._writer)
        return list(between.values())

    def _is_known(self, tensor: str) -> bool:
        name = tensor.removeprefix(_CAST_PREFIX)
        return name in self._known or name.removesuffix(FP32) in self._known

    def _reach(self, tensors: Iterable[str], *, back: bool) -> tuple[str, ...]:
        known: dict[str, None] = {}
        pending, seen = [t for t in tensors if t], set()
        while pending:
            tensor = pending.pop(0)
            if tensor in seen:
                continue
            seen.add(tensor)
            if self._is_known(tensor):
                known[tensor] = None
            elif back:
                writer = self._writer.get(tensor)
                if writer is not None and writer.op_type in _PRODUCTS:
                    known[tensor] = None  # another layer's own, by whatever name
                else:
                    pending.extend(writer.input if writer is not None else ())
            else:
                for reader in self._readers.get(tensor, ()):
                    if reader.op_type not in _PRODUCTS:
                        pending.extend(reader.output)
        return tuple(known)


def _alike(nodes: Sequence[Any], graph: NodeGraph) -> Iterator[tuple[str, str]]:
    """What nodes between others in the blocked layout write, and the model's tensors that they are:
    nodes of the model, or the product of a SiLU, which took its sigmoid in."""
    for node in nodes:
        name = node.name.removesuffix("/QuickGeluFusion/")
        model = graph.by_name.get(name)
        if model is not None and (node.op_type == model.op or node.op_type == "QuickGelu"):
            yield from zip(node.output, model.outputs, strict=False)


def _blocked(nodes: Sequence[Any], graph: NodeGraph) -> Iterator[tuple[str, str]]:
    """What a node in the blocked layout writes, and the model's tensor that this is.

    Such a node is named after a tensor, with the addition and the activation that are fused into a
    convolution after it or not: onnxruntime/core/optimizer/nchwc_transformer.cc names it when it
    is made, and fuses them later (a fourth input, an attribute ``activation``).
    """
    writers = {t: n for n in graph.nodes for t in n.outputs}
    readers: dict[str, list[Any]] = {}
    for n in graph.nodes:
        for t in n.inputs:
            readers.setdefault(t, []).append(n)

    def after(tensor: str, ops: tuple[str, ...]) -> str:
        """The output of the one operator of these that follows, unless one writes the tensor."""
        if writers[tensor].op in ops:
            return tensor
        follow = [n for n in readers.get(tensor, ()) if n.op in ops]
        return follow[0].outputs[0] if len(follow) == 1 else tensor

    for node in nodes:
        named = blocked_output(node.name) if node.domain == NCHWC_DOMAIN else None
        tensor = (named or "").removeprefix(_CAST_PREFIX)
        if tensor not in writers or not node.output:
            continue
        activation = [a.s.decode() for a in node.attribute if a.name == "activation"]
        if len(node.input) > 3 and node.input[3]:
            tensor = after(tensor, ("Add", "Sum"))
        if activation:
            tensor = after(tensor, (activation[0],))
        yield node.output[0], tensor


def _precisions(types: Sequence[str] | None) -> list[str]:
    return [precision_of(t) or t for t in types or ()]


def _main(precisions: Sequence[str]) -> str | None:
    """The first floating-point type, else the first type: indices do not hide the data."""
    floats = [p for p in precisions if p in FLOATS]
    return next(iter(floats or precisions), None)


def _computes(
    op: str, provider: str | None, inputs: Sequence[str], outputs: Sequence[str]
) -> str | None:
    if op in _MOVE:
        return None
    floats = [p for p in inputs if p in FLOATS] or [p for p in outputs if p in FLOATS]
    if not floats:
        return _main(outputs)
    if provider == CPU and op in _FLOAT_INSIDE and floats[0] in ("fp16", "bf16"):
        return "fp32"
    return floats[0]
