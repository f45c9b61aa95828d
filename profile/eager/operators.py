"""Every operator of one training step with shapes, memory and FLOPs, and stacks where asked for.

Leaves ``.operators.json``. Shapes and stacks bend times, so that these are of a step of their own,
and those of the report are not. FLOPs are PyTorch's estimate: of products and convolutions only,
None of all others.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.files import write_json
from ...workloads.plugin import Plugin
from .plugins import Context
from .setup import activities

if TYPE_CHECKING:
    from ...workloads.training import Training
STACK = 8  # frames of Python


class Operators(Plugin):
    """Profiles the second of two steps."""

    own_steps = 2

    def __init__(self, path: Path, stacks: bool) -> None:
        self._path, self._stacks = path, stacks

    def open(self, training: Training) -> None:
        """Start the profiler."""
        from torch.profiler import profile, schedule

        self._wait = training.synchronize
        self._profiler = profile(
            activities=activities(training.device),
            schedule=schedule(wait=0, warmup=1, active=1, repeat=1),
            record_shapes=True,
            profile_memory=True,
            with_flops=True,
            with_stack=self._stacks,
            on_trace_ready=self._save,
        )
        self._profiler.start()

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """One step."""
        yield
        self._wait()
        self._profiler.step()

    def _save(self, profiler: Any) -> None:
        depth = STACK if self._stacks else 0
        grouped = profiler.key_averages(group_by_input_shape=True, group_by_stack_n=depth)
        rows = [_row(event) for event in grouped]
        rows.sort(key=lambda row: (row["self_device_ns"], row["self_cpu_ns"]), reverse=True)
        write_json(self._path, {"schema_version": 1, "source": self._path.name, "operators": rows})

    def close(self) -> None:
        """Stop the profiler."""
        self._profiler.on_trace_ready = None
        self._profiler.stop()


def _row(event: Any) -> dict[str, Any]:
    """One operator with one set of shapes. Times of torch.profiler are in microseconds."""
    return {
        "name": event.key,
        "calls": event.count,
        "shapes": event.input_shapes,
        "self_cpu_ns": round(event.self_cpu_time_total * 1000),
        "self_device_ns": round(event.self_device_time_total * 1000),
        "cpu_bytes": event.self_cpu_memory_usage,
        "device_bytes": event.self_device_memory_usage,
        "flop": event.flops or None,
        **({"stack": list(event.stack)} if event.stack else {}),
    }


def plugin(context: Context) -> Operators:
    """The plug-in of `layerline train --profile operators`."""
    return Operators(context.path(".operators.json"), bool(context.options.get("stacks")))
