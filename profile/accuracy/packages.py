"""The values of module outputs of a package of inductor, which keeps no tensor between modules.

They are those of a second package, of the same model and options, whose outputs are also what each
module is given and gives. Inductor fuses less across what it has to write, which can hide a fault:
as of any second engine, its outputs have to be as wrong as the first's. The captured graph that it
was compiled from is run too, operator by operator, in PyTorch. See `package_outputs`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...engines import launch
from ...engines.backend import Worker, inputs_path
from ..engine.measure import SPARE_SECONDS, Subject, arrays
from .tensors import Eager, Placed

_WORKER = Worker(
    (sys.executable, "-P", "-m", "layerline.profile.accuracy.package_outputs"),
    {"KINETO_LOG_LEVEL": "4"},
)


@dataclass(frozen=True)
class PackageSource:
    """A `tensors.Source`; `second`, `captured`: values of the second package, of the graph."""

    placed: Sequence[Placed]
    ends: Sequence[str]
    second: Mapping[str, Any]
    captured: Mapping[str, Any]
    parts: bool = False

    def same_engine(self, names: Iterable[str]) -> Mapping[str, Any]:
        """A package keeps none."""
        return {}

    def second_engine(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Of the second package."""
        return self.second

    def before(self, names: Iterable[str]) -> Mapping[str, Any]:
        """Of the captured graph."""
        return self.captured

    def alone(self, tensor: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        """No module is built alone."""
        return {}


def measured(of: Subject, eager: Sequence[Eager], folder: Path) -> PackageSource:
    """Build the second package and run it. LayerlineError where that cannot be done."""
    second, captured = folder / "second.npz", folder / "captured.npz"
    options = {
        "model": str(of.backend.source(of.run, of.precision)),
        "mode": of.record.get("options", {}).get("optimization_level") or "default",
        "folder": str(folder / "trace"),
        "captured": str(captured),
    }
    job = launch.job(
        "outputs",
        folder / f"second{of.backend.suffix}",
        inputs_path(of.run),
        of.precision,
        threads=of.threads,
        options=options,
        raw=second,
    )
    facts = launch.call(_WORKER, job, timeout=SPARE_SECONDS)["facts"]
    marks = {m["path"]: m for m in facts["modules"]}
    placed = [_placed(module, marks.get(module.path)) for module in eager]
    return PackageSource(placed, facts["outputs"], arrays(second), arrays(captured))


def _placed(module: Eager, mark: Mapping[str, Any] | None) -> Placed:
    if mark is None:
        return Placed(module, [], {}, None, "called more than once, or not at all")
    reads, output = mark["inputs"], mark["output"]
    # Both are what hooks of one forward saw, in the order of its arguments.
    known = dict(zip(reads, module.inputs, strict=True)) if len(reads) == len(module.inputs) else {}
    if module.output is None or output is None:
        return Placed(module, reads, known, None, "no one output of eager's to compare with")
    return Placed(module, reads, known, output)
