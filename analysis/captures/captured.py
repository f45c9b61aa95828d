"""What a capture gives to the comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ...core import series
from ...core.stats import UNMEASURED
from ...core.tables import UNRESOLVED
from ..checks import steadiness
from ..costs.iterations import phase_shares, stat, sums
from ..costs.measured import MeasuredSide
from ..host import launch_bound
from ..model.comparison import Side
from ..readers.torch.events import Events
from .files import EagerFiles, EngineFiles

BACKENDS = {
    "onnxruntime": "ONNX Runtime",
    "onnxruntime-cuda": "ONNX Runtime CUDA",
    "inductor": "torch.compile",
    "tensorrt": "TensorRT",
    "tensorrt-rtx": "TensorRT for RTX",
}


@dataclass(frozen=True)
class Series:
    """Samples in ns in the order in which they were taken, `processes`: how many by each process;
    `target`: half of the interval over the median that was asked for; `warmup`: the calls before
    them, in ns."""

    samples: Sequence[int] = ()
    processes: Sequence[int] = ()
    target: float | None = None
    warmup: Sequence[int] = ()


@dataclass(frozen=True)
class Captured:
    """What one capture gave, by its files: its sides, and all its operations.

    `events`: calls, ranges and operations of a profiler trace, so that the timeline need not parse
    it once more; None for other captures."""

    files: EngineFiles | EagerFiles
    sides: list[MeasuredSide]
    ops: pa.Table
    events: Events | None = None


def measured(
    side: Side,
    ops: pa.Table,
    labels: pa.Array,
    latency: Series,
    traced_ns: Mapping[int, int],
    queued: Series = Series(),
    **more: Any,
) -> MeasuredSide:
    """The side with the figures of its operations and of its series; `traced_ns` by iteration.

    `more`: what else `MeasuredSide` has. InputError where a series contradicts itself.
    """
    reduced = sums(ops, labels)
    total = stat(reduced.total()) if reduced.iterations else None
    everything = int(reduced.total().sum())
    lost = reduced.where([k.label == UNRESOLVED for k in reduced.keys])
    unresolved = stat(lost) if reduced.keys else None
    traced = [traced_ns[i] for i in sorted(traced_ns)]
    whole = replace(
        side,
        latency=steadiness.summary(latency.samples, latency.processes) or UNMEASURED,
        traced=series.in_order(traced) or UNMEASURED,
        queued=steadiness.summary(queued.samples, queued.processes) or UNMEASURED,
        launch_bound=launch_bound.bound(latency.samples, queued.samples),
        steadiness=steadiness.judge(
            latency.samples, latency.target, latency.processes, latency.warmup
        ),
        # No width was asked of these.
        traced_steadiness=steadiness.judge(traced),
        queued_steadiness=steadiness.judge(queued.samples, of=queued.processes),
        coverage=1 - int(lost.sum()) / everything if everything else None,
        operation_ns=total.median if total else None,
        unresolved_ns=unresolved.median if unresolved else None,
        phase_shares=phase_shares(ops) if side.phase == "step" else None,
    )
    return MeasuredSide(whole, ops, labels, reduced, latency.samples, traced_ns, **more)
