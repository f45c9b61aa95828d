"""`layerline metrics`: counters of an ncu capture as files, charts, text and rooflines."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import click

from ...core import nodes as nodes_file
from ...core.cli.groups import Group
from ...core.cli.options import FilePath, examples, names
from ...core.cli.progress import log, progress
from ...core.errors import InputError, one_line
from ...core.files import apart, folder, write_text
from ...core.resolve import load_network

_PATH: Any = FilePath()
_capture = click.argument("capture", type=_PATH)
_static = click.option(
    "--static", is_flag=True, help="Also show attributes of the device and of the tool."
)
_by = click.option(
    "--by",
    type=click.Choice(["layer", "module"]),
    default="layer",
    show_default=True,
    help="What a row is.",
)
_metric = click.option(
    "-m",
    "--metric",
    "chosen",
    multiple=True,
    callback=names,
    help="The name of a metric; repeatable.",
)
_nodes = click.option("--nodes", type=_PATH, help="nodes.json of the model.")
_network = click.option("--network", type=_PATH, help="network.json of the engine's build.")


@click.group(
    cls=Group,
    epilog=examples(
        "layerline metrics explain own.ncu-rep",
        "layerline metrics roofline own.ncu-rep --by module --nodes nodes.json",
    ),
)
def metrics() -> None:
    """Turn counters of an ncu capture into files, charts and text.

    CAPTURE is a report (.ncu-rep), ncu's CSV, a capture in pieces (.ncu.batches), or a run's
    tables/counters.parquet.
    """


@metrics.command("list", epilog=examples("layerline metrics list own.ncu-rep"))
@_capture
@_static
def list_(capture: Path, static: bool) -> None:
    """List the metrics that are numbers.

    A line has the name, the unit, and how many launches have a value.
    """
    from ..metrics import series

    loaded = _load(capture)
    known = series.every(loaded.counters, loaded.name, static=static)
    for one in series.series(loaded.counters, known, loaded.name):
        click.echo("\t".join(map(one_line, (one.metric, one.unit or "-", str(one.known)))))


@metrics.command(epilog=examples("layerline metrics extract own.ncu-rep -o metrics"))
@_capture
@_metric
@_static
@click.option("-o", "--output", type=_PATH, required=True, help="The folder for the .npz files.")
def extract(capture: Path, chosen: tuple[str, ...], static: bool, output: Path) -> None:
    """Write each metric as a NumPy file, METRIC_SUBMETRIC.npz.

    Its arrays are value (base units, NaN where unknown), cumulative_time_ns, kernel_id, unit and
    metric.
    """
    from ..metrics import series

    loaded = _load(capture, chosen)
    wanted = chosen or series.every(loaded.counters, loaded.name, static=static)
    paths = series.write_all(series.numbers(loaded.counters, wanted, loaded.name), output)
    log(f"{len(paths)} metrics in {output}")


@metrics.command(epilog=examples("layerline metrics plot own.ncu-rep --format svg -o charts"))
@_capture
@_metric
@click.option(
    "--format",
    "suffix",
    type=click.Choice(["pdf", "svg", "png"]),
    default="pdf",
    show_default=True,
    help="The format of the charts.",
)
@click.option("-o", "--output", type=_PATH, required=True, help="The folder for the charts.")
def plot(capture: Path, chosen: tuple[str, ...], suffix: str, output: Path) -> None:
    """Draw a chart for each metric, over the kernels of the capture."""
    from ..metrics import plots, series

    loaded = _load(capture, chosen)
    known = chosen or series.every(loaded.counters, loaded.name)
    # Sizes of launches are charts only where there is nothing else, or they are named.
    wanted = chosen or [m for m in known if not m.startswith("launch__")] or known
    drawn = series.numbers(loaded.counters, wanted, loaded.name)
    paths = series.paths([one.metric for one in drawn], output, f".{suffix}")
    folder(output)
    with progress(f"drawing {len(wanted)} charts", len(paths)) as doing:
        for one, path in zip(drawn, paths, strict=True):
            plots.plot(one, loaded, path)
            doing.done()
    log(f"{len(wanted)} charts in {output}")


@metrics.command(
    epilog=examples(
        "layerline metrics overlay own.ncu-rep -o both.svg \\",
        "    -m gpu__time_duration.sum -m dram__bytes.sum",
    )
)
@_capture
@_metric
@click.option(
    "-o", "--output", type=_PATH, required=True, help="The chart to write: .pdf, .svg or .png."
)
def overlay(capture: Path, chosen: tuple[str, ...], output: Path) -> None:
    """Draw several metrics on one logarithmic axis, in base units."""
    from ..metrics import plots, series

    plots.check(output)
    apart(output, capture)
    loaded = _load(capture, chosen)
    plots.overlay(series.numbers(loaded.counters, chosen, loaded.name), loaded, output)
    log(f"{output}")


@metrics.command(
    epilog=examples("layerline metrics attribute own.ncu-rep -m dram__bytes.sum --by module")
)
@_capture
@click.option(
    "-m", "--metric", "chosen", multiple=True, required=True, callback=names, help="The metric."
)
@_by
@_nodes
@_network
@click.option(
    "-o", "--output", type=_PATH, help="Write the text to this file.  [default: print it]"
)
def attribute(
    capture: Path,
    chosen: tuple[str, ...],
    by: str,
    nodes: Path | None,
    network: Path | None,
    output: Path | None,
) -> None:
    """Print one metric for each layer or module."""
    from ..metrics import text

    if len(chosen) > 1:
        raise click.UsageError(f"one metric at a time: {chosen[0]} or {chosen[1]}")
    metric = chosen[0]
    apart(output, capture, nodes, network)
    loaded = _load(capture, chosen)
    launches = _launches(loaded, by, nodes, network)
    listing = text.attribute(loaded, metric, launches, by)
    _tell_coverage(loaded, launches, nodes)
    if output is not None:
        write_text(output, listing)
    elif (width := _terminal()) is None:
        click.echo(listing, nl=False)
    else:
        for line in listing.splitlines():
            click.echo(text.narrowed(line, width))


@metrics.command(
    epilog=examples(
        "layerline metrics explain own.ncu-rep",
        "layerline metrics explain -m dram__bytes.sum",
    )
)
@click.argument("capture", type=_PATH, required=False)
@_metric
def explain(capture: Path | None, chosen: tuple[str, ...]) -> None:
    """Explain what metrics mean, and what their values suggest."""
    from ..metrics import explain as explained

    if capture is None and not chosen:
        raise InputError("nothing to explain", fix="name a capture, or a metric with --metric")
    if capture is None:
        lines = explained.of_names(chosen)
    else:
        lines = explained.of_capture(_load(capture, chosen), chosen)
    for line in lines:
        click.echo(one_line(line))


@metrics.command(
    epilog=examples("layerline metrics roofline own.ncu-rep --by module --nodes nodes.json")
)
@_capture
@_by
@_nodes
@_network
@click.option(
    "-o", "--output", type=_PATH, help="Write the table to this file: .csv, .parquet or .json."
)
def roofline(
    capture: Path, by: str, nodes: Path | None, network: Path | None, output: Path | None
) -> None:
    """Show what bounds each layer or module: FLOP, bytes, and the peaks."""
    from ...core.capture_names import CaptureName
    from ...core.files import read_json
    from ..metrics import text
    from ..roofline.floor import in_precision, shapes_of
    from ..roofline.flop import Shapes

    apart(output, capture, nodes, network)
    loaded = _load(capture)
    launches = _launches(loaded, by, nodes, network)
    graph = None if nodes is None else nodes_file.load(nodes)
    shapes: Shapes | None = None if nodes is None else shapes_of(read_json(nodes))
    own = CaptureName.parse(capture)
    if shapes is not None and own is not None:
        # An export has the nodes of inference: a training step has no floor.
        shapes = None if own.task == "train" else in_precision(shapes, own.precision)
    table = text.roofline_table(loaded, launches, by, graph, shapes)
    if output is not None:
        text.write_table(output, table)
    _tell_coverage(loaded, launches, nodes)
    for line in text.roofline_lines(loaded, table, _terminal()):
        click.echo(one_line(line))


def _load(capture: Path, asked: tuple[str, ...] = ()) -> Any:
    """The capture, with the metrics `asked` for by section; what its reader left out, and what
    else is to be said of it, is logged."""
    from ..metrics import capture as capture_

    with progress(f"reading {capture.name}"):
        loaded = capture_.load(capture, asked)
    for note in loaded.notes:
        log(f"{loaded.name}: {note}")
    return loaded


def _terminal() -> int | None:
    """Characters in a line of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _tell_coverage(capture: Any, launches: Any, nodes: Path | None) -> None:
    """Warn where the modules of much of the time are not known."""
    from ..attribution.resolution import FITS
    from ..metrics import text

    lacking = text.coverage(capture, launches)
    if lacking is not None:
        log(f"warning: {lacking}" + (f"; {FITS}" if nodes else ""))


def _launches(capture: Any, by: str, nodes: Path | None, network: Path | None) -> Any:
    """The launches of a capture with what is known of them. InputError where modules or nodes are
    asked for of ranges that were replayed as one."""
    from ...core.own_ranges import modules_of_range
    from ..counters import launches

    if capture.ranges and (by == "module" or nodes is not None):
        raise InputError(
            "holds ranges that were replayed as one, of no layer and no module",
            file=capture.name,
            fix="leave out --by and --nodes, or capture kernels (no --replay-mode range)",
        )
    if nodes is None:
        if network is not None:
            raise InputError("is of no use without nodes", file=network, fix="give --nodes too")
        return launches.of_table(capture.counters)
    graph = nodes_file.load(nodes)
    joined = launches.launches(
        capture.counters, graph, None if network is None else load_network(network)
    )
    if not any(launch.nodes or modules_of_range(launch.layer) for launch in joined):
        log(f"{nodes}: no layer of {capture.name} is one of its nodes; is it of this engine?")
    return joined
