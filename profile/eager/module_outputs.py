"""What each module of the eager model is given and gives, in one forward in fp32.

Leaves an npz of float32 arrays, and an index: ``{"modules": [{"path", "class", "calls",
"inputs": [key, ...], "output": key or null}]}`` in the order in which the modules ended, so that a
module stands after its parts. Of a module that is called more than once nothing is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ...core.files import replacing, write_json
from .setup import float_outputs, prepare

Take = Callable[[Any], list[Any]]


class Kept:
    """The hooks of one module, and what they took of its inputs and its output."""

    def __init__(self, path: str, module: torch.nn.Module, ended: list[Kept], take: Take) -> None:
        self.path, self.name, self._take = path, type(module).__name__, take
        self.calls, self.ended = 0, ended
        self.inputs: list[Any] = []
        self.output: Any = None

    def before(self, _module: Any, args: Any, kwargs: Any) -> None:
        self.calls += 1
        given = [*args, *kwargs.values()]
        # A module may change its input in place.
        self.inputs = [a for value in given for a in self._take(value)]

    def after(self, _module: Any, _args: Any, _kwargs: Any, output: Any) -> None:
        if self.calls == 1:
            self.ended.append(self)
        found = self._take(output)
        self.output = found[0] if found else None


def floating(value: Any) -> list[torch.Tensor]:
    """The floating tensors of a value."""
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, (list, tuple)):
        return [v for v in value if isinstance(v, torch.Tensor) and v.is_floating_point()]
    return list(float_outputs(value).values()) if hasattr(value, "items") else []


def _arrays(value: Any) -> list[Any]:
    return [v.detach().float().cpu().numpy().copy() for v in floating(value)]


@contextlib.contextmanager
def hooked(model: torch.nn.Module, take: Take) -> Iterator[list[Kept]]:
    """The modules in the order in which they end, with what `take` gave of their inputs when they
    began and of their outputs."""
    ended: list[Kept] = []
    handles: list[Any] = []
    try:
        for path, module in model.named_modules():
            kept = Kept(path, module, ended, take)
            handles.append(module.register_forward_pre_hook(kept.before, with_kwargs=True))
            handles.append(module.register_forward_hook(kept.after, with_kwargs=True))
        yield ended
    finally:
        for handle in handles:
            handle.remove()


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Write both files of `job["files"]`; gives facts."""
    subject = prepare(job, training=False)
    with torch.inference_mode(), hooked(subject.model, _arrays) as ended:
        subject.model(**subject.batch())
    arrays: dict[str, Any] = {}
    listed = []
    for number, kept in enumerate(ended):
        once = kept.calls == 1
        inputs = {f"{number}.in{i}": a for i, a in enumerate(kept.inputs)} if once else {}
        output = {f"{number}.out": kept.output} if once and kept.output is not None else {}
        arrays |= inputs | output
        listed.append(
            {
                "path": kept.path,
                "class": kept.name,
                "calls": kept.calls,
                "inputs": list(inputs),
                "output": next(iter(output), None),
            }
        )
    with replacing(Path(job["files"]["values"])) as path, path.open("wb") as f:
        np.savez(f, **arrays)
    write_json(Path(job["files"]["index"]), {"modules": listed})
    return {"modules": len(listed)}
