"""The graph of modules as an SVG file: no script, nothing from elsewhere, safe to open.

Every box has its module's path (``data-module``), a title that shows while the pointer is on it,
and a link to the module in the report, where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape
from urllib.parse import quote

from ...core.nodes import NodeGraph
from ...core.resolve import operator_kinds
from ...core.resolve.operator_kinds import MOVEMENT
from .. import formatting
from .model import Arrow, Box, Group, ModuleGraph
from .placing import Point, Rectangle, placed, text_width
from .shading import Shading

NAME, SUB = 13, 11  # px of a box's two lines
BOLD = 1.1
WIDEST = 230.0
# What autograd calls operators that move data only, beside ONNX's names.
VIEWS = frozenset({"View", "UnsafeView", "ReshapeAlias", "Clone", "T", "Permute", "Alias"})
MATRIX = operator_kinds.MATRIX | {"Mm", "Bmm", "Addmm"}
OPS, TENSORS = 12, 4  # how many are listed in a title
_LOW, _HIGH = (255, 247, 236), (179, 50, 14)  # of the scale of colours
_MARGIN, _HEAD = 24, 92
_FONT = 'ui-sans-serif, system-ui, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif'
_STYLE = f"""
svg {{ background: #fff; font: {SUB}px {_FONT}; }}
text {{ fill: #15191e; }}
.name {{ font-size: {NAME}px; font-weight: 600; }}
.muted {{ fill: #57616c; }}
.light text {{ fill: #fff; }}
.box rect {{ stroke: #57616c; }}
.own rect {{ stroke-dasharray: 3 2; }}
.input rect, .output rect {{ fill: #f5f6f8; stroke: #b9c1ca; }}
.unknown rect {{ fill: #fff; stroke: #b3261e; stroke-dasharray: 3 2; }}
.group rect {{ fill: #57616c; fill-opacity: .05; stroke: #b9c1ca; }}
.group text {{ fill: #57616c; }}
.arrow path {{ fill: none; stroke: #57616c; stroke-width: 1.3; }}
.arrow .hit {{ stroke: transparent; stroke-width: 10; }}
.next path.line {{ stroke: #0b66a6; stroke-dasharray: 6 3; }}
.parameter path.line {{ stroke: #86489b; stroke-dasharray: 2 3; }}
a:hover rect, a:focus rect {{ stroke: #0a5aa8; stroke-width: 2.5; }}
"""
_KEYS = {
    "data": "",
    "next": "to the next of the repeated blocks",
    "parameter": "the same parameter",
}
_COLOURS = {"data": "#57616c", "next": "#0b66a6", "parameter": "#86489b"}
Link = Callable[[str], str | None]


def drawing(
    graph: ModuleGraph,
    nodes: NodeGraph,
    title: str,
    shading: Shading | None = None,
    link: Link = lambda module: None,
) -> str:
    """The whole file. `nodes`: what the graph was made of, for the shapes of tensors. `link`: the
    address of a module. ToolMissing without a library that lays graphs out."""
    lines = {}
    for b in graph.boxes:
        name, below = lines_of(graph, b, shading)
        lines[b.id] = _fitted(name, NAME * BOLD), _fitted(below, SUB)
    sizes = {b.id: _size(b, lines[b.id]) for b in graph.boxes}
    places = placed(graph, sizes)
    head, least = _head(graph, formatting.short(title, 120), shading)
    width = max(places.width + 2 * _MARGIN, least)
    height = places.height + _HEAD + _MARGIN
    left = (width - places.width) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img">',
        f"<title>{_text(title)}</title>",
        f"<style>{_STYLE}</style>",
        *head,
        f'<g transform="translate({left:.1f} {_HEAD})">',
        *(_group(graph, g, places.groups[g.path], link) for g in graph.groups),
        *(_arrow(arrow, points, graph, nodes) for arrow, points in places.lines),
        *(_box(b, places.boxes[b.id], lines[b.id], shading, link) for b in graph.boxes),
        "</g>",
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def anchor(module: str) -> str:
    """Where the page of the report has a module."""
    return "#module:" + quote(module, safe="", errors="replace")


def name_of(box: Box) -> str:
    """What a box is called: by the last part of its path."""
    if box.kind == "unknown":
        return "module not known"
    if box.kind in ("input", "output"):
        return box.path
    if box.kind == "own":
        # What computes says more than what moves data.
        ops = sorted(box.ops, key=lambda op: (op in MOVEMENT or op in VIEWS, op not in MATRIX))
        return ", ".join(ops[:2]) + (" …" if len(ops) > 2 else "")
    return _last(box.path) or "model"


def times(graph: ModuleGraph, count: int, around: str | None) -> str:
    """`` ×12`` behind the name of repeated blocks themselves; nothing behind what is in them."""
    outer = next((len(g.modules) for g in graph.groups if g.path == around), 1)
    return f" ×{count // outer}" if count > outer else ""


def _last(path: str) -> str:
    """The last name of a path, with the one before it where it is a number: ``h.0-11``."""
    found = re.search(r"([^.]+(\.\d+(-\d+)?)+|[^.]*)$", path)
    return found[0] if found else path


def details(box: Box, shading: Shading | None) -> Iterator[str]:
    """The lines of a box's title."""
    if box.modules:
        first, last = box.modules[0] or "the whole model", box.modules[-1]
        own = "own operations of " if box.kind == "own" else ""
        yield own + (first if box.times == 1 else f"{first} … {last} ({box.times} modules)")
    else:
        yield name_of(box)
    if box.module_class:
        yield box.module_class
    if box.ops:
        listed = [f"{op} {n}" if n > 1 else op for op, n in box.ops.items()]
        more = [f"and {len(listed) - OPS} more"] if len(listed) > OPS else []
        yield "operators: " + ", ".join([*listed[:OPS], *more])
    shade = shading.of.get(box.id) if shading else None
    if shade:
        together = f" ({box.times} together)" if box.times > 1 else ""
        of_all = " (all own operations)" if box.kind == "own" else ""
        yield shade.full + together + of_all
    elif shading and box.modules:
        yield f"{shading.title}: not known"


def carried(arrow: Arrow, graph: ModuleGraph, nodes: NodeGraph) -> Iterator[str]:
    """The lines of an arrow's title: from where to where, and what."""
    names = {b.id: name_of(b) if b.kind == "own" or not b.path else b.path for b in graph.boxes}
    yield f"{names[arrow.source]} → {names[arrow.target]}"
    if _KEYS[arrow.kind]:
        yield _KEYS[arrow.kind]
    for tensor in arrow.tensors[:TENSORS]:
        about = nodes.tensors.get(tensor)
        shape = nodes.shape(tensor)
        kind = about.get("dtype") if isinstance(about, dict) else None
        parts = [tensor, "×".join(map(str, shape)) if shape else "", str(kind or "")]
        yield " ".join(p for p in parts if p)
    if len(arrow.tensors) > TENSORS:
        yield f"and {len(arrow.tensors) - TENSORS} more tensors"


def colour(part: float) -> str:
    """The scale's colour at `part` of its length."""
    mixed = (round(a + (b - a) * part) for a, b in zip(_LOW, _HIGH, strict=True))
    return "#" + "".join(f"{c:02x}" for c in mixed)


def part_of(shading: Shading | None, box: Box) -> float | None:
    """Where the box's value lies on the scale, 0 to 1; None where it is not known."""
    shade = shading.of.get(box.id) if shading else None
    if shading is None or shade is None:
        return None
    return min(1.0, shade.value / shading.most) if shading.most else 0.0


def lines_of(graph: ModuleGraph, box: Box, shading: Shading | None) -> tuple[str, str]:
    """What stands in a box: its name and how often it is there; its class and value."""
    shade = shading.of.get(box.id) if shading else None
    below = [] if box.kind != "module" else [box.module_class or ""]
    if shade:
        places = sum(b.kind == "own" and b.path == box.path for b in graph.boxes)
        below.append(shade.short + (f" in {places} places" if places > 1 else ""))
    name = name_of(box) + times(graph, box.times, graph.group_of(box))
    return name, " · ".join(b for b in below if b)


def _fitted(text: str, size: float) -> str:
    """As much of a text as a box has room for."""
    limit = len(text)
    while limit > 8 and text_width(formatting.short(text, limit), size) > WIDEST - 20:
        limit -= 1
    return formatting.short(text, limit) if text else ""


def _size(box: Box, lines: tuple[str, str]) -> tuple[float, float]:
    name, below = lines
    width = max(text_width(name, NAME) * BOLD, text_width(below, SUB)) + 20
    return max(90.0, min(WIDEST, width)), 40.0 if below else 28.0


def _head(graph: ModuleGraph, title: str, shading: Shading | None) -> tuple[list[str], float]:
    """The title, the scale of colours and the kinds of arrows, and how wide they are."""
    parts = [_label(title, _MARGIN, 28, "name")]
    widths = [text_width(title, NAME * BOLD)]
    x = float(_MARGIN)
    if shading is not None:
        least, most = shading.spelled(0), shading.spelled(shading.most)
        start = x + text_width(least, SUB) + 6
        parts += [
            _label(shading.title, _MARGIN, 48),
            '<linearGradient id="scale">'
            f'<stop offset="0" stop-color="{colour(0)}"/>'
            f'<stop offset="1" stop-color="{colour(1)}"/></linearGradient>',
            _label(least, x, 68),
            f'<rect x="{start:.0f}" y="59" width="110" height="10" fill="url(#scale)" '
            'stroke="#b9c1ca"/>',
            _label(most, start + 116, 68),
        ]
        widths.append(text_width(shading.title, SUB))
        x = start + 116 + text_width(most, SUB) + 24
    for kind in dict.fromkeys(a.kind for a in graph.arrows):
        if _KEYS[kind]:
            parts.append(
                f'<g class="{kind}"><path class="line" d="M{x:.0f} 64h26" fill="none"/></g>'
            )
            parts.append(_label(_KEYS[kind], x + 32, 68))
            x += text_width(_KEYS[kind], SUB) + 56
    tips = (
        f'<marker id="tip-{kind}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto" markerUnits="userSpaceOnUse">'
        f'<path d="M0 0 8 4 0 8z" fill="{of}"/></marker>'
        for kind, of in _COLOURS.items()
    )
    return [*parts, "<defs>", *tips, "</defs>"], max(*widths, x) + 2 * _MARGIN


def _label(text: str, x: float, y: float, kind: str = "muted") -> str:
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}">{_text(text)}</text>'


def _group(graph: ModuleGraph, group: Group, place: Rectangle, link: Link) -> str:
    name = _fitted(f"{group.path}{times(graph, len(group.modules), group.parent)}", SUB)
    first, last = group.modules[0], group.modules[-1]
    of = first if len(group.modules) == 1 else f"{first} … {last} ({len(group.modules)} modules)"
    title = "\n".join(t for t in (of, group.module_class) if t)
    inside = (
        f"<title>{_text(title)}</title>{_rect(place)}"
        f'<text x="{place.x + 10:.1f}" y="{place.y + 16:.1f}">{_text(name)}</text>'
    )
    return _element("group", first, inside, link)


def _box(
    box: Box, place: Rectangle, lines: tuple[str, str], shading: Shading | None, link: Link
) -> str:
    part = part_of(shading, box)
    middle, down = place.x + place.width / 2, place.y + place.height / 2
    rows = [r for r in zip(lines, ("name", "sub"), strict=True) if r[0]]
    first = down + 4.5 - 8 * (len(rows) - 1)
    fill = f' fill="{colour(part)}"' if part is not None else ' fill="#fff"'
    inside = f"<title>{_text(chr(10).join(details(box, shading)))}</title>"
    inside += _rect(place, fill if box.modules else "")
    for i, (line, of) in enumerate(rows):
        y = first + 16 * i
        inside += (
            f'<text class="{of}" x="{middle:.1f}" y="{y:.1f}" text-anchor="middle">'
            f"{_text(line)}</text>"
        )
    light = " light" if part is not None and part > 0.62 else ""
    module = box.modules[0] if box.modules else None
    return _element(f"box {box.kind}{light}", module, inside, link)


def _element(kinds: str, module: str | None, inside: str, link: Link) -> str:
    of = "" if module is None else f' data-module="{_text(module)}"'
    element = f'<g class="{kinds}"{of}>{inside}</g>'
    address = None if module is None else link(module)
    return element if address is None else f'<a href="{_text(address)}">{element}</a>'


def _rect(place: Rectangle, more: str = "") -> str:
    return (
        f'<rect x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
        f'height="{place.height:.1f}" rx="4"{more}/>'
    )


def _arrow(arrow: Arrow, points: Sequence[Point], graph: ModuleGraph, nodes: NodeGraph) -> str:
    way = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    title = _text("\n".join(carried(arrow, graph, nodes)))
    return (
        f'<g class="arrow {arrow.kind}"><title>{title}</title>'
        f'<path class="line" d="{way}" marker-end="url(#tip-{arrow.kind})"/>'
        f'<path class="hit" d="{way}"/></g>'
    )


def _text(text: str) -> str:
    """Text for XML: names come from files, and may hold what XML cannot."""
    return escape("\n".join(formatting.visible(line) for line in text.split("\n")))
