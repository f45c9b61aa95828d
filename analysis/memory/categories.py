"""What every allocation is: parameter, gradient, activation, and of which module.

What the hooks saw at an address (parameters, buffers, gradients, optimizer state, inputs) is that
from its birth on. The rest is told by its life: what is allocated in forward or loss and still
there when backward begins is an activation; what goes earlier, and all that is allocated elsewhere,
is a temporary. What outlives its step, or is older than the recording, is `other`: libraries' work
space, caches. A step that failed may have no backward, and keeps what an exception holds. Where
nothing tells of phases (a snapshot that came alone) all is `unknown`.

An allocation belongs to the module that was running when it was made; parameters, their gradients
and optimizer state belong to the module that has the parameter.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...core.documents import Memory, MemoryStep, MemoryTensor
from ...core.tables import Ints
from .history import CPU, History

CATEGORIES = (
    "parameters", "buffers", "gradients", "optimizer state", "data", "activations",
    "temporaries", "other", "unknown",
)  # fmt: skip
_CODES = {name: code for code, name in enumerate(CATEGORIES)}
# What the hooks saw, the strongest first: a flat buffer of gradients is not its first tensor alone.
_KINDS = {"parameter": "parameters", "buffer": "buffers", "optimizer state": "optimizer state",
          "gradient": "gradients", "input": "data"}  # fmt: skip
_MADE_FOR_BACKWARD = ("forward", "loss")


@dataclass(frozen=True)
class Span:
    """A step: its events are those from `begin` up to `end`, without it."""

    number: int | None
    begin: int
    end: int
    recorded: MemoryStep | None = None


@dataclass(frozen=True)
class Told:
    """What is known of each allocation (codes of `CATEGORIES`, numbers of `modules`, -1: none) and
    of each event (numbers of `phases` and `modules`)."""

    history: History
    steps: list[Span]
    category: Ints
    module: Ints
    modules: list[str]
    classes: list[str | None]
    phase: Ints
    event_module: Ints
    phases: list[str]
    outputs: list[tuple[int, str]] = field(default_factory=list)
    weights: dict[str, set[int]] = field(default_factory=dict)

    def is_(self, *names: str) -> Any:
        """Which allocations are of these categories."""
        return np.isin(self.category, [_CODES[n] for n in names])

    def in_phase(self, *names: str) -> Any:
        """Which events are of these phases."""
        return np.isin(self.phase, [i for i, p in enumerate(self.phases) if p in names])

    def born_in(self, *names: str) -> Any:
        """Which allocations were made in these phases."""
        events = np.append(self.in_phase(*names), False)
        return events[self.history.born]  # -1, older than the first event: the False at the end


def tell(history: History, meta: Memory | None) -> Told:
    """What is known of every allocation."""
    if meta is None:
        return _nothing(history)
    phases = list(dict.fromkeys(meta.marks.phase))
    number = {name: i for i, name in enumerate(phases)}
    mark = history.mark
    phase = _at(mark, [number[p] for p in meta.marks.phase])
    event_module = _at(mark, meta.marks.module)
    modules = [m.path for m in meta.modules]
    told = Told(
        history=history,
        steps=_steps(history, meta),
        category=np.full(len(history.born), -1, np.int64),
        module=_at(history.born, event_module),
        modules=modules,
        classes=[m.class_ for m in meta.modules],
        phase=phase,
        event_module=event_module,
        phases=phases,
        weights=_weights(meta.tensors),
    )
    _seen(told, meta)
    _by_life(told, meta)
    return told


def _nothing(history: History) -> Told:
    none = np.full(history.events, -1, np.int64)
    every = np.full(len(history.born), _CODES["unknown"], np.int64)
    module = np.full(len(history.born), -1, np.int64)
    whole = [Span(None, 0, history.events)]
    return Told(history, whole, every, module, [], [], none, none, [])


def _at(index: Ints, values: Any) -> Ints:
    """`values` at each index; -1 where the index is."""
    padded = np.append(np.array(values, np.int64), -1)
    found: Ints = padded[index]
    return found


def _steps(history: History, meta: Memory) -> list[Span]:
    steps, begin = [], 0
    for step in meta.steps:
        begin = max(begin, int(np.searchsorted(history.mark, step.begin_mark)))
        end = max(begin, int(np.searchsorted(history.mark, step.end_mark)))
        steps.append(Span(step.number, begin, end, step))
        begin = end
    return steps or [Span(None, 0, history.events)]


def _weights(tensors: list[MemoryTensor]) -> dict[str, set[int]]:
    """The bytes of the parameters of each module."""
    found: dict[str, set[int]] = defaultdict(set)
    for tensor in tensors:
        if tensor.kind == "parameter":
            found[owner(tensor.name)].add(tensor.bytes)
    return found


def owner(name: str) -> str:
    """The module that has a parameter, of its name or that of its optimizer state
    (``path.weight:exp_avg``)."""
    return name.partition(":")[0].rpartition(".")[0]


def _seen(told: Told, meta: Memory) -> None:
    """Set category and module of what the hooks saw at its address; collect modules' outputs."""
    history, paths = told.history, {path: i for i, path in enumerate(told.modules)}
    wanted = {t.address for t in meta.tensors}
    at: dict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(np.isin(history.address, np.array(sorted(wanted), np.int64))).tolist():
        at[int(history.address[i])].append(i)
    for lives in at.values():
        lives.sort(key=lambda i: history.born[i])
    here = (None, "cpu") if history.device == CPU else (None, "cuda", f"cuda:{history.device}")
    rank = {kind: i for i, kind in enumerate(_KINDS)}
    for tensor in sorted(meta.tensors, key=lambda t: rank.get(t.kind, 9)):
        if tensor.device not in here:
            continue
        begin = int(np.searchsorted(history.mark, tensor.mark))
        end = int(np.searchsorted(history.mark, tensor.mark, side="right"))
        there = [
            i
            for i in at.get(tensor.address, ())
            if history.born[i] < max(end, 1) and history.freed[i] >= begin
        ]
        if not there:
            continue
        held = there[-1]
        if tensor.kind == "output":
            told.outputs.append((held, tensor.name))
        elif tensor.kind in _KINDS and told.category[held] < 0:
            told.category[held] = _CODES[_KINDS[tensor.kind]]
            if tensor.kind != "input":
                told.module[held] = paths.get(owner(tensor.name), -1)


