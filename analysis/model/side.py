"""The sides of the comparison: what is known of each, and its operations as a matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from . import comparison
from .floor import Floor


@dataclass(frozen=True)
class SideData:
    """One column: its operations and what is known about them.

    `ops`: rows of this source, precision and phase. `labels`: a name for each row of `ops` that
    has no module ("optimizer"; "unresolved" where nothing is known). `latency_ns`: unprofiled
    samples in their order, `target` how narrow their interval was to be (half of it over the
    median), `processes` how many of them each process took. `traced_ns`: latency in the profiled
    run by iteration. `outside_ns`: wall time in no operator, by iteration. `layers`: the layers
    table of an engine. `rebuild_noise`: how far apart the medians of two builds of it were, over
    the first; null where it was not built again.
    `queued_ns`: unprofiled device times of inferences that were queued whole before they began.
    `host`: what the host did in a capture by nsys; null without one.
    `floors`: by layer label, what the layer's nodes ask for at least.
    `device`: what else was measured beside the latency, by the names of `report.view.Side`.
    """

    key: str
    side: str
    label: str
    precision: str
    phase: str
    backend: str
    source: str
    ops: pa.Table
    labels: Any = None
    latency_ns: Sequence[int] = ()
    target: float | None = None
    processes: Sequence[int] = ()
    traced_ns: Mapping[int, int] = field(default_factory=dict)
    outside_ns: Mapping[int, int] = field(default_factory=dict)
    checks: Sequence[comparison.Check] = ()
    parity: Mapping[str, Any] | None = None
    precision_run: Mapping[str, float] | None = None
    layers: pa.Table | None = None
    nodes: Sequence[Mapping[str, Any]] = ()
    rebuild_noise: float | None = None
    queued_ns: Sequence[int] = ()
    queued_processes: Sequence[int] = ()
    device: Mapping[str, Any] = field(default_factory=dict)
    host: comparison.HostSide | None = None
    warned: Sequence[str] = ()
    floors: Mapping[str, Floor] = field(default_factory=dict)


@dataclass(frozen=True)
class Model:
    """What is known of the model: module paths in registration order and their classes."""

    title: str
    paths: Sequence[str] = ()
    classes: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class SideFacts:
    """What is known of how one side was measured; `facts` by the names of `FACTS`."""

    key: str
    label: str
    side: str
    facts: Mapping[str, Any] = field(default_factory=dict)
