"""What the parallel workloads have in common: what they are trained on and how fast they learn."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch

from ...core.errors import InputError
from ..text import Sequences, tokens
from ..training import Batch

# The least of each number; of others it is 1.
LEAST = {
    "seed": 0, "learning_rate": 0, "warmup": 0, "weight_decay": 0, "clip": 0, "report_every": 0,
    "save_every": 0, "checkpoint_every": 0, "seq": 2,
}  # fmt: skip
PRECISIONS = ("fp32", "tf32", "bf16")


@dataclass(frozen=True)
class Options:
    """`text`, `tokenizer`, `cache`: as `workloads.text.tokens` takes them. The batch sizes are in
    sequences; `global_batch` is of all ranks together and makes a step. The learning rate rises
    for `warmup` steps, then stays. `report_every`, `save_every`: steps between two reports, two
    checkpoints, which go into the folder `checkpoints`; all hosts must see it."""

    text: Path | None = None
    tokenizer: Path | None = None
    cache: Path = Path("runs/text")
    precision: str = "fp32"
    seed: int = 0
    learning_rate: float = 3e-4
    warmup: int = 10
    weight_decay: float = 0.1
    clip: float = 1.0
    fused: bool = False
    report_every: int = 10
    checkpoints: Path | None = None
    save_every: int = 0

    def check(self) -> None:
        """InputError for what no workload can do."""
        for field in dataclasses.fields(self):
            value, least = getattr(self, field.name), LEAST.get(field.name, 1)
            if isinstance(value, int | float) and not isinstance(value, bool) and value < least:
                raise InputError(f"--{field.name.replace('_', '-')} {value}: at least {least}")
        if self.precision not in PRECISIONS:
            raise InputError(
                f"precision {self.precision}: not one of {', '.join(PRECISIONS)}",
                fix="fp16 needs a scale that ranks agree on, which is not here: take bf16",
            )

    def rate(self, done: int) -> float:
        """The learning rate of the step after `done` steps."""
        return self.learning_rate * min(1.0, (done + 1) / max(self.warmup, 1))


def known(kind: str, value: str, among: Iterable[str]) -> None:
    """InputError where `value` is none of `among`."""
    if value not in among:
        raise InputError(f"{kind} {value}: not one of {', '.join(among)}")


def micro_batches(step: int, micro: int, replicas: int) -> int:
    """How many micro-batches of a rank make a step of `step` sequences. InputError where the
    batch cannot be divided so."""
    count, rest = divmod(step, micro * replicas)
    if rest or not count:
        raise InputError(
            f"a global batch of {step} is no multiple of {replicas} data-parallel ranks"
            f" x micro batch {micro}",
            fix=f"take one of {micro * replicas}, or of a multiple",
        )
    return count


class Batches(Iterator[Batch]):
    """Micro-batches of a data-parallel rank, on the device: {"input_ids": (batch, length)}.
    `facts` are of the text."""

    def __init__(
        self, sequences: Sequences, device: torch.device, facts: Mapping[str, Any]
    ) -> None:
        self.sequences, self.device, self.facts = sequences, device, facts

    def __next__(self) -> Batch:
        ids = torch.from_numpy(next(self.sequences))
        return {"input_ids": ids.to(self.device, non_blocking=True)}


def batches(
    options: Options,
    device: torch.device,
    *,
    vocabulary: int,
    length: int,
    batch: int,
    rank: int,
    ranks: int,
) -> Batches:
    """The text of `options`, in the part of data-parallel rank `rank` of `ranks`."""
    text = tokens(options.text, options.tokenizer, vocabulary, options.cache)
    mine = Sequences(text, length, batch, rank=rank, ranks=ranks, seed=options.seed)
    return Batches(mine, device, text.facts())


def next_words(input_ids: torch.Tensor) -> torch.Tensor:
    """What is to be told at each position: the token after it; -100 (none) at the last."""
    return torch.nn.functional.pad(input_ids[:, 1:], (0, 1), value=-100)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean over the positions that have a target, in float32."""
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def converted(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """Options from text, as a command line gives them. InputError for what is none."""
    unknown = set(values) - {field.name for field in dataclasses.fields(kind)}
    if unknown:
        raise InputError(
            f"no option is called {min(unknown)}",
            fix=f"of {', '.join(field.name for field in dataclasses.fields(kind))}",
        )
    try:
        return msgspec.convert(values, kind, strict=False, dec_hook=lambda of, value: of(value))
    except msgspec.ValidationError as e:
        raise InputError(str(e)) from None
