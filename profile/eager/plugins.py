"""What can watch a training run, by the names of ``layerline train --profile``.

A plug-in is made by a function ``plugin(context)`` of its own module, in the worker's process. One
with `own_steps` runs alone for so many steps; the others watch the whole training.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core import capture_names
from ...core.capture_names import CaptureName
from ...core.errors import InputError

if TYPE_CHECKING:
    from ...workloads.plugin import Plugin


@dataclass(frozen=True)
class Kind:
    """One kind of plug-in: its module, the files that it leaves, whether it needs a process of its
    own under nsys."""

    module: str
    suffixes: tuple[str, ...]
    under_nsys: bool = False


PLUGINS: dict[str, Kind] = {
    "torch": Kind("torch_profile", (".trace.json.gz",)),
    "operators": Kind("operators", (".operators.json",)),
    "waits": Kind("synchronising", (".waits.json",)),
    "graph": Kind("autograd_graph", (".graph.json",)),
    "parameters": Kind("parameters.plugin", capture_names.PARAMETERS),
    "memory": Kind("memory.plugin", (".memory.pickle", ".memory.json")),
    "nsys": Kind("nsys_steps", (".nsys-rep", ".sqlite", ".nsys.meta.json"), under_nsys=True),
}


@dataclass(frozen=True)
class Schedule:
    """Which steps are captured, as of `torch.profiler.schedule`: after `wait` steps without a
    profiler and `warmup` steps whose trace is thrown away, `active` ones; `repeat` times over."""

    wait: int = 0
    warmup: int = 1
    active: int = 6
    repeat: int = 1

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """``WAIT,WARMUP,ACTIVE[,REPEAT]``. InputError for other texts."""
        if not re.fullmatch(r"\d{1,6}(,\d{1,6}){2,3}", text):
            raise InputError(f"{text!r} is no schedule", fix="write WAIT,WARMUP,ACTIVE[,REPEAT]")
        made = cls(*map(int, text.split(",")))
        if not (made.warmup and made.active and made.repeat):
            raise InputError(
                f"schedule {text}: nothing is captured of it, or it has no warm-up",
                fix="let WARMUP, ACTIVE and REPEAT be 1 or more",
            )
        return made

    @property
    def steps(self) -> int:
        """How many steps it needs."""
        return self.repeat * (self.wait + self.warmup + self.active)

    def place(self, number: int) -> int:
        """Which of the active steps of its cycle step `number` is; negative before these."""
        cycle = self.wait + self.warmup + self.active
        return number % cycle - self.wait - self.warmup


@dataclass(frozen=True)
class Context:
    """What a plug-in is given: the folder and the name of its capture, and the job's options."""

    folder: Path
    name: CaptureName
    options: Mapping[str, Any] = field(default_factory=dict)

    def path(self, suffix: str) -> Path:
        """Where the capture's file of this suffix goes."""
        return replace(self.name, suffix=suffix).path(self.folder)

    @property
    def schedule(self) -> Schedule:
        """Which steps are captured."""
        text = self.options.get("schedule")
        return Schedule.parse(text) if text else Schedule()

    @property
    def tensorboard(self) -> Path | None:
        """A folder for TensorBoard's profiler plug-in."""
        folder = self.options.get("tensorboard")
        return None if folder is None else Path(folder)


def check(names: Sequence[str]) -> None:
    """InputError for a name that is none."""
    for name in names:
        if name not in PLUGINS:
            raise InputError(f"nothing to profile is called {name}", fix=f"of {', '.join(PLUGINS)}")


def make(names: Sequence[str], context: Context) -> dict[str, Plugin]:
    """The plug-ins of these names."""
    check(names)
    made = {}
    for name in names:
        module = importlib.import_module(f".{PLUGINS[name].module}", __package__)
        made[name] = module.plugin(context)
    return made
