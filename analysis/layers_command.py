"""`layerline layers`: what each layer of an engine costs, and which modules it is."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click
import pyarrow as pa
from rich.console import Console

from layerline.core import nodes as nodes_file
from layerline.core import progress, tables
from layerline.core.errors import InputError
from layerline.core.files import apart, write_json
from layerline.core.nodes import NodeGraph
from layerline.core.resolve import Network, load_network

from . import layers_generic, layers_show
from .readers import registry

_WRITERS = (".csv", ".parquet", ".json")


@click.command()
@click.argument("capture", type=click.Path(path_type=Path))
@click.option(
    "--nodes",
    "nodes_path",
    type=click.Path(path_type=Path),
    help="nodes.json of the exported model: which ONNX node is which module.",
)
@click.option(
    "--network",
    "network_path",
    type=click.Path(path_type=Path),
    help="network.json of the engine's build: what (Unnamed Layer* N) was.",
)
@click.option("--precision", help="Precision of the engine, written into the table.")
@click.option(
    "--iteration",
    metavar="PATTERN",
    help="Name of the NVTX ranges that are iterations (* and ? match); default: "
    "TensorRT's enqueue.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write the table: .csv, .parquet or .json.",
)
def layers(
    capture: Path,
    nodes_path: Path | None,
    network_path: Path | None,
    precision: str | None,
    iteration: str | None,
    output: Path | None,
) -> None:
    """What each layer of an engine costs, and which modules it is.

    CAPTURE is an nsys export (SQLite, Parquet or Arrow), a TensorRT layer list or profile, or an
    ONNX Runtime profile; its kind is found from its content.
    """
    if output is not None and output.suffix not in _WRITERS:
        raise InputError(
            f"cannot be written as {output.suffix or 'a file without suffix'}",
            file=output,
            fix=f"use {', '.join(_WRITERS)}",
        )
    apart(output, capture, nodes_path, network_path)
    graph = None if nodes_path is None else nodes_file.load(nodes_path)
    network = None if network_path is None else load_network(network_path)
    found, notes = read_layers(capture, graph, network, precision, iteration)
    for note in notes:
        progress.log(f"note: {note}")
    if output is not None:
        _write(output, found)
    width = shutil.get_terminal_size((150, 50)).columns if sys.stdout.isatty() else 150
    console = Console(highlight=False, markup=False, width=width)
    layers_show.show(console, found, resolved=graph is not None)


def read_layers(
    capture: Path,
    graph: NodeGraph | None,
    network: Network | None,
    precision: str | None = None,
    iteration: str | None = None,
) -> tuple[pa.Table, list[str]]:
    """The `layers` table of any artefact that names layers, and what to know about it."""
    reader = registry.identify(capture)
    if reader.KIND.startswith("nsys-") and hasattr(reader, "source"):
        from . import timeline_layers

        with progress.progress(f"reading {capture.name}"), reader.source(capture) as source:
            return timeline_layers.of_source(source, graph, network, precision, iteration)
    artefact = reader.read(capture)
    try:
        found = layers_generic.layers(artefact, graph, network)
    except InputError as e:
        raise InputError(e.what, file=capture, fix=e.fix) from None
    if precision is not None:
        at = found.schema.get_field_index("precision")
        values = pa.array([precision] * len(found), pa.string())
        found = found.set_column(at, found.schema.field(at), values)
    return found, list(artefact.notes)


def _write(path: Path, found: pa.Table) -> None:
    if path.suffix == ".parquet":
        tables.write_parquet(path, found)
    elif path.suffix == ".csv":
        tables.write_csv(path, found)
    else:
        write_json(path, found.to_pylist())
