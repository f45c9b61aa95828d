"""What the keepers of a job are told: the program, and what watches which of its ranks."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from ...core.capture_names import CaptureName
from ...core.ranks import identity as ranks_
from ...core.ranks.identity import Rank
from .diagnosis import RECORDED

WATCH = "LAYERLINE_WATCH"
# A ring of so many collectives a rank; dumped where a time-out is met.
RECORDER = {
    "TORCH_FR_BUFFER_SIZE": "2000",  # TORCH_NCCL_TRACE_BUFFER_SIZE before torch 2.9
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
}
RECORDER_FILE = "TORCH_NCCL_DEBUG_INFO_TEMP_FILE"
# In the arguments of a tool: the rank's own name of a capture, without its suffix.
STEM = "{stem}"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`folder` is the job's, for logs; `captures` where profilers leave files. `ranks` as
    `identity.chosen` has them. `prefix` goes before the program of these; in it `STEM` becomes
    the rank's place in `captures`. `watch` is for `profile.ranks.watch`, `environment` is added to
    the program's, `variant` to the names of captures; `grace` seconds has a program to end that is
    told to."""

    folder: str
    captures: str
    precision: str
    program: list[str]
    ranks: str = "all"
    prefix: list[str] = []
    watch: dict[str, object] = {}
    environment: dict[str, str] = {}
    variant: str = ""
    grace: float = 20.0  # torchrun and Slurm wait 30 s before they send SIGKILL

    def stem(self, rank: Rank) -> Path:
        """What the names of a rank's captures begin with."""
        name = CaptureName(
            "train", self.precision, rank=rank.rank, host=ranks_.host(), variant=self.variant
        )
        return name.path(Path(self.captures))

    def command_of(self, rank: Rank, *, profiled: bool) -> list[str]:
        """The program's words, under the tool where the rank is profiled."""
        stem = str(self.stem(rank))
        named = stem.replace("%", "%%")  # % begins a macro in a report's name
        return [*(w.replace(STEM, named) for w in self.prefix if profiled), *self.program]

    def environment_of(
        self, rank: Rank, environment: Mapping[str, str], *, profiled: bool
    ) -> dict[str, str]:
        """The program's environment; what the user set of the Flight Recorder stays."""
        own = {
            **RECORDER,
            "KINETO_LOG_LEVEL": "4",
            RECORDER_FILE: str(Path(self.folder, RECORDED)),
            **environment,
            **ranks_.torch_environment(rank, environment),
            "PYTHONFAULTHANDLER": "1",
            **self.environment,
        }
        if profiled and self.watch:
            watch = {**self.watch, "stem": str(self.stem(rank)), "folder": self.folder}
            own[WATCH] = msgspec.json.encode(watch).decode()
        return own
