"""`layerline layers`: what each layer of an engine costs, and which modules it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console

from ...core import nodes as nodes_file
from ...core import tables
from ...core.capture_names import PRECISIONS
from ...core.cli import progress
from ...core.cli.options import FilePath, examples, no_use
from ...core.errors import InputError
from ...core.files import apart, write_json
from ...core.nodes import NodeGraph
from ...core.resolve import Network, load_network
from ..attribution import layer_info
from ..captures import own_profile
from ..costs import layers as layers_
from ..model.layer import Times
from ..readers import registry
from ..readers.base import Artefact, Reader
from ..report.listing import layers as layers_text


def _write_json(path: Path, table: pa.Table) -> None:
    write_json(path, table.to_pylist())


_WRITERS = {".csv": tables.write_csv, ".parquet": tables.write_parquet, ".json": _write_json}


@click.command(
    epilog=examples(
        "layerline layers own.sqlite --nodes own.nodes.json",
        "layerline layers own.sqlite --nodes own.nodes.json --by module",
        "layerline layers profile.json --layer-info layers.json -o layers.csv",
    )
)
@click.argument("capture", type=FilePath())
@click.option(
    "--nodes",
    "nodes_path",
    type=FilePath(),
    help="nodes.json of the model: which ONNX node is of which module.",
)
@click.option(
    "--network",
    "network_path",
    type=FilePath(),
    help="network.json of the engine's build: what (Unnamed Layer* N) was.",
)
@click.option(
    "--layer-info",
    "info_path",
    type=FilePath(),
    help="The file of trtexec --exportLayerInfo: tensors, kinds and precisions, joined to CAPTURE "
    "by the names of layers.",
)
@click.option(
    "--precision",
    type=click.Choice(PRECISIONS),
    help="The engine's precision, to be written into the table of -o.",
)
@click.option(
    "--iteration",
    metavar="PATTERN",
    help="The name of the NVTX ranges that are iterations (* and ? match).  "
    "[default: TensorRT's enqueue]",
)
@click.option(
    "--by",
    type=click.Choice(("module", "kind")),
    help="Sum layers by module or by kind. A layer of several modules is in a row of these.",
)
@click.option("--explain", is_flag=True, help="Say what the rules mean that told the modules.")
@click.option(
    "-o",
    "--output",
    type=FilePath(),
    help="Write the table of layers to this file: .csv, .parquet or .json.",
)
def layers(
    capture: Path,
    nodes_path: Path | None,
    network_path: Path | None,
    info_path: Path | None,
    precision: str | None,
    iteration: str | None,
    by: str | None,
    explain: bool,
    output: Path | None,
) -> None:
    """List what each layer of an engine costs, and its modules.

    CAPTURE is an nsys export (SQLite, Parquet or Arrow), a list of layers or a profile of TensorRT,
    or a profile of ONNX Runtime; its kind is found from its content. With a profile of trtexec give
    its layer information as --layer-info. From a run's own profile of ONNX Runtime
    (RUN/captures/*.profile.json) warm-up is left out, as in its report.
    """
    if output is not None and output.suffix not in _WRITERS:
        raise InputError(
            f"cannot be written as {output.suffix or 'a file without suffix'}",
            file=output,
            fix=f"use {', '.join(_WRITERS)}",
        )
    if output is None:
        no_use(["precision"], "without -o: it is written into that table")
    if nodes_path is None:
        no_use(["network_path"], "without --nodes: it says which of these a layer is")
    apart(output, capture, nodes_path, network_path, info_path)
    graph = None if nodes_path is None else nodes_file.load(nodes_path)
    network = None if network_path is None else load_network(network_path)
    listed = own_profile.layer_list(capture, nodes_path) if network is None else None
    info = None if info_path is None else layer_info.load(info_path)
    table, notes, times = read_layers(capture, graph, network, precision, iteration, listed, info)
    for note in notes:
        progress.log(f"note: {note}")
    if output is not None:
        _WRITERS[output.suffix](output, table)
    console = Console(highlight=False, markup=False, emoji=False)
    resolved = graph is not None or listed is not None
    if by is not None and not any(table["modules" if by == "module" else "kind"].to_pylist()):
        raise InputError(f"does not tell the {by} of any layer", file=capture, fix=_TELLS[by])
    layers_text.show(console, table, times, resolved=resolved, by=by, explain=explain)


_TELLS = {
    "module": "name the model's nodes with --nodes nodes.json (layerline nodes MODEL.onnx)",
    "kind": "give --nodes nodes.json, or --layer-info of an engine built with detailed verbosity",
}


def read_layers(
    capture: Path,
    graph: NodeGraph | None,
    network: Network | None,
    precision: str | None = None,
    iteration: str | None = None,
    listed: Path | None = None,
    info: layer_info.LayerInfo | None = None,
) -> tuple[pa.Table, list[str], Times]:
    """The `layers` table of any artefact that names layers, what to know about it, and its times
    per iteration. `listed`: the layers.json that a run resolved its own profile with. `info`: what
    the engine says of its layers."""
    reader = registry.identify(capture)
    if reader.KIND.startswith("nsys-") and hasattr(reader, "source"):
        with (
            progress.progress(f"reading {capture.name}"),
            registry.reading(capture),
            reader.source(capture) as source,
        ):
            return layers_.of_nsys(source, graph, network, precision, iteration, info)
    if iteration is not None:
        raise InputError(
            f"is no capture of nsys ({reader.KIND}): it has no ranges to be iterations",
            file=capture,
            fix="leave --iteration out",
        )
    artefact, notes = _read(reader, capture)
    if listed is not None and "ops" in artefact.tables:
        ops = own_profile.resolved(artefact.tables["ops"], listed)
        artefact = replace(artefact, tables={**artefact.tables, "ops": ops})
        notes.append(f"modules are those of the run's {listed.name}, as in its report")
        graph = None
    try:
        table, own_notes = layers_.of_artefact(artefact, graph, network, info)
    except InputError as e:
        raise InputError(e.what, file=capture, fix=e.fix) from None
    if precision is not None:
        table = tables.with_columns(table, {"precision": [precision] * len(table)})
    return table, [*notes, *own_notes, *artefact.notes], layers_.times(artefact)


def _read(reader: Reader, capture: Path) -> tuple[Artefact, list[str]]:
    """The artefact, and what is to be said of its warm-up runs."""
    from ..readers.onnxruntime import profile

    if reader.KIND != profile.KIND:
        return registry.read(capture), []
    warmup = own_profile.warmup_runs(capture)
    with registry.reading(capture):
        artefact = profile.read(capture, warmup or 0)
    if warmup:
        return artefact, [f"{warmup} warm-up runs are left out (as the meta.json beside it says)"]
    if warmup is None and len(set(artefact.main["iteration"].to_pylist()) - {None}) > 1:
        return artefact, [
            "every run is counted, warm-up too: no meta.json beside the profile says how many were"
        ]
    return artefact, []
