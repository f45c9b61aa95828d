"""Checkpoints of a job: whole or not there, and read by a job of any number of ranks.

A folder ``step-00000100`` for each, written by `torch.distributed.checkpoint` under another name
and renamed when all ranks are done::

    .metadata  __0_0.distcp …   what DCP writes
    progress.json               the step, what model this is, where in the text it stands
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_state_dict,
    set_state_dict,
)

from ...core.errors import InputError
from ...core.files import folder, listing, read_json, write_json
from .step import ParallelTraining

_NAME = re.compile(r"step-(\d{8,})")
# Under the names of parameters, so that it does not matter how they are grouped.
_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class Checkpoints:
    """Those in `place`, of which the `keep` newest stay."""

    def __init__(self, place: Path, training: ParallelTraining, keep: int = 2) -> None:
        self.place, self.training, self.keep = place, training, keep

    def save(self) -> None:
        """Write the state of all ranks; each of them calls this."""
        training = self.training
        name = f"step-{training.done:08d}"
        partial = self.place / f".partial.{name}"
        if training.rank == 0:
            folder(self.place)
            for old in self.place.glob(".partial.step-*"):
                shutil.rmtree(old)
        dist.barrier()
        dcp.save(self._state(), checkpoint_id=partial)
        dist.barrier()
        if training.rank == 0:
            write_json(
                partial / "progress.json",
                {"step": training.done, "about": training.about, "text": training.text_state()},
            )
            final = self.place / name
            shutil.rmtree(final, ignore_errors=True)
            partial.rename(final)
            for old in complete(self.place)[self.keep :]:
                shutil.rmtree(old)
        dist.barrier()

    def resume(self) -> int:
        """Take the state of the newest complete checkpoint; gives the step, 0 without any.

        InputError where it is one of another model or text.
        """
        found: list[Any] = [None]
        if self.training.rank == 0:
            found = [next(iter(complete(self.place)), None)]
        dist.broadcast_object_list(found, src=0)
        if found[0] is None:
            return 0
        progress = read_json(found[0] / "progress.json")
        if progress["about"] != self.training.about:
            raise InputError(
                f"is a checkpoint of {_told(progress['about'])}, not of"
                f" {_told(self.training.about)}",
                file=found[0],
                fix="name another folder for checkpoints",
            )
        self.training.restore_text(progress["text"])
        state = self._state()
        dcp.load(state, checkpoint_id=found[0])
        set_state_dict(
            self.training.model,
            self.training.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_FLAT,
        )
        self.training.done = int(progress["step"])
        return self.training.done

    def _state(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(
            self.training.model, self.training.optimizer, options=_FLAT
        )
        return {"model": model, "optimizer": optimizer}


def complete(place: Path) -> list[Path]:
    """The checkpoints in `place` of which all files are there and long enough, the newest first."""
    named = {int(m[1]): p for p in listing(place) if (m := _NAME.fullmatch(p.name))}
    return [named[step] for step in sorted(named, reverse=True) if _whole(named[step])]


def _whole(path: Path) -> bool:
    try:
        metadata = dcp.FileSystemReader(path).read_metadata()
        parts = (metadata.storage_data or {}).values()
        sizes = {p.relative_path: 0 for p in parts}
        for p in parts:
            sizes[p.relative_path] = max(sizes[p.relative_path], p.offset + p.length)
        return (path / "progress.json").exists() and all(
            (path / name).stat().st_size >= size for name, size in sizes.items()
        )
    except (OSError, EOFError, ValueError):
        return False


def _told(about: dict[str, Any]) -> str:
    return " ".join(f"{name} {value}" for name, value in about.items())
