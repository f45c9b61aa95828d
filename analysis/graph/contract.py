"""From a graph of nodes (nodes.json, or one recorded of autograd) to a graph of modules.

At depth N a module that is N names deep has one box for all that is in it; one less deep whose
children have boxes has boxes for its own operations alone. An arrow is a tensor that one box
makes and another reads, so the arrows are the dataflow, whatever the modules are called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from ...core.module_paths import ancestors, depth, parent
from ...core.nodes import Node, NodeGraph
from .fold import folded
from .model import Arrow, ArrowKind, Box, BoxKind, Group, ModuleGraph

# What can be read at a glance: without a depth, the deepest with at most as many boxes.
BOXES = 48


def contracted(
    graph: NodeGraph, levels: int | None = None, opened: Collection[str] = ()
) -> ModuleGraph:
    """The modules of the graph to `levels` names deep; None: as deep as can be read."""
    classes = {n.module: n.module_class for n in graph.nodes if n.module is not None}
    shown = folded(classes, opened)
    if levels is not None:
        return _at(graph, levels, shown)
    deepest = max((depth(p) for p in shown.values()), default=0)
    best = _at(graph, min(1, deepest), shown)
    for deeper in range(2, deepest + 1):
        found = _at(graph, deeper, shown)
        if len(found.boxes) > BOXES:
            break
        best = found
    return best


def _at(graph: NodeGraph, levels: int, shown: dict[str, str]) -> ModuleGraph:
    """`shown`: the path under which each module is shown (`fold.folded`)."""
    boxes = _Boxes(graph, levels, shown)
    arrows: dict[tuple[str, str, ArrowKind], dict[str, None]] = {}

    def draw(source: str, target: str, kind: ArrowKind, tensor: str) -> None:
        if source != target or kind == "next":
            arrows.setdefault((source, target, kind), {})[tensor] = None

    for tensor, kind, source, target in _flows(graph):
        begin = boxes.of(source, tensor, "input")
        end = boxes.of(target, tensor, "output")
        if kind == "parameter":
            draw(begin, end, "parameter", tensor)
        elif source is not None and target is not None and _next(source, target, shown):
            draw(begin, end, "next", tensor)
        else:
            draw(begin, end, "data", tensor)
    found = boxes.made()
    return ModuleGraph(
        found,
        [Arrow(*key, tuple(tensors)) for key, tensors in arrows.items()],
        _groups(found, classes_of(graph), shown),
        levels,
    )


def classes_of(graph: NodeGraph) -> dict[str, str | None]:
    """The class of each module that has nodes."""
    return {n.module: n.module_class for n in graph.nodes if n.module is not None}


def _flows(graph: NodeGraph) -> Iterator[tuple[str, ArrowKind, Node | None, Node | None]]:
    """Each tensor with who makes and who reads it; None is the outside. A parameter of a module
    that a node of another module reads as well leads from the first reader to that one."""
    for tensor in graph.inputs:
        for reader in graph.consumers.get(tensor, ()):
            yield tensor, "data", None, reader
    for node in graph.nodes:
        for tensor in node.outputs:
            for reader in graph.consumers.get(tensor, ()):
                yield tensor, "data", node, reader
    for tensor in graph.outputs:
        if tensor in graph.producer:
            yield tensor, "data", graph.producer[tensor], None
    modules = {a for n in graph.nodes if n.module for a in ancestors(n.module)}
    for tensor in sorted(graph.initializers):
        readers = graph.consumers.get(tensor, ())
        if len(readers) > 1 and parent(tensor) and parent(tensor) in modules:
            for reader in readers[1:]:
                yield tensor, "parameter", readers[0], reader


def _next(source: Node, target: Node, shown: dict[str, str]) -> bool:
    """Whether one node is in another of the same repeated blocks."""
    ours, theirs = source.module, target.module
    if ours is None or theirs is None:
        return False
    of = [p.split(".") for p in (shown[ours], shown[theirs], ours, theirs)]
    for one, other, own, others in zip(*of, strict=False):
        if one != other:
            return False
        if own != others:
            return True
    return False


class _Boxes:
    """The box of each node, made as it is asked for."""

    def __init__(self, graph: NodeGraph, levels: int, shown: dict[str, str]) -> None:
        self._graph, self._levels, self._shown = graph, levels, shown
        self._classes = classes_of(graph)
        self._modules: dict[str, list[str]] = {}
        for module, path in shown.items():
            self._modules.setdefault(path, []).append(module)
        deeper = {shown[m] for m in self._classes}
        self._inner = {a for p in deeper for a in ancestors(p)[1:] if depth(a) < levels}
        self._turns = self._entries()
        self._named = {n.name: self._name(n) for n in graph.nodes}
        self._outside: dict[str, Box] = {}

    def of(self, node: Node | None, tensor: str, outside: BoxKind) -> str:
        """The id of a node's box; without a node, that of an input or output of the graph."""
        if node is not None:
            return self._named[node.name]
        box = Box(f"{outside}:{tensor}", outside, tensor, (), None, {}, None)
        return self._outside.setdefault(box.id, box).id

    def made(self) -> list[Box]:
        """Every box, inputs first, then in the order of their first nodes."""
        ops: dict[str, Counter[str]] = {}
        for node in self._graph.nodes:
            ops.setdefault(self._named[node.name], Counter())[node.op] += 1
        inside = [self._box(name, dict(count)) for name, count in ops.items()]
        around = sorted(self._outside.values(), key=lambda b: b.kind == "output")
        first = [b for b in around if b.kind == "input"]
        return [*first, *inside, *around[len(first) :]]

    def _box(self, name: str, ops: dict[str, int]) -> Box:
        kind, _, rest = name.partition(":")
        if kind == "unknown":
            return Box(name, "unknown", "", (), None, ops, None)
        path = rest.rpartition("#")[0] if kind == "own" else rest
        modules = tuple(self._modules[path])
        around = (path if kind == "own" else parent(path)) or None
        of = self._classes.get(modules[0])
        return Box(name, "own" if kind == "own" else "module", path, modules, of, ops, around)

    def _name(self, node: Node) -> str:
        if node.module is None:
            return "unknown:"
        path = self._shown[node.module]
        if path in self._inner:
            return f"own:{path}#{self._turns[node.name]}"
        return "module:" + ".".join(path.split(".")[: self._levels])

    def _entries(self) -> dict[str, int]:
        """For each own operation how often the dataflow has come to its module, itself included.

        So no arrow leads from a box of own operations out of it and back: the addition behind
        ``attn`` is another box than the one behind ``mlp``."""
        graph = self._graph
        own: dict[str, list[int]] = {}
        for i, node in enumerate(graph.nodes):
            if node.module is not None and self._shown[node.module] in self._inner:
                own.setdefault(node.module, []).append(i)
        turns: dict[str, int] = {}
        for module, places in own.items():
            came: dict[str, int] = {}
            for node in graph.nodes[places[0] : places[-1] + 1]:
                before = [graph.producer[t] for t in node.inputs if t in graph.producer]
                inside = node.module == module
                count = max(
                    (
                        came.get(p.name, 0) + (inside and p.module != module and p.name in came)
                        for p in before
                    ),
                    default=0,
                )
                if inside:
                    turns[node.name] = count = max(count, 1)
                if count:
                    came[node.name] = count
        return turns


def _groups(boxes: list[Box], classes: dict[str, str | None], shown: dict[str, str]) -> list[Group]:
    """The groups around the boxes; one that holds a single group and nothing else is left out."""
    held: dict[str, set[str]] = {}
    for box in boxes:
        inner = box.id
        for path in ancestors(box.group)[:-1] if box.group else ():
            held.setdefault(path, set()).add(inner)
            inner = path
    kept = {p for p, inside in held.items() if len(inside) > 1 or not inside <= held.keys()}
    modules: dict[str, list[str]] = {}
    for module, path in shown.items():
        modules.setdefault(path, []).append(module)
    found = []
    for path in sorted(kept, key=depth):
        around = next((a for a in ancestors(path)[1:] if a in kept), None)
        members = tuple(modules[path])
        found.append(Group(path, members, classes.get(members[0]), around))
    return found
