"""A capture of the model in PyTorch."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from .compiled import Break, CompiledGraph, Recompile
from .document import Document
from .forms import LARGEST, Amount, Count, Number
from .machine import Machine


class OptimizerBytes(Struct, kw_only=True):
    """What an optimizer reads and writes of the parameters of one module: with their gradients and
    its state. Several modules: a parameter that they share."""

    modules: list[str]
    bytes: Annotated[int, Meta(gt=0, le=LARGEST)]


class Eager(Document, kw_only=True):
    """The meta file of a capture of the model in PyTorch, by its profiler or by nsys."""

    trace: str | None = None
    model: str | None = None
    workload: str | None = None
    config: dict[str, Any] | None = None
    overrides: dict[str, Any] | None = None
    parameters: Count | None = None
    compiled: bool | None = None
    command: list[str] = []
    device: str | None = None
    gpu: str | None = None
    cuda_driver: str | None = None
    attention: str | None = None
    sm_mhz: Amount | None = None
    batch: Count | None = None
    sequence: Count | None = None
    threads: Count | None = None
    tf32: bool | None = None
    autocast: bool | None = None
    gradients: bool | None = None
    train_mode: bool | None = None
    dropout: list[Number] | None = None
    weights: list[str] | None = None
    modules: dict[str, str | None] = {}
    traced_phases_ns: dict[str, list[Count]] = {}
    optimizer: str | None = None
    optimizer_implementation: str | None = None
    optimizer_bytes: list[OptimizerBytes] = []
    compiled_graphs: list[CompiledGraph] = []
    graph_breaks: list[Break] = []
    recompiles: list[Recompile] = []
    machine: Machine | None = None

    @property
    def trained(self) -> str | None:
        """``gpt2-medium``, ``gpt2 tiny``: what a workload trains; None where it is of none."""
        if self.model is None or self.workload is None or self.model.startswith(self.workload):
            return self.model
        return f"{self.workload} {self.model}"
