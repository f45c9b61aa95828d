"""Events of a torch.profiler trace made by hand: microseconds, on any thread, with what autograd
writes beside its operators."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from layerline.analysis.readers.torch.events import Events, read_events

MAIN, BACK = 1, 2
EVALUATE = "autograd::engine::evaluate_function: "
MODULE, PHASE = "layerline/module/", "layerline/phase/"
Event = dict[str, Any]


def op(
    name: str, start: float, end: float, seq: int | None = None, *, of: int = 0, thread: int = MAIN,
    index: int | None = None, process: int = 7, cat: str = "cpu_op",
) -> Event:  # fmt: skip
    """An operator; `seq`: its sequence number, `of`: the number of its forward's thread."""
    args: dict[str, Any] = {} if seq is None else {"Sequence number": seq, "Fwd thread id": of}
    args |= {} if index is None else {"Ev Idx": index}
    return {
        "ph": "X", "cat": cat, "name": name, "pid": process, "tid": thread, "ts": start,
        "dur": end - start, "args": args,
    }  # fmt: skip


def span(name: str, start: float, end: float, thread: int = MAIN, process: int = 7) -> Event:
    """A range; of a phase, a module or an iteration as it is named."""
    return op(name, start, end, thread=thread, process=process, cat="user_annotation")


def module(name: str, start: float, end: float, thread: int = MAIN) -> Event:
    """The range of a module."""
    return span(MODULE + name, start, end, thread)


def phase(name: str, start: float, end: float, thread: int = MAIN, process: int = 7) -> Event:
    """The range of a phase."""
    return span(PHASE + name, start, end, thread, process)


def launch(start: float, correlation: int, *, thread: int = MAIN, process: int = 7) -> Event:
    """A call of 1 us that launches something."""
    call = op(
        "cudaLaunchKernel", start, start + 1, thread=thread, process=process, cat="cuda_runtime"
    )
    return {**call, "args": {"correlation": correlation}}


def kernel(name: str, start: float, end: float, correlation: int, cat: str = "kernel") -> Event:
    """An operation of the device."""
    args = {"device": 0, "stream": 20, "correlation": correlation}
    return {**op(name, start, end, thread=20, process=0, cat=cat), "args": args}


def events_of(*events: Event) -> Events:
    """The events as they are read from a file, t.json."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        return read_events(path)
