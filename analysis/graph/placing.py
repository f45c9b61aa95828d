"""Where boxes and arrows lie: a layered drawing from top to bottom, groups around their boxes.

The one place that knows graphlay (MIT or Apache 2.0), which lays a graph out in layers after
Sugiyama, with boxes of any size, groups and arrows around boxes; the same graph always alike.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.errors import ToolMissing
from .model import Arrow, ModuleGraph

Point = tuple[float, float]
_OPTIONS = {
    "direction": "topbottom",
    "spacing": {
        "layer_gap": 30,
        "node_gap": 26,
        "compound_header": 20,
        "compound_padding": 14,
        "port_gap": 14,
    },
    "routing": {"merge_edges": "none"},
}


@dataclass(frozen=True)
class Rectangle:
    """Its corner at the top left, its width and height."""

    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Places:
    """Boxes by id, groups by path, and a line for each arrow in the graph's order."""

    boxes: Mapping[str, Rectangle]
    groups: Mapping[str, Rectangle]
    lines: Sequence[tuple[Arrow, Sequence[Point]]]
    width: float
    height: float


def placed(graph: ModuleGraph, sizes: Mapping[str, tuple[float, float]]) -> Places:
    """The drawing; `sizes`: width and height of each box by id. ToolMissing without graphlay."""
    try:
        import graphlay
    except ImportError as e:
        raise ToolMissing(
            f"a drawing needs graphlay ({e})",
            fix="pip install 'layerline[graph]', or write .dot and draw it with Graphviz",
        ) from None
    drawing = graphlay.Graph()
    at: dict[str, int] = {}
    for group in graph.groups:
        about = {} if group.parent is None else {"parent": at[group.parent]}
        at[group.path] = drawing.node(width=10, height=10, **about)
    number: dict[str, int] = {}
    for box in graph.boxes:
        width, height = sizes[box.id]
        around = graph.group_of(box)
        about = {} if around is None else {"parent": at[around]}
        number[box.id] = drawing.node(width=width, height=height, **about)
    for arrow in graph.arrows:
        weight = 2.0 if arrow.kind == "data" else 0.5
        drawing.edge(number[arrow.source], number[arrow.target], weight=weight)
    made = graphlay.layout(drawing, options=_OPTIONS)
    left, top = made.bounds["min"]["x"], made.bounds["min"]["y"]
    rectangles = [
        Rectangle(
            n["center"]["x"] - n["size"]["width"] / 2 - left,
            n["center"]["y"] - n["size"]["height"] / 2 - top,
            n["size"]["width"],
            n["size"]["height"],
        )
        for n in made.nodes
    ]
    lines = [
        (arrow, [(p["x"] - left, p["y"] - top) for p in edge["points"]])
        for arrow, edge in zip(graph.arrows, made.edges, strict=True)
    ]
    groups = len(graph.groups)
    return Places(
        {b.id: r for b, r in zip(graph.boxes, rectangles[groups:], strict=True)},
        {g.path: r for g, r in zip(graph.groups, rectangles[:groups], strict=True)},
        lines,
        made.bounds["max"]["x"] - left,
        made.bounds["max"]["y"] - top,
    )


def text_width(text: str, size: float) -> float:
    """How wide a text may be in a sans-serif font of `size` px: what it needs is not known here."""
    return size * sum(_width(c) for c in text)


def _width(letter: str) -> float:
    """Of one letter, over the size of the font."""
    if letter in "MWmw@%…—" or unicodedata.east_asian_width(letter) in "WF":
        return 1.05
    if letter in " .,:;-'|!()[]/ijlftrI":
        return 0.4
    return 0.74 if letter.isupper() else 0.62
