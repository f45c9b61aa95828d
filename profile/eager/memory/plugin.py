"""The memory of training steps: every allocation and every free, with the line that made it.

On a GPU the CUDA allocator records its own history (`torch.cuda.memory._record_memory_history`),
and dumps a snapshot: the pickle that pytorch.org/memory_viz opens. On the CPU torch.profiler tells
the allocations of PyTorch's CPU allocator, and `cpu` writes them in the same form. Beside
the pickle a small JSON file (`core.documents.Memory`) says what the allocator does not know: which
step, phase and module was running (`marks`), which addresses are parameters, gradients and
optimizer state, how memory lay when recording began, and the allocator's own peak of each step.

Where torch has `torch.cuda.memory._set_memory_metadata`, the number of the current mark is written
into each event by the allocator itself (`user_metadata`); else marks and events are joined by time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import torch

from ....core.files import replacing, write_json
from ....workloads.plugin import NOTHING, Plugin
from .cpu import Cpu
from .marks import Marks, Tensors, Where

if TYPE_CHECKING:
    from ....workloads.training import Training
    from ..plugins import Context

MAX_EVENTS = 2_000_000  # the allocator forgets the oldest beyond it; about 300 bytes each on disk
WAIT, STEPS = 1, 2  # steps before recording, and recorded ones


class Recorder(Protocol):
    """What records the events of one device."""

    how: str
    unseen: tuple[str, ...]

    def start(self) -> dict[str, Any]:
        """Begin; gives how memory lies then."""

    def begin_step(self) -> None:
        """A step begins."""

    def end_step(self) -> dict[str, Any]:
        """The allocator's own figures of the step that ends."""

    def tell(self, mark: int) -> None:
        """A mark was set."""

    def write(self, path: Path, marks: Marks) -> dict[int, dict[str, Any]]:
        """Stop, and leave the snapshot; gives what is known only now of each step."""


class Cuda:
    """The history of the CUDA caching allocator, of one device."""

    how = "history of the CUDA caching allocator"
    unseen: tuple[str, ...] = (
        "memory that is not from PyTorch's allocator: the CUDA context, NCCL's buffers, cuDNN and "
        "cuBLAS handles, other processes",
    )

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._tells = hasattr(torch.cuda.memory, "_set_memory_metadata")

    def start(self) -> dict[str, Any]:
        torch.cuda.synchronize(self.device)
        before = torch.cuda.memory._snapshot()["segments"]
        torch.cuda.memory._record_memory_history(
            "all", context="alloc", stacks="python", max_entries=MAX_EVENTS
        )
        own = [s for s in before if s["device"] == self.device.index]
        return {"segments": [_layout(segment) for segment in own]}

    def begin_step(self) -> None:
        torch.cuda.reset_peak_memory_stats(self.device)

    def end_step(self) -> dict[str, Any]:
        return {
            "allocated_peak_bytes": torch.cuda.max_memory_allocated(self.device),
            "reserved_peak_bytes": torch.cuda.max_memory_reserved(self.device),
        }

    def tell(self, mark: int) -> None:
        if self._tells:
            torch.cuda.memory._set_memory_metadata(str(mark))

    def write(self, path: Path, marks: Marks) -> dict[int, dict[str, Any]]:
        try:
            with replacing(path) as temporary:
                torch.cuda.memory._dump_snapshot(str(temporary))
        finally:
            torch.cuda.memory._record_memory_history(None)
            if self._tells:
                torch.cuda.memory._set_memory_metadata("")
        return {}


def _layout(segment: dict[str, Any]) -> dict[str, Any]:
    """A segment without its frames: address, bytes, pool, and its blocks one after the other."""
    return {
        "address": segment["address"],
        "bytes": segment["total_size"],
        "pool": segment["segment_type"],
        "expandable": bool(segment.get("is_expandable")),
        "blocks": [
            [b["address"], b["size"], b["requested_size"], b["state"] != "inactive"]
            for b in segment["blocks"]
        ],
    }


def plugin(context: Context) -> Memory:
    """The plug-in of a capture."""
    return Memory(context.path(".memory.pickle"), context.path(".memory.json"))


