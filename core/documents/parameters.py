"""Which parameter of a trained model is which index."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from ..module_paths import child
from .document import Document
from .forms import Count


class Parameter(Struct, kw_only=True):
    """A parameter of a model that was trained. `aliases`: further paths of the same tensor;
    `elements`: of the rank's own shard, where it is sharded; `shape`: of the whole; `rows`: of an
    embedding; `optimized`: whether the optimizer was given it."""

    index: Count
    module: str
    parameter: str
    module_class: str | None = None
    dtype: str | None = None
    shape: list[Count] = []
    elements: Count | None = None
    rows: Count | None = None
    sharded: bool | None = None
    trainable: bool | None = None
    optimized: bool | None = None
    aliases: list[str] = []

    @property
    def path(self) -> str:
        """Its whole name: ``transformer.h.0.ln_1.weight``."""
        return child(self.module, self.parameter)


class Parameters(Document, kw_only=True):
    """Which parameter is which index, and how changes were counted."""

    FIX: ClassVar[str] = "train again with the plug-in that counts parameters"

    parameters: list[Parameter]
    model: str | None = None
    optimizer: str | None = None
    rank: Count | None = None
    how: dict[str, Any] = {}

    def __post_init__(self) -> None:
        if [p.index for p in self.parameters] != list(range(len(self.parameters))):
            raise ValueError("parameters are not numbered 0, 1, 2 and so on")

    def same_model(self, other: Parameters) -> bool:
        """Whether both are of one model, in whatever precision and however it was sharded."""
        return [(p.path, p.shape) for p in self.parameters] == [
            (p.path, p.shape) for p in other.parameters
        ]
