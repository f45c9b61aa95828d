"""How far an engine's outputs are from the reference: of the whole, and by module."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct, field

from .document import Document
from .forms import Amount, Count, Number, Share


class Agreement(Struct, kw_only=True):
    """How far outputs are from those of the reference. `constant`: the one value of all entries,
    where the reference has several; `nonfinite`, `reference_nonfinite`: how many entries are NaN
    or infinite on one side alone, and in the reference; `positions`: of top-1."""

    max_abs: Amount | None = None
    max_rel: Amount | None = None
    cosine: Number | None = None
    top1: Share | None = None
    nonfinite: Count | None = None
    reference_nonfinite: Count | None = None
    constant: Number | None = None
    positions: Count | None = None


class AccuracyLimits(Struct, kw_only=True):
    """What agreement was asked for."""

    cosine: Number | None = None
    top1: Share | None = None


class Accuracy(Agreement, Document, kw_only=True):
    """How far an engine's outputs are from those of the reference: the worst of all, and each."""

    reference: str | None = None
    outputs: dict[str, Agreement] = {}
    limits: AccuracyLimits = field(default_factory=AccuracyLimits)


class ModuleError(Struct, kw_only=True):
    """How far one module's output is from eager's. Errors are relative: the norm of the difference
    over that of eager's; null is unknown, and where values are NaN or infinite (`nonfinite`).
    `export`: of the ONNX file, in ONNX Runtime on the CPU (of inductor: of the captured graph, in
    PyTorch); `alone`: of the module built alone, on
    eager's inputs. `tensor`: the ONNX tensor that is its output."""

    module: str
    module_class: str | None = None
    tensor: str | None = None
    error_in: Amount | None = None
    error_out: Amount | None = None
    nonfinite: Count | None = None
    export: Amount | None = None
    export_nonfinite: Count | None = None
    alone: Amount | None = None
    alone_nonfinite: Count | None = None
    first_wrong: bool = False
    how: str = ""


class ModuleErrors(Document, kw_only=True):
    """Where an engine goes wrong. `limit`: the error above which an output is wrong; `remarks`:
    what bends the evidence. `whole`: the ONNX file's errors were measured too."""

    FIX: ClassVar[str] = "layerline accuracy makes it again"

    precision: str | None = None
    backend: str | None = None
    limit: Amount | None = None
    whole: bool = True
    modules: list[ModuleError] = []
    remarks: list[str] = []
