"""An engine: how it was built, and what it is made of."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from .compiled import Break
from .document import Document
from .forms import Amount, Count


class PlannedModules(Struct, kw_only=True):
    """The precision plan that an engine was built with."""

    file: str | None = None
    modules_fp32: list[str] = []


class BuildOptions(Struct, kw_only=True):
    """What an engine was built with."""

    threads: Count | None = None
    optimization_level: str | int | None = None
    precision_plan: PlannedModules = field(default_factory=PlannedModules)


class Build(Document, kw_only=True):
    """How an engine was built; `on_cpu`: the operators of its nodes on the CPU, by node. Of a
    package of inductor: what it runs on, what it takes and gives, and what torch.compile does
    otherwise: graph breaks, and compiling again in two further calls (null: it fails, or nobody
    knows); `ranged`: it has the ranges of the package that is profiled."""

    FIX: ClassVar[str] = "build the engine again (layerline engines)"

    source: str | None = None
    providers: list[str] | None = None
    on_cpu: dict[str, str] = {}
    runs_on: str | None = None
    inputs: list[str] = []
    outputs: list[str] = []
    graph_breaks: list[Break] = []
    recompiles: Count | None = None
    ranged: bool = False
    options: BuildOptions = field(default_factory=BuildOptions)


class Rebuild(Document, kw_only=True):
    """How much two builds of one engine differ in latency."""

    relative_difference: Amount | None = None


class Layer(Struct, kw_only=True):
    """One layer of an engine."""

    name: str
    op: str | None = None
    occurrence: Count | None = None
    nodes: list[str] | None = None
    modules: list[str] | None = None
    rule: str | None = None
    kind: str | None = None
    compute_precision: str | None = None
    tactic: str | None = None


class NodeFate(Struct, kw_only=True):
    """What became of one node of the exported model."""

    name: str
    op: str | None = None
    module: str | None = None
    status: str | None = None
    layer: str | None = None


class Layers(Document, kw_only=True):
    """What an engine is made of."""

    FIX: ClassVar[str] = Build.FIX

    layers: list[Layer]
    nodes: list[NodeFate] = []
