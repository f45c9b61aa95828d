"""``layerline graph``: how modules depend on one another, as SVG or DOT, and for TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from ...core import documents, module_paths
from ...core import nodes as nodes_file
from ...core.capture_names import CaptureName, named
from ...core.cli.options import FilePath, examples, no_use, run_argument
from ...core.cli.progress import progress
from ...core.errors import InputError
from ...core.files import apart, write_text
from ...core.run import Run, open_run
from ..model.comparison import SideKey
from ..rundir import age
from ..rundir.files import needed, spare

if TYPE_CHECKING:
    import pyarrow as pa

    from ...core.nodes import NodeGraph
    from ..graph.model import ModuleGraph
    from ..graph.shading import Shading
    from ..graph.svg import Link

SUFFIXES = (".svg", ".dot")
COLOURS = ("cost", "memory", "hotness", "error")
_PAGE = "index.html"


@click.command(
    epilog=examples(
        "layerline graph runs/gpt2                      # RUN/report/graph.svg",
        "layerline graph runs/gpt2 --open transformer.h.3 --colour error",
        "layerline graph --nodes own.nodes.json -o own.dot",
    )
)
@run_argument(required=False)
@click.option(
    "--nodes",
    "nodes_path",
    type=FilePath(),
    help="A nodes.json instead of a run; nothing is then coloured.",
)
@click.option(
    "--from",
    "origin",
    type=click.Choice(["export", "autograd"]),
    help="Whose dataflow to draw: that of the exported nodes, or what autograd recorded of a "
    "forward pass in training (in a capture; without one the model is run once, with PyTorch).  "
    "[default: export, or autograd where only training recorded one]",
)
@click.option(
    "-o",
    "--output",
    type=FilePath(dir_okay=False),
    help="The file to write: .svg or .dot.  [default: RUN/report/graph.svg, else graph.svg]",
)
@click.option(
    "--depth",
    type=click.IntRange(min=1),
    help="How many names deep to show modules (transformer.h.0 is three).  "
    "[default: as deep as can be read]",
)
@click.option(
    "--open",
    "opened",
    multiple=True,
    metavar="MODULE",
    help="Show repeated blocks one by one: all of a list (transformer.h) or one of them "
    "(transformer.h.3). Repeatable.",
)
@click.option(
    "--colour",
    "--color",
    "colour",
    type=click.Choice(COLOURS),
    help="Colour modules by time, memory at the peak, changed parameters or an engine's error.  "
    "[default: cost, where the run has a report]",
)
@click.option(
    "--side",
    "side_key",
    metavar="KEY",
    help="Whose cost or error to show, as engine/fp16.tensorrt/inference or eager/fp32/step.  "
    "[default: the first of the run; with --from autograd the first training step]",
)
@click.option(
    "--tensorboard",
    type=FilePath(file_okay=False),
    help="Also write PyTorch's own trace of the run's model into this folder, for TensorBoard.",
)
def graph(
    run_path: Path | None,
    nodes_path: Path | None,
    origin: str | None,
    output: Path | None,
    depth: int | None,
    opened: tuple[str, ...],
    colour: str | None,
    side_key: str | None,
    tensorboard: Path | None,
) -> None:
    """Draw how the modules depend on one another.

    A box is a module, with the path that it has in the report; an arrow is a tensor. Repeated
    blocks are one box with their number. In the SVG each box links to the report. DOT is for
    Graphviz.
    """
    from ..graph import contract, dot, svg

    if (run_path is None) == (nodes_path is None):
        raise click.UsageError("name a run, or a nodes.json with --nodes: one of them")
    if nodes_path is not None:
        no_use(("origin", "colour", "side_key", "tensorboard"), "without a run")
    run = None if run_path is None else open_run(run_path)
    path = output or (Path("graph.svg") if run is None else run.file("report", "graph.svg"))
    if path.suffix not in SUFFIXES:
        raise InputError("a graph is written as SVG or DOT", file=path, fix="call it .svg or .dot")
    apart(path, nodes_path)
    if run is not None:
        spare(run, path)
        origin = origin or _recorded(run)
    with progress("drawing the graph"):
        nodes = _nodes(run, nodes_path, origin)
        _check_opened(nodes, opened)
        found = contract.contracted(nodes, depth, opened)
        shading = None if run is None else _shading(run, found, colour, side_key, origin)
        writer = svg.drawing if path.suffix == ".svg" else dot.text
        title = _title(run, nodes_path, origin, found)
        write_text(path, writer(found, nodes, title, shading, _links(run, path)))
        if run is not None and tensorboard is not None:
            _tensorboard(run, tensorboard)
    click.echo(path)
    if tensorboard is not None:
        click.echo(tensorboard)


def _recorded(run: Run) -> str:
    """Where the run has a graph: of its export, where there is none of training alone."""
    alone = not run.file("export", "nodes.json").exists() and _of_training(run)
    return "autograd" if alone else "export"


def _of_training(run: Run) -> list[Path]:
    return list(named(run.file("captures"), ".graph.json"))


def _nodes(run: Run | None, nodes_path: Path | None, origin: str | None) -> NodeGraph:
    """The graph of nodes that was asked for."""
    if run is None:
        assert nodes_path is not None
        return nodes_file.load(nodes_path)
    if origin == "export":
        return nodes_file.load(_exported(run, "nodes.json", "to draw"))
    if captured := _of_training(run):
        return nodes_file.load(captured[0])
    from ...profile.eager.autograd_graph import of_model

    return nodes_file.parse(of_model(_exported(run, "model.json", "to run")))


def _exported(run: Run, name: str, what_for: str) -> Path:
    path = run.file("export", name)
    if not path.exists():
        raise InputError(
            f"no such file, so there is no model {what_for}",
            file=path,
            fix="layerline export RUN writes it; layerline train … --profile graph records a graph",
        )
    return path


def _tensorboard(run: Run, folder: Path) -> None:
    import torch

    from ...export.models import load_spec
    from ...profile.eager import tensorboard_graph

    spec = load_spec(_exported(run, "model.json", "to run"))
    inputs = {k: torch.tensor(v) for k, v in spec.inputs().items()}
    tensorboard_graph.write(spec.build(), inputs, folder)


def _check_opened(nodes: NodeGraph, opened: tuple[str, ...]) -> None:
    known = {a for n in nodes.nodes if n.module for a in module_paths.ancestors(n.module)}
    for module in opened:
        if module not in known:
            raise InputError(
                f"--open: there is no module {module}",
                fix="name one as the report does, such as "
                + (next((p for p in sorted(known) if p), "") or "transformer.h"),
            )


def _title(run: Run | None, nodes_path: Path | None, origin: str | None, found: ModuleGraph) -> str:
    deep = f"modules {found.depth} names deep"
    if run is None:
        return f"{nodes_path and nodes_path.name}: {deep}"
    of = "recorded by autograd" if origin == "autograd" else "of the exported model"
    return f"{run.path.resolve().name}: the dataflow {of}, {deep}"


def _links(run: Run | None, path: Path) -> Link:
    """Addresses of modules in the run's page, from the file's own folder."""
    from ..graph.svg import anchor

    page = None if run is None else run.file("report", _PAGE)
    if page is None or not page.exists():
        return lambda module: None
    near = os.path.relpath(page.resolve(), path.resolve().parent)
    address = quote(Path(near).as_posix())
    return lambda module: address + anchor(module)


# --- colours -------------------------------------------------------------------------------------


def _shading(
    run: Run, graph: ModuleGraph, colour: str | None, side_key: str | None, origin: str | None
) -> Shading | None:
    """The colours that were asked for; of cost, where nothing was and the run has tables."""
    if colour is None and not run.file("tables", "ops.parquet").exists():
        return None
    if colour in ("memory", "hotness"):
        no_use(("side_key",), f"with --colour {colour}")
        return _of_table(run, graph, colour)
    if colour == "error":
        return _error(run, graph, side_key)
    return _cost(run, graph, side_key, origin)


def _cost(run: Run, graph: ModuleGraph, side_key: str | None, origin: str | None) -> Shading:
    import pyarrow.compute as pc

    from ..graph import shading

    age.check(run)  # the tables are the report's
    sides = _sides(_table(run, "modules"))
    ops = _table(run, "ops")
    first = "train" if origin == "autograd" else "engine"
    preferred = [k for k, (source, _) in sides.items() if _task(source) == first]
    steps = [k for k in preferred if k.endswith("/step")]
    key = _chosen(run, side_key, [*steps, *preferred, *sides])
    source, phase = sides[key]
    ops = ops.filter(pc.equal(ops["source"], source))
    if phase != "step":
        ops = ops.filter(pc.equal(ops["phase"], phase))
    return shading.cost(graph, ops, f"share of the operation time of {key}")


def _task(source: str) -> str:
    name = CaptureName.parse(source)
    return "" if name is None else name.task


def _sides(modules: pa.Table) -> dict[str, tuple[str, str]]:
    """Source and phase of each side that has costs, by its key."""
    found: dict[str, tuple[str, str]] = {}
    columns = modules.select(["side", "source", "precision", "phase"])
    for row in columns.group_by(columns.column_names, use_threads=False).aggregate([]).to_pylist():
        name = CaptureName.parse(row["source"] or "")
        backend = name.backend if name is not None and name.backend else "torch"
        of = SideKey(
            task=row["side"],
            precision=row["precision"],
            backend=backend,
            phase=row["phase"],
            rank=None if name is None else name.rank,
        )
        found[of.key] = row["source"], row["phase"]
    return found


def _chosen(run: Run, asked: str | None, keys: list[str]) -> str:
    """The side that was asked for, or the first; InputError where it is not there."""
    known = list(dict.fromkeys(keys))
    if not known:
        raise InputError("no side of the run has costs", file=run.path, fix="profile it")
    if asked is None:
        return known[0]
    if asked not in known:
        raise InputError(
            f"there is no side {asked}", file=run.path, fix=f"there are: {', '.join(sorted(known))}"
        )
    return asked


def _of_table(run: Run, graph: ModuleGraph, colour: str) -> Shading:
    from ..captures import columns as captured
    from ..costs.columns import peak
    from ..graph import shading

    name = "memory" if colour == "memory" else "parameters"
    of, table = next(captured.tables(run, name), (None, None))
    if table is None:
        raise InputError(
            f"has no table of {name}",
            file=run.path,
            fix=f"record it with `layerline train --profile {name}`",
        )
    capture = f", {of}" if of else ""
    if colour == "memory":
        title = f"bytes alive at the peak of memory{capture}"
        return shading.memory(graph, peak(table), title)
    return shading.hotness(graph, table, f"share of elements that change in a step{capture}")


def _error(run: Run, graph: ModuleGraph, side_key: str | None) -> Shading:
    from ..graph import shading

    found: dict[str, Mapping[str, documents.ModuleError]] = {}
    for path, name in named(run.file("captures"), ".accuracy.modules.json").items():
        if name.backend is None:
            continue
        read = needed(path, documents.ModuleErrors)
        key = SideKey(
            task="engine", precision=name.precision, backend=name.backend, phase="inference"
        ).key
        found[key] = {} if read is None else {m.module: m for m in read.modules}
    if not found:
        raise InputError(
            "no error by module was measured", file=run.path, fix="run `layerline accuracy`"
        )
    key = _chosen(run, side_key, list(found))
    return shading.error(graph, found[key], f"relative error of outputs of {key}")


def _table(run: Run, name: str) -> pa.Table:
    """A table of the run. InputError where it is not there."""
    from ...core.tables import read_parquet

    path = run.file("tables", f"{name}.parquet")
    if not path.exists():
        raise InputError("is not there", file=path, fix="make the report (layerline report)")
    return read_parquet(path, name)