class Memory(Plugin):
    """Records `STEPS` steps after the first of its own, then leaves the pickle and the JSON file.
    Where a step fails, out of memory say, what was recorded until then is left."""

    own_steps = WAIT + STEPS

    def __init__(self, pickle: Path, meta: Path) -> None:
        self.pickle, self.meta = pickle, meta
        self._seen = 0
        self._recorder: Recorder | None = None
        self._steps: list[dict[str, Any]] = []

    def open(self, training: Training) -> None:
        """Take the training; nothing is watched before the first step that is recorded."""
        self._training = training

    def step(self, number: int) -> AbstractContextManager[None]:
        """One step; the first only warms up."""
        self._seen += 1
        return self._recorded(number) if WAIT < self._seen <= WAIT + STEPS else NOTHING

    def phase(self, name: str) -> AbstractContextManager[None]:
        """One phase, also one inside another."""
        return NOTHING if self._recorder is None else self._in_phase(name)

    def close(self) -> None:
        """Stop recording, leave the files."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        self._where.remove()
        self._tensors.remove()
        started = time.perf_counter()
        known = recorder.write(self.pickle, self._marks)
        self._steps = [{**row, **known.get(row["number"], {})} for row in self._steps]
        write_json(self.meta, self._document(recorder, time.perf_counter() - started))

    @contextlib.contextmanager
    def _recorded(self, number: int) -> Iterator[None]:
        if self._recorder is None:
            self._begin()
        assert self._recorder is not None
        self._recorder.begin_step()
        begin = len(self._marks)
        started = time.perf_counter_ns()
        self._where.enter_step(number)
        try:
            yield
        finally:
            row = {"number": number, "begin_mark": begin, **self._recorder.end_step()}
            row["duration_ns"] = time.perf_counter_ns() - started
            self._where.enter_step(number + 1)
            self._steps.append({**row, "end_mark": len(self._marks) - 1})

    @contextlib.contextmanager
    def _in_phase(self, name: str) -> Iterator[None]:
        outer = self._where.enter_phase(name)
        try:
            yield
        finally:
            if name == "optimizer":
                self._tensors.optimizer_state()
            self._where.enter_phase(outer)

    def _begin(self) -> None:
        training = self._training
        device = self._device = _numbered(training.device)
        recorder: Recorder = Cuda(device) if device.type == "cuda" else Cpu()
        modules = training.compiled is None  # hooks would be compiled too, or break graphs up
        paths = [path for path, _ in training.model.named_modules()] if modules else []
        self._marks = Marks(paths, recorder.tell)
        self._where = Where(training.model, self._marks)
        self._tensors = Tensors(training, self._marks)
        self._start = recorder.start()
        self._recorder = recorder

    def _document(self, recorder: Recorder, seconds: float) -> dict[str, Any]:
        training, model = self._training, self._training.model
        classes = {path: type(module).__name__ for path, module in model.named_modules()}
        unseen = list(recorder.unseen)
        if training.compiled is not None:
            unseen.append("modules: the model is compiled, so its graph has no modules")
        return {
            "schema_version": 1,
            "how": recorder.how,
            "unseen": unseen,
            "device": str(self._device),
            **_facts(self._device),
            "torch": torch.__version__,
            "most_events": MAX_EVENTS,
            "precision": training.precision,
            "accumulate": training.accumulate,
            "optimizer": _optimizer(training.optimizer),
            "batch": training.facts.get("batch"),
            "sequence": training.facts.get("sequence"),
            "recomputed_blocks": training.facts.get("recomputed_blocks") or [],
            "dump_seconds": round(seconds, 3),
            "steps": self._steps,
            "modules": [{"path": p, "class": classes[p]} for p in self._marks.paths],
            "marks": self._marks.document(),
            "tensors": self._tensors.rows,
            "start": self._start,
        }


def _numbered(device: torch.device) -> torch.device:
    """The device by its number, as tensors name it."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _facts(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {}
    own = torch.cuda.get_device_properties(device)
    return {"device_name": own.name, "device_bytes": own.total_memory}


def _optimizer(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    group = optimizer.param_groups[0] if optimizer.param_groups else {}
    switches = {k: group.get(k) for k in ("fused", "foreach", "capturable")}
    return {"class": type(optimizer).__name__, **switches}