def _broke_off(told: Told, meta: Memory) -> Span | None:
    """The step that failed: the last one, where it did not come to its optimizer."""
    last = told.steps[-1]
    if last.recorded is None:
        return None
    own = slice(last.recorded.begin_mark, last.recorded.end_mark + 1)
    return None if "optimizer" in meta.marks.phase[own] else last


def _by_life(told: Told, meta: Memory) -> None:
    """Set the category of all that the hooks did not see."""
    history, broken = told.history, _broke_off(told, meta)
    backward = np.flatnonzero(told.in_phase("backward", "recompute"))
    if broken is not None:  # as if backward began when it failed
        made = np.flatnonzero(told.in_phase(*_MADE_FOR_BACKWARD))
        backward = np.union1d(backward, made[(made >= broken.begin) & (made < broken.end)][-1:])
    after = np.append(backward, history.events)
    begins = after[np.searchsorted(backward, history.born)]  # the next event of backward
    kept = told.born_in(*_MADE_FOR_BACKWARD) & (history.freed > begins)
    forward = np.flatnonzero(~told.in_phase("recompute"))
    ends = np.append(forward, history.events)[np.searchsorted(forward, history.born)]
    kept |= told.born_in("recompute") & (history.freed > ends)
    step_end = np.full(len(history.born), -1, np.int64)
    for step in told.steps:
        inside = (history.born >= step.begin) & (history.born < step.end)
        step_end[inside] = step.end if step is not broken else history.events + 1
    outlives = history.freed > step_end
    outlives |= (step_end == history.events) & (history.freed == history.events)
    names = np.full(len(history.born), _CODES["temporaries"], np.int64)
    names[kept] = _CODES["activations"]
    names[told.born_in("data")] = _CODES["data"]
    names[outlives | (step_end < 0)] = _CODES["other"]
    unseen = told.category < 0
    told.category[unseen] = names[unseen]
