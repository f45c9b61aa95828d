"""The same graph as DOT, for Graphviz and whatever reads its language."""

from __future__ import annotations

from collections.abc import Iterator

from ...core.nodes import NodeGraph
from .. import formatting
from .model import Box, ModuleGraph
from .shading import Shading
from .svg import Link, carried, colour, details, lines_of, part_of, times

_STYLES = {"data": "solid", "next": "dashed", "parameter": "dotted"}


def text(
    graph: ModuleGraph,
    nodes: NodeGraph,
    title: str,
    shading: Shading | None = None,
    link: Link = lambda module: None,
) -> str:
    """The whole file; parameters as of `svg.drawing`."""
    return "\n".join(_lines(graph, nodes, title, shading, link)) + "\n"


def _lines(
    graph: ModuleGraph, nodes: NodeGraph, title: str, shading: Shading | None, link: Link
) -> Iterator[str]:
    label = title if shading is None else f"{title}\n{shading.title}"
    yield "digraph modules {"
    yield f"  graph [label={_quoted(label)}, labelloc=t, fontname=Helvetica, compound=true];"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname=Helvetica];'
    yield from _inside(graph, None, shading, link)
    for arrow in graph.arrows:
        about = {
            "style": _STYLES[arrow.kind],
            "tooltip": "\n".join(carried(arrow, graph, nodes)),
            # The order of the drawing is that of the data within a block.
            **({} if arrow.kind == "data" else {"constraint": "false"}),
        }
        yield f"  {_quoted(arrow.source)} -> {_quoted(arrow.target)} {_attributes(about)};"
    yield "}"


def _inside(
    graph: ModuleGraph, around: str | None, shading: Shading | None, link: Link
) -> Iterator[str]:
    """The groups and boxes within one group, or outside of all."""
    for group in graph.groups:
        if group.parent == around:
            name = group.path + times(graph, len(group.modules), group.parent)
            yield f"  subgraph {_quoted(f'cluster_{group.path}')} {{"
            yield f"  label={_quoted(name)}; labeljust=l; color=gray;"
            yield from _inside(graph, group.path, shading, link)
            yield "  }"
    for box in graph.boxes:
        if graph.group_of(box) == around:
            yield f"  {_quoted(box.id)} {_attributes(_about(graph, box, shading, link))};"


def _about(graph: ModuleGraph, box: Box, shading: Shading | None, link: Link) -> dict[str, str]:
    about = {
        "label": "\n".join(t for t in lines_of(graph, box, shading) if t),
        "tooltip": "\n".join(details(box, shading)),
    }
    part = part_of(shading, box)
    if part is not None:
        about["fillcolor"] = colour(part)
        about |= {"fontcolor": "white"} if part > 0.62 else {}
    address = link(box.modules[0]) if box.modules else None
    return about | ({} if address is None else {"URL": address})


def _attributes(values: dict[str, str]) -> str:
    return "[" + ", ".join(f"{k}={_quoted(v)}" for k, v in values.items()) + "]"


def _quoted(value: str) -> str:
    """A quoted string of DOT, in which a backslash would begin an escape."""
    lines = (formatting.visible(line) for line in value.split("\n"))
    kept = (line.replace("\\", "\\\\").replace('"', '\\"') for line in lines)
    return '"' + "\\n".join(kept) + '"'
