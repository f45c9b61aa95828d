"""`layerline nodes`: nodes.json of an ONNX file that somebody else exported.

Node names stay as the file has them, because engines built from it carry these. Modules come from
what torch's exporters leave:

- dynamo: the metadata ``pkg.torch.onnx.name_scopes`` of each node (`naming`);
- TorchScript (``dynamo=False``): names ``/layers.0/fc/MatMul_1``, the path of attributes and the
  operator. A child of an nn.Sequential repeats its parent (``/net/net.0/Relu``). A module that is
  called again has a number there (``/fc_1/Gemm``), which cannot be told from a name;
- this project's exporter: names ``layers.0.fc/MatMul_1``.

Of nodes without either (an optimiser's, a quantiser's) a weight or the output may tell it; the
others lie between their neighbours in the dataflow (`foreign_names`), and what has none of these
has no module. A node without a name is called
``node_of_OUTPUT``, as TensorRT's parser calls it (``getNodeName`` in onnx-tensorrt). Several nodes
of one name get `` #1``, `` #2``: which of them a layer is, the name does not say.
"""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..core.cli.options import FilePath, examples
from ..core.cli.progress import log, progress
from ..core.errors import InputError, ToolMissing
from ..core.files import apart, at_most, open_regular, read_json, write_json
from ..core.labels import all_labelled
from . import foreign_names, naming
from .quiet import gist, quiet


@click.command(
    epilog=examples(
        "layerline nodes own.onnx                     # writes own.nodes.json",
        "layerline layers own.sqlite --nodes own.nodes.json",
    )
)
@click.argument("model", type=FilePath(), metavar="MODEL.onnx")
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="The file to write.  [default: MODEL.nodes.json beside the model]",
)
def nodes(model: Path, output: Path | None) -> None:
    """Write which node of your own ONNX file is of which module.

    `layerline layers --nodes` reads the file that this writes. Nodes keep their names, so that the
    layers of an engine built from the file are found; modules are those that torch's exporters
    left (metadata of the dynamo exporter, names /path/Op of the older one).
    """
    if importlib.util.find_spec("onnx_ir") is None:
        raise ToolMissing("reading an ONNX file needs onnx-ir", fix="pip install onnx onnx-ir")
    target = output or model.with_suffix(".nodes.json")
    apart(target, model)
    _keep(target, model.name)
    with progress(f"reading {model.name}"):
        own = read(model)
    write_json(target, own.document)
    count = len(own.document["nodes"])
    parts = [f"{own.known:,} tell their module"]
    if own.inferred:
        parts.append(f"{own.inferred:,} have that of their neighbours")
    if own.unknown:
        parts.append(f"{own.unknown:,} have none")
    log(f"wrote {target}: {count:,} nodes, of which {', '.join(parts)}")
    if not own.known:
        log(
            "note: no node tells its module (no scopes of torch's exporter, no names path/Op); "
            "layers resolve to nodes, not to modules"
        )
    if own.unnamed:
        log(f"note: {own.unnamed:,} nodes have no name; they are called node_of_OUTPUT")
    if own.repeated:
        log(
            f"note: {own.repeated:,} nodes share their name with others and are numbered; a layer "
            "of such a name resolves by its tensors alone"
        )
    if own.functions:
        log(
            f"note: the model has {own.functions:,} local functions, whose nodes an engine may "
            "name otherwise; onnx.inliner.inline_local_functions makes them plain nodes"
        )


def _keep(target: Path, model: str) -> None:
    """InputError where the target is the nodes.json of another model, as a run has beside its
    fp32.onnx: that one knows more, and the run cannot be read without it."""
    try:
        there = read_json(target) if target.exists() else None
    except InputError:
        return
    of = there.get("model", model) if isinstance(there, dict) else model
    if of != model:
        fix = "layerline layers --nodes takes it as it is; name another output with -o"
        raise InputError(f"is there already, of {of}", file=target, fix=fix)


