"""The graph of modules: what is drawn, before it has a place or a colour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ...core.module_paths import inside, parent

BoxKind = Literal["module", "own", "unknown", "input", "output"]
# data: a tensor; next: a tensor for the next of repeated blocks; parameter: one that both read.
ArrowKind = Literal["data", "next", "parameter"]


@dataclass(frozen=True)
class Box:
    """What the nodes of one box have in common.

    `kind`: "module", a module with all that is in it; "own", the operations of a module itself
    whose children have boxes of their own, one box for each time that the dataflow comes back to
    it; "unknown", nodes whose module is not known; "input" and "output" of the graph. `path`: as
    it is shown (``h.0-11.attn``). `modules`: the paths that it stands for, as everywhere else.
    `ops`: how often each operator occurs, in all of these. `group`: path of the group around it.
    """

    id: str
    kind: BoxKind
    path: str
    modules: tuple[str, ...]
    module_class: str | None
    ops: Mapping[str, int]
    group: str | None

    @property
    def times(self) -> int:
        """How many repeated modules it stands for."""
        return max(1, len(self.modules))

    def holds(self, unit: str) -> bool:
        """Whether what is known of the module `unit` is of this box."""
        if self.kind == "own":
            return unit in self.modules
        return self.kind == "module" and any(inside(unit, m) for m in self.modules)


@dataclass(frozen=True)
class Arrow:
    """`tensors`: their names, in the order of the graph."""

    source: str
    target: str
    kind: ArrowKind
    tensors: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """A module around boxes. `parent`: path of the group around it."""

    path: str
    modules: tuple[str, ...]
    module_class: str | None
    parent: str | None


@dataclass(frozen=True)
class ModuleGraph:
    """Boxes in the order of the dataflow; groups, those around others first."""

    boxes: Sequence[Box]
    arrows: Sequence[Arrow]
    groups: Sequence[Group]
    depth: int

    def group_of(self, box: Box) -> str | None:
        """The innermost group that is drawn around a box."""
        drawn, path = {g.path for g in self.groups}, box.group
        while path and path not in drawn:
            path = parent(path)
        return path or None
