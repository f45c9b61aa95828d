"""The exported model and its modules."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct, field

from .document import Document
from .forms import Count


class Module(Struct, kw_only=True):
    """One module of the model."""

    path: str
    class_: str | None = field(name="class", default=None)
    parameters: Count | None = None  # with those of the modules in it


class Model(Document, kw_only=True):
    """The model as it was exported."""

    FIX: ClassVar[str] = "export the model again"

    model: str | None = None
    source: str | None = None
    location: str | None = None
    revision: str | None = None
    class_: str | None = field(name="class", default=None)
    task: str | None = None
    weights: str | None = None
    attention: str | None = None
    batch: Count | None = None
    seq: Count | None = None
    seed: Count | None = None
    parameters: Count | None = None
    config: dict[str, Any] | None = None
    overrides: dict[str, Any] | None = None
    modules: list[Module] = []

    @property
    def random_weights(self) -> bool | None:
        """Whether the weights are random; None where the file does not say, or they are made by
        the user's function."""
        return None if self.weights in (None, "own") else self.weights == "random"


class ModuleOfNode(Struct, kw_only=True):
    """The module that one node came from."""

    module: str | None = None
    module_class: str | None = None


class Nodes(Document, kw_only=True):
    """nodes.json as far as modules are taken from it; `core.nodes` reads the whole."""

    FIX: ClassVar[str] = Model.FIX

    nodes: list[ModuleOfNode] = []
