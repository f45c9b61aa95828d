"""Whether an engine's modules are right, where its outputs prove little."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...core import nodes
from ...core.accuracy import by_module
from ...core.accuracy.limits import Limits, Verdict
from ...core.cli.progress import log
from ...core.documents import ModuleError
from ...core.errors import LayerlineError
from ...engines.backend import nodes_path
from ..engine.measure import Subject
from .located import known, located
from .values import Reference

# What eager's inputs and outputs of modules may take on a disk and in memory.
MOST_BYTES = 2 << 30


def judge(
    of: Subject,
    verdict: Verdict,
    figures: Mapping[str, Any],
    limits: Limits,
    reference: Reference,
) -> Verdict:
    """The verdict on the outputs, and on the modules where weights are random and it takes seconds.

    An engine that is an ONNX file has its tensors beside the outputs. Of another they are those of
    a second engine, a build: made only where the outputs differ by more than rounding makes.
    """
    return by_errors(
        of,
        verdict,
        figures,
        limits,
        lambda: located(of, limits, reference, whole=False).modules,
        known(of, limits),
    )


def by_errors(
    of: Subject,
    verdict: Verdict,
    figures: Mapping[str, Any],
    limits: Limits,
    errors: Callable[[], Sequence[ModuleError]],
    modules: Sequence[ModuleError] = (),
) -> Verdict:
    """`judge` by the errors of `modules`; where none are known, by those that `errors` measures."""
    if not modules and _asks(of, verdict, figures, limits):
        modules = _measured(of, errors)
    return by_module.judge(verdict, figures, limits, of.precision, modules)


def _asks(of: Subject, verdict: Verdict, figures: Mapping[str, Any], limits: Limits) -> bool:
    """Whether the modules are to be measured for the verdict."""
    if not verdict.ok or not by_module.applies(figures, limits, of.precision):
        return False
    quick = of.backend.suffix == ".onnx"
    return quick or by_module.beyond_rounding(figures, of.precision)


def _measured(of: Subject, errors: Callable[[], Sequence[ModuleError]]) -> Sequence[ModuleError]:
    """The errors by module; none where they cannot be measured."""
    words = f"the modules of the {of.precision} engine were not checked"
    if _bytes(of) > MOST_BYTES:
        log(f"{words}: too large (layerline accuracy does it)")
        return []
    try:
        return errors()
    except LayerlineError as e:
        log(f"{words}: {e.line()}")
        return []


def _bytes(of: Subject) -> int:
    """Of the tensors between modules, in float32, each as an output and as an input."""
    graph = nodes.load(nodes_path(of.run, of.precision))
    between = (
        t
        for n in graph.nodes
        for t in n.outputs
        if t in graph.outputs or any(c.module != n.module for c in graph.consumers.get(t, ()))
    )
    shapes = (graph.shape(t) for t in between)
    return 8 * sum(math.prod(shape) for shape in shapes if shape)
