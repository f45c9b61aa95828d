"""One training step of a model with two blocks, allocated by hand.

Sizes in MiB: two weights of 2 each, two states of 2 for each, activations of 8 in each block and an
output of 3/4, the loss 1/2, gradients of 2, 6 in the optimizer. What is not a multiple of 2 MiB is
of the small pool, so that nothing is rounded.
"""

from __future__ import annotations

from typing import Any

from memory_snapshot import MIB, Allocator

from layerline.core.documents import Memory, of_form

PATHS = ("", "h", "h.0", "h.1", "head")
ALL, FIRST, SECOND = 0, 2, 3
OUTPUT = 3 * MIB // 4


class Step:
    """Allocates, and notes what the hooks of the plug-in would note."""

    def __init__(self, allocator: Allocator | None = None) -> None:
        self.memory = allocator or Allocator()
        self.marks: dict[str, list[Any]] = {"time_ns": [], "step": [], "phase": [], "module": []}
        self.tensors: list[dict[str, Any]] = []
        self.steps: list[dict[str, Any]] = []
        self.number = 0

    def mark(self, phase: str, module: int = -1) -> None:
        number = len(self.marks["step"])
        self.memory.mark = str(number)
        self.memory.now += 2  # microseconds
        row = {"time_ns": self.memory.now * 1000, "step": self.number, "phase": phase}
        for name, value in {**row, "module": module}.items():
            self.marks[name].append(value)
        where = f"{phase}_{PATHS[module] if module >= 0 else ''}"
        self.memory.frames = [
            {"name": "linear", "filename": "/site/torch/nn/functional.py", "line": 3},
            {"name": where, "filename": "/home/model.py", "line": number + 1},
        ]

    def note(self, kind: str, name: str, address: int, size: int) -> None:
        mark = max(0, len(self.marks["step"]) - 1)
        self.tensors.append(
            {"kind": kind, "name": name, "address": address, "bytes": size, "mark": mark,
             "device": "cuda:0"}
        )  # fmt: skip

    def weights(self) -> None:
        """Before recording begins."""
        self.memory.recording = False
        for block in ("h.0", "h.1"):
            self.note("parameter", f"{block}.weight", self.memory.alloc(2 * MIB), 2 * MIB)
            for state in ("exp_avg", "exp_avg_sq"):
                address = self.memory.alloc(2 * MIB)
                self.note("optimizer state", f"{block}.weight:{state}", address, 2 * MIB)
        self.memory.recording = True

    def run(self, gradients_stay: bool = False) -> None:
        """One step."""
        memory = self.memory
        begin = max(0, len(self.marks["step"]) - 1)
        memory.peak = memory.allocated
        self.mark("data")
        data = memory.alloc(1024)
        kept: dict[int, list[int]] = {}
        for module in (FIRST, SECOND):
            self.mark("forward", module)
            temporary = memory.alloc(4 * MIB)
            kept[module] = [memory.alloc(8 * MIB)]
            memory.free(temporary)
            output = memory.alloc(OUTPUT)
            kept[module].append(output)
            self.mark("forward", ALL)
            self.note("output", PATHS[module], output, OUTPUT)
        self.mark("loss")
        loss = memory.alloc(MIB // 2)
        self.mark("backward")
        memory.free(memory.alloc(MIB // 4))
        gradients = []
        for module in (SECOND, FIRST):
            self.mark("backward", module)
            gradient = memory.alloc(2 * MIB)
            self.note("gradient", f"{PATHS[module]}.weight", gradient, 2 * MIB)
            gradients.append(gradient)
            for address in kept[module]:
                memory.free(address)
        self.mark("other")
        memory.free(loss)
        self.mark("optimizer")
        work = memory.alloc(6 * MIB)
        memory.free(work)
        for gradient in () if gradients_stay else gradients:
            memory.free(gradient)
        memory.free(data)
        self.number += 1
        self.mark("other")
        end = len(self.marks["step"]) - 1
        row = {"number": self.number - 1, "begin_mark": begin, "end_mark": end}
        self.steps.append({**row, "allocated_peak_bytes": memory.peak})

    def meta(self, start: dict[str, Any] | None = None, **more: Any) -> Memory:
        """What the plug-in would have written."""
        classes = ("Model", "ModuleList", "Block", "Block", "Linear")
        document = {
            "device": "cuda:0",
            "device_bytes": 256 * MIB,
            "optimizer": {"class": "AdamW"},
            "steps": self.steps,
            "modules": [{"path": p, "class": c} for p, c in zip(PATHS, classes, strict=True)],
            "marks": self.marks,
            "tensors": self.tensors,
            "start": start or {},
            **more,
        }
        return of_form(document, Memory, "train.fp32.memory.json")  # type: ignore[arg-type]


def recorded(steps: int = 1) -> tuple[dict[str, Any], Memory, Allocator]:
    """A snapshot of some steps, what lies beside it, and the allocator."""
    step = Step()
    step.weights()
    start = step.memory.start()
    for _ in range(steps):
        step.run()
    return step.memory.snapshot(), step.meta(start), step.memory
