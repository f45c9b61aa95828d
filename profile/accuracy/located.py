"""The errors by module of an engine, as a step: what is valid is not measured again."""

from __future__ import annotations

from collections.abc import Sequence

from ...core import documents
from ...core.accuracy.limits import Limits
from ...core.documents import ModuleError, ModuleErrors
from ...core.run import Step
from ...engines import backend as backends
from .. import steps
from ..engine import measure
from . import locate, values


def located(
    of: measure.Subject,
    limits: Limits,
    reference: values.Reference | None = None,
    *,
    whole: bool = True,
) -> ModuleErrors:
    """The errors by module, measured where they are not valid; see `locate`."""
    steps.outputs(of)
    step, file = _step(of, limits), of.capture(locate.SUFFIX)

    def work() -> dict[str, int]:
        found = locate.locate(of, limits, reference, whole=whole)
        return {"modules": len(found.modules)}

    if whole and step.valid() and not documents.read(file, ModuleErrors).whole:
        of.run.manifest_path(step.name).unlink()
    steps.perform(step, work, lambda: backends.require(of.backend))
    return documents.read(file, ModuleErrors)


def known(of: measure.Subject, limits: Limits) -> Sequence[ModuleError]:
    """The errors by module that are there and valid. A step that is not is removed: the report
    would believe the file, or miss it where only the manifest is there."""
    step, file = _step(of, limits), of.capture(locate.SUFFIX)
    if file.exists() and step.valid():
        return documents.read(file, ModuleErrors).modules
    of.run.manifest_path(step.name).unlink(missing_ok=True)
    file.unlink(missing_ok=True)
    return []


def _step(of: measure.Subject, limits: Limits) -> Step:
    model = of.run.file("export", "model.json")
    inputs = [*of.inputs(), *values.reads(of), of.capture(".outputs.npz"), model]
    given = {"worker": of.worker_key(), "limits": limits._asdict()}
    name = steps.name_of(of, "accuracy.modules")
    return Step(of.run, name, given, inputs, [of.capture(locate.SUFFIX)])