@dataclass(frozen=True)
class ForeignNodes:
    """nodes.json, and how many of its nodes name their module themselves, have that of a
    neighbour, have none; how many had no name, or one that others have; how many local functions
    the model has, whose insides are not looked at."""

    document: dict[str, Any]
    known: int
    inferred: int
    unknown: int
    unnamed: int
    repeated: int
    functions: int


def read(path: Path) -> ForeignNodes:
    """nodes.json of any ONNX file. Weights beside it are not read and need not be there.

    InputError where it is missing or no ONNX model.
    """
    model = _load(path)
    try:
        found = _of(model, path.name)
    except _BROKEN as e:
        raise InputError(f"is no usable ONNX model ({gist(e)})", file=path, fix=_FIX) from None
    if not _is_text(found.document):
        raise InputError("holds names that are not UTF-8", file=path, fix=_FIX)
    return found


def _is_text(value: Any) -> bool:
    """Whether a document holds no bytes: what is no UTF-8 in a file comes as these."""
    if isinstance(value, dict):
        return all(map(_is_text, (*value, *value.values())))
    return (
        all(map(_is_text, value)) if isinstance(value, list | tuple) else type(value) is not bytes
    )


def _of(model: Any, name: str) -> ForeignNodes:
    nodes = list(naming.all_nodes(model.graph))
    known: dict[Any, str] = {}
    classes: dict[Any, str | None] = {}
    for node in nodes:
        scopes, names = (_listed(node, key) for key in (naming.SCOPES, naming.HIERARCHY))
        classes[node] = None
        module = foreign_names.module(node)
        if len(scopes) > 1:
            module = naming.spelled(scopes[-2], own=False)
            if len(names) == len(scopes):
                classes[node] = names[-2].rpartition(".")[2]
        if module is not None:
            known[node] = module
    modules = foreign_names.between(nodes, known)
    names, repeated = _names(nodes)
    named = [
        naming.node_of(node, name, modules.get(node), classes[node])
        for node, name in zip(nodes, names, strict=True)
    ]
    return ForeignNodes(
        naming.nodes_json(name, model, named, {}),
        known=len(known),
        inferred=len(modules) - len(known),
        unknown=len(nodes) - len(modules),
        unnamed=sum(not n.name for n in nodes),
        repeated=repeated,
        functions=len(model.functions),
    )


_FIX = "name the .onnx file that the engine was built from"
MOST_MODEL = (1 << 31) - 1  # bytes, of protobuf
# What parsing raises of a file that anybody may have written.
_BROKEN = (ValueError, TypeError, RuntimeError, LookupError, AttributeError, ArithmeticError,
           AssertionError, MemoryError)  # fmt: skip


def _load(path: Path) -> Any:
    import onnx_ir as ir
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from onnx import load_model_from_string

    try:
        with open_regular(path) as file:
            data = at_most(file, MOST_MODEL)
    except OSError as e:
        raise InputError(f"cannot be read ({e.strerror or e})", file=path) from None
    if data is None:
        what = "is larger than any ONNX file (2 GiB: its format holds no more)"
        raise InputError(what, file=path, fix=_FIX)
    try:
        with quiet():
            # Whatever the name ends in: by that onnx would choose among text formats.
            model = ir.serde.deserialize_model(load_model_from_string(data))
    except (*_BROKEN, DecodeError) as e:
        raise InputError(f"is no ONNX model ({gist(e)})", file=path, fix=_FIX) from None
    if not len(model.graph):
        raise InputError("is no ONNX model, or has no node", file=path, fix=_FIX)
    return model


def _listed(node: Any, key: str) -> list[str]:
    """A list that torch's exporter wrote as text; empty where it is none: the file is anybody's."""
    try:
        value = ast.literal_eval(node.metadata_props.get(key, "[]"))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
    return [str(v) for v in value] if isinstance(value, list) else []


def _names(nodes: list[Any]) -> tuple[list[str], int]:
    """A unique name for each node; how many had one that others have."""
    own = [n.name or f"node_of_{next((o.name for o in n.outputs), n.op_type)}" for n in nodes]
    return all_labelled(own), sum(n for n in Counter(own).values() if n > 1)
