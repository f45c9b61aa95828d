"""How long steps and their phases take, with nothing else watching."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from ...workloads.plugin import Plugin

if TYPE_CHECKING:
    from ...workloads.training import Training

BETWEEN, AROUND = "between", "around"


class Latency(Plugin):
    """Nanoseconds of each step and of its phases.

    A step is timed by the host's clock, from an idle device to an idle device. A phase is timed by
    the host's clock on the CPU and by CUDA events on a GPU, where it ends when its work has; of
    several micro-batches it is the sum. A phase inside another one (recompute, in backward) counts
    once, as the inner one. `phases_ns`: a number for each step, 0 where a step had none of it.

    `outside_ns`, of the step in no phase, by the same clocks: `between` the phases, and `around`
    them: the host before the first one, and from the last one's end until it knows of that. The
    phases and these two are the step, to the nanosecond.
    """

    def __init__(self) -> None:
        self.steps_ns: list[int] = []
        self.phases_ns: dict[str, list[int]] = {}
        self.outside_ns: dict[str, list[int]] = {BETWEEN: [], AROUND: []}
        self._marks: list[tuple[str, Any, Any]] = []
        self._around: list[str] = []
        self._inside: list[tuple[str, int]] = []
        # CUDA events are made once: that takes the host longer than to record them.
        self._events: list[Any] = []
        self._used = 0

    def clear(self) -> None:
        """Forget the steps."""
        self.steps_ns.clear()
        self.phases_ns.clear()
        for of in self.outside_ns.values():
            of.clear()

    def open(self, training: Training) -> None:
        """Note the device."""
        self._wait, self._cuda = training.synchronize, training.device.type == "cuda"

    @contextlib.contextmanager
    def step(self, number: int) -> Iterator[None]:
        """Time one step."""
        self._marks.clear()
        self._inside.clear()
        self._used = 0
        self._wait()
        started = time.perf_counter_ns()
        yield
        self._wait()
        self.steps_ns.append(time.perf_counter_ns() - started)
        spent: dict[str, int] = {}
        for name, begin, end in self._marks:
            spent[name] = spent.get(name, 0) + self._between(begin, end)
        for outer, at in self._inside:
            spent[outer] -= self._between(*self._marks[at][1:])
        for name in [*self.phases_ns, *spent]:
            of_phase = self.phases_ns.setdefault(name, [0] * (len(self.steps_ns) - 1))
            if len(of_phase) < len(self.steps_ns):
                of_phase.append(spent.get(name, 0))
        inner = {at for _outer, at in self._inside}
        outermost = [mark for at, mark in enumerate(self._marks) if at not in inner]
        between = sum(
            self._between(end, begin)
            for (_, _, end), (_, begin, _) in itertools.pairwise(outermost)
        )
        self.outside_ns[BETWEEN].append(between)
        self.outside_ns[AROUND].append(self.steps_ns[-1] - sum(spent.values()) - between)

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time one phase."""
        begin = self._mark()
        self._around.append(name)
        try:
            yield
        finally:
            self._around.pop()
            if self._around:
                self._inside.append((self._around[-1], len(self._marks)))
            self._marks.append((name, begin, self._mark()))

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter_ns()
        if self._used == len(self._events):
            self._events.append(torch.cuda.Event(enable_timing=True))
        event = self._events[self._used]
        self._used += 1
        event.record()
        return event

    def _between(self, begin: Any, end: Any) -> int:
        return int(round(begin.elapsed_time(end) * 1e6) if self._cuda else end - begin)
