"""The memory of training steps on the CPU, in the form of a snapshot of the CUDA allocator.

torch.profiler with ``profile_memory`` reports every allocation and free of PyTorch's CPU allocator,
those inside operators included; its tree of Python calls (``with_stack``) tells the line. There is
no cache on the CPU: no segments, no rounding, no fragmentation.
"""

from __future__ import annotations

import bisect
import pickle
from pathlib import Path
from typing import Any

import torch

from ....core.errors import InputError
from ....core.files import replacing
from .marks import Marks

CPU = {"device": "cpu"}  # says in the snapshot itself that there are no segments and no rounding


class Cpu:
    """Allocations of PyTorch's CPU allocator, by torch.profiler."""

    how = "torch.profiler, profile_memory"
    unseen: tuple[str, ...] = (
        "memory that is not from PyTorch's CPU allocator: scratch space of oneDNN and MKL, Python, "
        "NumPy, mapped files",
        "frees of what was allocated before recording began",
        "fragmentation: the C library keeps what is freed, and tells nobody how much",
    )

    def __init__(self) -> None:
        self._profile: Any = None

    def start(self) -> dict[str, Any]:
        if torch.autograd._profiler_enabled():
            raise InputError(
                "the memory of a training step on the CPU is recorded by torch.profiler, which is "
                "running already",
                fix="profile memory in a run of its own",
            )
        self._profile = torch.profiler.profile(
            activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, with_stack=True
        )
        self._profile.start()
        return {}

    def begin_step(self) -> None:
        pass

    def end_step(self) -> dict[str, Any]:
        return {}

    def tell(self, mark: int) -> None:
        pass

    def write(self, path: Path, marks: Marks) -> dict[int, dict[str, Any]]:
        self._profile.stop()
        tree = self._profile.profiler.kineto_results.experimental_event_tree()
        events = [
            e
            for e in sorted(_allocations(tree), key=lambda e: e.start_time_ns)
            if e.extra_fields.device.type == "cpu" and e.extra_fields.alloc_size
        ]
        numbers = [bisect.bisect_right(marks.time_ns, e.start_time_ns) - 1 for e in events]
        trace, held = _trace(events, numbers)
        segments = [_segment(block) for block in held]
        snapshot = {"segments": segments, "device_traces": [trace], "allocator_settings": CPU}
        with replacing(path) as temporary, temporary.open("wb") as f:
            pickle.dump(snapshot, f, protocol=4)
        return _peaks(events, numbers, marks)


def _peaks(events: list[Any], numbers: list[int], marks: Marks) -> dict[int, dict[str, Any]]:
    """The profiler's own count of what was allocated since it began, at its highest in each step.
    It counts on from what an earlier profiler of this process has seen."""
    first = events[0].extra_fields if events else None
    before = 0 if first is None else first.total_allocated - first.alloc_size
    peaks: dict[int, int] = {}
    for event, number in zip(events, numbers, strict=True):
        step = marks.step[number] if number >= 0 else -1
        peaks[step] = max(peaks.get(step, 0), event.extra_fields.total_allocated - before)
    return {step: {"counted_peak_bytes": peak} for step, peak in peaks.items()}


def _trace(
    events: list[Any], numbers: list[int]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The events as torch names them, each with the number of its mark, and what is held at the
    end."""
    trace: list[dict[str, Any]] = []
    held: dict[int, dict[str, Any]] = {}
    for event, number in zip(events, numbers, strict=True):
        fields = event.extra_fields
        row = {
            "addr": fields.ptr,
            "size": abs(fields.alloc_size),
            "stream": 0,
            "time_us": event.start_time_ns // 1000,
            "user_metadata": str(number) if number >= 0 else "",
        }
        if fields.alloc_size > 0:
            held[fields.ptr] = {**row, "frames": _frames(event)}
            trace.append({"action": "alloc", **held[fields.ptr]})
        else:
            held.pop(fields.ptr, None)
            trace += [{"action": a, **row} for a in ("free_requested", "free_completed")]
    return trace, list(held.values())


def _allocations(tree: list[Any]) -> list[Any]:
    kind = torch._C._profiler._EventType.Allocation
    found, waiting = [], list(tree)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.tag == kind:
            found.append(event)
    return found


def _frames(event: Any) -> list[dict[str, Any]]:
    """The Python lines that were running, innermost first."""
    kinds = torch._C._profiler._EventType
    frames: list[dict[str, Any]] = []
    above = event.parent
    while above is not None:
        if above.tag in (kinds.PyCall, kinds.PyCCall):
            fields = above.extra_fields
            if not frames and above.tag == kinds.PyCall:  # which line of it is not known
                frames.append(_frame(fields.callsite))
            frames.append(_frame(fields.caller))
        above = above.parent
    return frames


def _frame(state: Any) -> dict[str, Any]:
    return {"name": state.function_name, "filename": state.file_name, "line": state.line_number}


def _segment(block: dict[str, Any]) -> dict[str, Any]:
    size, address = block["size"], block["addr"]
    own = {"address": address, "size": size, "requested_size": size, "frames": block["frames"]}
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "requested_size": size,
        "stream": 0,
        "segment_type": "large",
        "blocks": [{**own, "state": "active_allocated"}],
    }
