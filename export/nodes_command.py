"""`layerline nodes`: nodes.json of an ONNX file from anywhere."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import click

from ..core.cli.options import FilePath
from ..core.cli.progress import log, progress
from ..core.errors import ToolMissing
from ..core.files import apart, write_json


@click.command()
@click.argument("model", type=FilePath(), metavar="MODEL.onnx")
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="The file to write. [default: MODEL.nodes.json beside the model]",
)
def nodes(model: Path, output: Path | None) -> None:
    """nodes.json of your own ONNX file, for `layers --nodes`.

    Nodes are named as in the file, so that engines built from it resolve; modules are what
    torch's exporters left (metadata of the dynamo exporter, names /path/Op of the older one).
    """
    if importlib.util.find_spec("onnx_ir") is None:
        raise ToolMissing("reading an ONNX file needs onnx-ir", fix="pip install onnx onnx-ir")
    from . import foreign_file

    target = output or model.with_suffix(".nodes.json")
    apart(target, model)
    with progress(f"reading {model.name}"):
        told = foreign_file.read(model)
    write_json(target, told.document)
    count = len(told.document["nodes"])
    parts = [f"{told.known:,} tell their module"]
    if told.inferred:
        parts.append(f"{told.inferred:,} have that of their neighbours")
    if told.unknown:
        parts.append(f"{told.unknown:,} have none")
    log(f"wrote {target}: {count:,} nodes, of which {', '.join(parts)}")
    if not told.known:
        log(
            "note: no node tells its module (no scopes of torch's exporter, no names path/Op); "
            "layers resolve to nodes, not to modules"
        )
    if told.unnamed:
        log(f"note: {told.unnamed:,} nodes have no name; they are called node_of_OUTPUT")
    if told.repeated:
        log(
            f"note: {told.repeated:,} nodes share their name with others and are numbered; a layer "
            "of such a name resolves by its tensors alone"
        )
    if told.functions:
        log(
            f"note: the model has {told.functions:,} local functions, whose nodes an engine may "
            "name otherwise; onnx.inliner.inline_local_functions makes them plain nodes"
        )
