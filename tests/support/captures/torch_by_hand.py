"""A trace of torch.profiler made by hand: microseconds, one process, host thread 1, stream 7."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


class Trace:
    """Events as Kineto writes them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._next = 1

    def _add(self, cat: str, name: str, start: float, end: float, **args: Any) -> None:
        place = {"pid": 0, "tid": 7} if cat in ("kernel", "gpu_memcpy") else {"pid": 1, "tid": 1}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "ts": start, "dur": end - start, "args": args}
            | place
        )

    def range(self, name: str, start: float, end: float) -> None:
        self._add("user_annotation", name, start, end)

    def op(self, name: str, start: float, end: float) -> None:
        self._add("cpu_op", name, start, end)

    def frame(self, name: str, start: float, end: float) -> None:
        self._add("python_function", name, start, end)

    def call(self, name: str, start: float, end: float) -> None:
        """A call into the runtime that launches nothing."""
        self._add("cuda_runtime", name, start, end, correlation=self._number())

    def launch(
        self,
        host: tuple[float, float],
        device: tuple[float, float],
        name: str = "cudaLaunchKernel",
        kind: str = "kernel",
        operation: str | None = None,
    ) -> None:
        """A call and the operation that it launched, by its name."""
        number = self._number()
        self._add("cuda_runtime", name, *host, correlation=number)
        operation = operation or f"device of {name}"
        self._add(kind, operation, *device, correlation=number, stream=7, device=0)

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return path

    def _number(self) -> int:
        self._next += 1
        return self._next
