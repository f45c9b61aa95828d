"""From an eager model to a named, checked ONNX file, by torch's dynamo exporter."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.cli.progress import log
from ..core.errors import CheckFailed, InputError
from . import models, naming, nested, opsets
from .naming import all_nodes
from .quiet import FAULTS, gist, no_graph_dumps, quiet, where

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    Array = np.ndarray[Any, np.dtype[Any]]

# A protobuf message ends at 2 GiB; the rest of the file takes some of it.
EXTERNAL_ABOVE = 2**31 - 2**26


@dataclass(frozen=True)
class Exported:
    """A named ONNX model in memory (`onnx_ir.Model`) and its nodes.json."""

    model: Any
    nodes: dict[str, Any]
    facts: dict[str, Any]


def eager_outputs(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Array]:
    """The model's outputs on `inputs` by name, as numpy in fp32, the main one first.

    Raises InputError when the model cannot run on them.
    """
    import torch

    try:
        with quiet(), torch.inference_mode():
            output = model(**models.tensors(dict(inputs)))
    except FAULTS as e:
        raise InputError(
            f"{type(model).__name__} cannot run on {', '.join(inputs)} alone ({gist(e)}{where(e)})",
            fix="use a shorter --seq, another model, or own.py with inputs that fit "
            "(layerline init own.py)",
        ) from e
    outputs = {
        k: v for k, v in nested.outputs(output, inputs).items() if isinstance(v, torch.Tensor)
    }
    if not outputs:
        raise InputError(
            f"{type(model).__name__} has no tensor among its outputs",
            fix="return tensors, alone or in a tuple or dict",
        )
    return {k: (v.float() if v.is_floating_point() else v).numpy() for k, v in outputs.items()}


def export(
    model: nn.Module,
    inputs: Mapping[str, Any],
    outputs: list[str],
    *,
    name: str,
    opset: int,
    precision: str = "fp32",
    open_axes: Mapping[str, Mapping[int, str]] | None = None,
    verbose: bool = False,
) -> Exported:
    """Export `model` (eval mode) and name its nodes after its modules; its parameters are frozen.

    Floating `inputs` get the precision of the weights. `open_axes`: for each input array the names
    of the axes that are left open; their size in `inputs` is two at least. Raises InputError when
    torch cannot export the model, or opset 17 cannot express it; CheckFailed when the result is
    not of the opset asked for.
    """
    import torch

    opsets.check_offered(opset)
    tree = naming.ModuleTree.of(model)
    model.requires_grad_(False)  # with gradients, attention is traced by way of other operators
    given = models.tensors(dict(inputs), precision)

    def traced() -> Any:
        from .tracing import gathered

        with quiet(verbose), no_graph_dumps(verbose), gathered(), torch.no_grad():
            return torch.onnx.export(
                model,
                (),
                kwargs=given,
                dynamo=True,
                opset_version=opsets.native(opset),
                dynamic_shapes=_dynamic_shapes(inputs, open_axes),
                input_names=list(nested.named(given)),
                output_names=outputs,
                verbose=verbose,
            )

    try:
        program = traced()
    except (torch.onnx.OnnxExporterError, *FAULTS) as e:
        error: Exception = e
        program = None
        if not open_axes and _of_library(model):  # what is the user's the user can change
            try:
                program = _as_decided(model, given, traced, name)
            except (torch.onnx.OnnxExporterError, *FAULTS) as again:
                error = again
        if program is None:
            what = f"{name}: torch cannot export it in {precision} ({gist(error)}{where(error)})"
            raise InputError(what, fix=_remedy(model, gist(error), precision)) from error
    graph = program.model
    if graph.opset_imports.get("") != opsets.native(opset):
        raise CheckFailed(
            f"{name}: torch wrote opset {graph.opset_imports.get('')}, not {opsets.native(opset)}"
        )
    naming.name_initializers(graph, model)
    named = naming.name_nodes(graph, tree)
    facts = {"nodes": len(named.nodes), "modules_from_neighbours": named.inferred}
    if opset == 17:
        facts["lowered_nodes"] = opsets.lower_to_17(graph)
        named = naming.rename_converted(graph, named.nodes, tree)
    naming.strip_metadata(graph)
    document = naming.document(name, graph, named, tree)
    document["tensors"] = tensors(graph)
    document["attributes"] = attributes(graph)
    written = {t for n in document["nodes"] for t in n["outputs"] if t}
    facts["tensors_without_shape"] = len(written - document["tensors"].keys())
    return Exported(graph, document, facts)


def _as_decided(
    model: nn.Module, given: dict[str, Any], traced: Callable[[], Any], name: str
) -> Any:
    """What is traced along the way that the code of a library's model takes on its example inputs.
    Raises what its code or the exporter raises."""
    from .tracing import Decisions

    with quiet():
        decisions = Decisions.of(model, given)
    with decisions.replayed():
        program = traced()
    places = decisions.places() or "and as it runs untraced"
    log(
        f"{name}: exported as its example inputs decide what its code does by values ({places}); "
        "other inputs may need another export"
    )
    return program


def _of_library(model: nn.Module) -> bool:
    return hasattr(getattr(model, "config", None), "_attn_implementation")


def _remedy(model: nn.Module, why: str, precision: str) -> str:
    """What to do about an error of the exporter."""
    if "complex" in why:  # there are no such tensors in ONNX
        return "choose another model, or own.py with a module that computes with real numbers"
    library = _of_library(model)
    if "data-dependent" in why:
        own = "own.py with a module that computes it otherwise"
        what = f"choose another model, or {own}" if library else "change that in the module"
        return f"what it computes hangs on values of its inputs: {what}"
    if precision != "fp32" and re.search("scalar type|dtype", why):
        return f"its own code does not compute in {precision}: use --precision fp32"
    if library:
        return "try --set attn_implementation=eager; --verbose shows all that torch says"
    return "change the module; --verbose shows all that torch says, and where"


def save(exported: Exported, path: Path, *, external_above: int = EXTERNAL_ABOVE) -> list[Path]:
    """Write the model to `path`, its weights beside it when they are above `external_above` bytes.

    Gives the files written. The weights' file is ``path`` + ``.data`` and referred to by name, so
    both can be moved together. `path` is not written atomically: give one in a folder of its own.
    """
    import onnx_ir as ir

    weights = exported.model.graph.initializers.values()
    size = sum(v.const_value.nbytes for v in weights if v.const_value is not None)
    if size <= external_above:
        ir.save(exported.model, path, format="protobuf")
        return [path]
    data = path.with_name(f"{path.name}.data")
    ir.save(exported.model, path, format="protobuf", external_data=data.name)
    return [path, data]


def tensors(model: Any) -> dict[str, dict[str, Any]]:
    """``{name: {"dtype": "float16", "shape": [1, 512, 768]}}`` of an `onnx_ir.Model`.

    Graph inputs, initializers and outputs of nodes, in this order. A dimension that is open is
    None; a tensor whose type or rank nobody knows is absent. Types have NumPy's names (bfloat16
    and narrower ones those of ml_dtypes).

    torch's exporter writes them on every value. A conversion to another opset leaves some out:
    ONNX's shape inference, which runs without the weights (so also above 2 GB), completes `model`.
    """
    if any(v.shape is None or v.dtype is None for v in _values(model)):
        from onnx_ir.passes.common import ShapeInferencePass

        ShapeInferencePass(check_type=False, strict_mode=False, data_prop=True)(model)
    return {
        v.name: {
            "dtype": v.dtype.numpy().name,
            "shape": [d if isinstance(d, int) else None for d in v.shape],
        }
        for v in _values(model)
        if v.shape is not None and v.dtype is not None
    }


def attributes(model: Any) -> dict[str, dict[str, int | str]]:
    """``{node: {"reduction": "add"}}``: the attributes of named nodes that are a number or text."""
    kinds = {"INT": "as_int", "STRING": "as_string"}
    found = {
        node.name: {
            name: getattr(attribute, kinds[attribute.type.name])()
            for name, attribute in node.attributes.items()
            if attribute.type.name in kinds and not attribute.is_ref()
        }
        for node in all_nodes(model.graph)
    }
    return {name: values for name, values in found.items() if values}


def _values(model: Any) -> Iterator[Any]:
    """Every tensor that has a name."""
    yield from (v for v in model.graph.inputs if v.name)
    yield from model.graph.initializers.values()
    for node in all_nodes(model.graph):
        yield from (v for v in node.outputs if v.name)


def check_file(path: Path, opset: int) -> None:
    """Raises CheckFailed unless onnx.checker accepts the file and its opset is `opset`."""
    import onnx

    try:
        onnx.checker.check_model(os.fspath(path))
    except (onnx.checker.ValidationError, ValueError) as e:
        raise CheckFailed(f"onnx.checker refuses the export ({gist(e)})", file=path.name) from e
    header = onnx.load(path, load_external_data=False)
    written = {o.domain: o.version for o in header.opset_import}
    if written.get("") != opset:
        raise CheckFailed(f"has opset {written.get('')}, not {opset}", file=path.name)


def open_axes(
    inputs: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[int, str]]:
    """For each input array the axes whose size is another in `others`: inputs made with another
    batch, or another sequence, by the axis's name."""
    found: dict[str, dict[int, str]] = {}
    for name, array in nested.named(inputs).items():
        found[name] = {
            axis: label
            for label, changed in others.items()
            for axis, (a, b) in enumerate(
                zip(array.shape, nested.named(changed)[name].shape, strict=True)
            )
            if a != b
        }
    return found


def _dynamic_shapes(inputs: Mapping[str, Any], axes: Mapping[str, Mapping[int, str]] | None) -> Any:
    """As torch.export wants them: nested as the inputs are."""
    if not axes:
        return None
    each = iter(nested.named(inputs))
    return nested.mapped(dict(inputs), lambda _array: dict(axes[next(each)]))
