"""The names of files in captures/ and engines/: what a file is of, and which of its files it is.

::

    fp16.tensorrt.latency.json             engine:  PRECISION.BACKEND
    eager.fp32.trace.json.gz               PyTorch: TASK.PRECISION
    train.bf16.rank0003.trace.json.gz      one rank of several
    train.bf16.rank0003@node-7.trace.json.gz    and the host on which it ran
    train.bf16@node-7.nsys-rep             all ranks of a host in one
    fp16.tensorrt.ncu-every.ncu.csv        a variant of an ncu capture

Whoever writes such a file, and whoever looks for one, takes its name from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path, PurePath
from typing import Literal

from .files import listing

Task = Literal["engine", "eager", "train"]
Kind = Literal[
    "latency", "trace", "profile", "nsys", "ncu", "memory", "parameters",
    "accuracy", "rebuild", "outputs", "graph", "waits", "meta", "engine", "other",
]  # fmt: skip

PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
# Of the model in PyTorch, inference first.
TORCH_TASKS: tuple[Task, ...] = ("eager", "train")

# Variants of an ncu capture: of every launch, and of ranges of launches that are replayed as one.
# A number is the second report of one capture, and so on.
EVERY = "ncu-every"
RANGE = "ncu-range"

# The table, which parameter is which number, the log of changes.
PARAMETERS = (".parameters.parquet", ".parameters.index.json", ".parameter_changes.log")
# A folder of a run: of each remedy for memory that was tried a run of its own.
TRIED = "tried"

# What is run of an engine, by any backend.
ENGINES = (".engine", ".onnx", ".pt2")
_SUFFIXES: dict[Kind, tuple[str, ...]] = {
    "latency": (".latency.json",),
    "trace": (".trace.json.gz", ".trace.json", ".trace.meta.json", ".trace.profile.json"),
    "profile": (".profile.json", ".profile.meta.json"),
    "nsys": (".nsys-rep", ".sqlite", ".nsys.meta.json"),
    "ncu": (
        ".ncu-rep", ".ncu.csv", ".ncu.meta.json", ".ncu.plan.json", ".ncu.refused.json",
        ".ncu.batches",
    ),
    "memory": (".memory.pickle", ".memory.json"),
    "parameters": PARAMETERS,
    "accuracy": (".accuracy.json", ".accuracy.modules.json"),
    "rebuild": (".rebuild.json",),
    "outputs": (".outputs.npz",),
    "graph": (".graph.json",),
    "waits": (".waits.json",),
    "meta": (".meta.json",),
    "engine": (
        *ENGINES, ".layers.json", ".build.json", ".network.json", ".inspector.json",
        ".profiled.pt2", ".nodes.json", ".provenance.json", ".code.cpp",
    ),
}  # fmt: skip
_KINDS: dict[str, Kind] = {s: kind for kind, suffixes in _SUFFIXES.items() for s in suffixes}
_TORCH = re.compile(rf"({'|'.join(TORCH_TASKS)})\.({'|'.join(PRECISIONS)})(?=[.@])")
_ENGINE = re.compile(rf"({'|'.join(PRECISIONS)})\.([a-z][a-z0-9-]*)(?=\.)")
_RANK = re.compile(r"\.rank(\d{4}|[1-9]\d{4,})(?=[.@])")
_HOST = re.compile(r"@([A-Za-z0-9-]+)(?=\.)")
# In any text the name of a file of a job: what is before the host, and the host.
HOSTED = re.compile(
    rf"(?<![\w.+-])((?:{'|'.join(TORCH_TASKS)})\.(?:{'|'.join(PRECISIONS)})(?:\.rank\d{{4,}})?@)"
    r"([A-Za-z0-9-]+)(?=\.)"
)
_NCU = re.compile(rf"((?:\.[^.]+)*)({'|'.join(map(re.escape, _SUFFIXES['ncu']))})")


@dataclass(frozen=True)
class CaptureName:
    """`backend` is None for PyTorch, `rank` where there is one process. `suffix` begins with a
    dot; `variant` is of ncu captures alone; `host` is of a job's, without dots."""

    task: Task
    precision: str
    backend: str | None = None
    suffix: str = ""
    rank: int | None = None
    variant: str = ""
    host: str | None = None

    @classmethod
    def parse(cls, path: str | PathLike[str]) -> CaptureName | None:
        """What a file's name says; None where it is of no engine and of no task."""
        name = PurePath(path).name
        if found := _TORCH.match(name):
            own = cls("train" if found[1] == "train" else "eager", found[2])
        elif found := _ENGINE.match(name):
            own = cls("engine", found[1], found[2])
        else:
            return None
        rest = name[found.end() :]
        if ranked := _RANK.match(rest):
            own, rest = replace(own, rank=int(ranked[1])), rest[ranked.end() :]
        if hosted := _HOST.match(rest):
            own, rest = replace(own, host=hosted[1]), rest[hosted.end() :]
        if ncu := _NCU.fullmatch(rest):
            return replace(own, variant=ncu[1].removeprefix("."), suffix=ncu[2])
        return replace(own, suffix=rest)

    @property
    def side(self) -> str:
        """What the file is of: ``fp16.tensorrt``, ``train.bf16.rank0003``."""
        parts = [self.precision, self.backend] if self.backend else [self.task, self.precision]
        return ".".join([*parts, *([] if self.rank is None else [f"rank{self.rank:04d}"])])

    @property
    def stem(self) -> str:
        """What all files of one capture begin with."""
        where = f"{self.side}@{self.host}" if self.host else self.side
        return f"{where}.{self.variant}" if self.variant else where

    @property
    def kind(self) -> Kind:
        """What kind of capture it is a file of; "other" for a name that no stage writes."""
        return _KINDS.get(self.suffix, "other")

    def words(self) -> str:
        """What it is of, for messages: ``fp16 tensorrt``."""
        return self.side.replace(".", " ")

    def path(self, folder: Path) -> Path:
        """Its place in a folder."""
        return folder / f"{self.stem}{self.suffix}"


def named(folder: Path, *suffixes: str) -> dict[Path, CaptureName]:
    """The files of a folder whose names are of an engine or a task, by name; with suffixes only
    those that have one of these. InputError where the folder cannot be read."""
    names = ((path, CaptureName.parse(path)) for path in listing(folder))
    return {
        path: name
        for path, name in names
        if name is not None and (not suffixes or name.suffix in suffixes)
    }
