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
    """The last own range of the first group that has one, null without any. Groups of names:
    push/pop ranges, outermost first; then start/end ranges."""
    for names in groups:
        own = [n for n in names if n.startswith(PREFIX)]
        if own:
            return own[-1]
    return None
