"""Layerline's own NVTX ranges (a module, a phase) among those that libraries open inside them.

CUB opens ``cub::DeviceScan::InclusiveScan`` around its kernels: the innermost range of a launch in
an eager capture need not be its module's.
"""

from __future__ import annotations

from collections.abc import Iterable

PREFIX = "layerline/"
# Each followed by what it is of: a module's path, a phase's name, an iteration's number.
MODULE, PHASE, ITERATION = (f"{PREFIX}{kind}/" for kind in ("module", "phase", "iteration"))


def innermost(*groups: Iterable[str]) -> str | None:
    """The last own range of the first group that has one; None without any. Groups of names:
    push/pop ranges, outermost first; then start/end ranges."""
    for names in groups:
        own = [n for n in names if n.startswith(PREFIX)]
        if own:
            return own[-1]
    return None


def modules_of_range(layer: str) -> tuple[str, ...]:
    """The module of an eager launch's range, or of its label (`counters.representatives.label`);
    none of a phase's."""
    if layer.startswith(MODULE):
        return (layer.removeprefix(MODULE),)
    _, slash, module = layer.removeprefix(PHASE).partition("/")
    return (module,) if slash and layer.startswith(PHASE) else ()


def phase_of_range(layer: str) -> str:
    """The phase of a phase's range, or of its label; empty for any other layer."""
    return layer.removeprefix(PHASE).partition("/")[0] if layer.startswith(PHASE) else ""


NO_LAYER = "(no layer range)"
