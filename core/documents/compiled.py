"""What torch.compile made of a model."""

from __future__ import annotations

from msgspec import Struct


class Break(Struct, kw_only=True):
    """A line of Python at which torch.compile breaks the graph, and why."""

    place: str
    why: str | None = None


class Recompile(Struct, kw_only=True):
    """A graph that was compiled because an earlier one of its code did not fit, and the guard that
    failed."""

    graph: str
    why: str | None = None


class CompiledKernel(Struct, kw_only=True):
    """A kernel or extern call of a graph, ``NAME:PLACE``: its modules, or the row that it is of;
    neither where nobody knows."""

    name: str
    modules: list[str] = []
    row: str | None = None


class CompiledGraph(Struct, kw_only=True):
    """A graph that torch.compile compiled: its key in the trace, its number there (`region`), and
    its kernels as they run. `any_of`: modules of one class that it may be of, and the kernels are
    written as the first one's: which it is, each call tells. `why`: why some have no module."""

    key: str
    region: str
    phase: str
    kernels: list[CompiledKernel]
    any_of: list[str] = []
    why: str | None = None
