"""Counting changed parameters against copies: planted single bits, then steps of a real training.

    python -P tests/gpu/counted_bits.py [MODEL] [BATCH] [SEQ] [PRECISION] [STEPS] [--fused]

On a GPU the kernels count, as in `layerline train --profile parameters`; without one, operators of
torch. Prints "holds" or "FAILS", a line each; exit status 1 where one fails.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from layerline.core.tables import read_parquet
from layerline.profile.eager.parameters.counters import Counter, Cuda, Torch, defaults
from layerline.profile.eager.parameters.index import parameters
from layerline.profile.eager.parameters.launch import Kernels
from layerline.profile.eager.parameters.plugin import ParameterChanges
from layerline.workloads.loop import train
from layerline.workloads.request import Request

INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
SIZES = (1, 3, 16_383, 16_384, 16_385, 250_001, 3 << 20)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Its memory as integers, in one dimension."""
    return tensor.detach().view(INTEGERS[tensor.element_size()]).view(-1)


def planted(dtype: torch.dtype, device: torch.device) -> tuple[bool, str]:
    """Tensors that begin anywhere, of which single bits are turned over between two looks."""
    chance, model = random.Random(1), torch.nn.Module()
    for number, size in enumerate(SIZES):
        tensor = torch.randn(size + number % 3, device=device).to(dtype)[number % 3 :]
        model.register_parameter(f"p{number}", torch.nn.Parameter(tensor))
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    members = parameters(model, torch.optim.SGD(model.parameters()))
    counter: Counter = Torch()
    if device.type == "cuda":
        counter = Cuda(members, [members], device, 2, Kernels())
    wanted, found = [], []
    for slot in range(2):
        figures = defaults(members, device)
        counter.begin(slot)
        counter.before(members, figures)
        for member in members:
            flat, width = bits(member.tensor), 8 * member.tensor.element_size()
            places = chance.sample(range(len(flat)), min(len(flat), 1000))
            turned = [1 << chance.randrange(width) for _ in places]
            signed = [t - (1 << width) if t >> (width - 1) else t for t in turned]
            flat[torch.tensor(places, device=device)] ^= torch.tensor(
                signed, dtype=flat.dtype, device=device
            )
            wanted.append(len(places))
        counter.after(members, figures)
        counter.end(figures)
        found += [int(count) for count in figures[:, 0].tolist()]
    return wanted == found, f"{dtype}: {sum(found):,} of {sum(wanted):,} planted bits are found"


def of_training(asked: dict[str, Any], steps: int) -> Iterator[tuple[bool, str]]:
    """Counts of each step and parameter against those of a copy of the whole model."""
    folder = Path(tempfile.mkdtemp(prefix="layerline-bits-"))
    training = Request("gpt2", str(folder), **asked).build()
    weights, kept, copied = list(training.model.parameters()), [], []

    def before(*_: Any) -> None:
        kept[:] = [bits(p).clone() for p in weights]

    def after(*_: Any) -> None:
        pairs = zip(kept, weights, strict=True)
        copied.extend(int((old != bits(p)).sum()) for old, p in pairs)

    training.optimizer.register_step_pre_hook(before)
    training.optimizer.register_step_post_hook(after)
    # Fewer steps in a block than there are: figures are fetched in between, too.
    list(train(training, steps, [ParameterChanges(folder, block=2)]))
    table = read_parquet(folder / f"train.{training.precision}.parameters.parquet", "parameters")
    counted = table["changed"].to_pylist()
    yield len(copied) == steps * len(weights), f"{len(copied):,} counts by copies"
    wrong = sum(a != b for a, b in zip(counted, copied, strict=True))
    total = sum(copied)
    yield not wrong, f"{wrong} of them differ; {total:,} elements changed in {steps} steps"


def main(model: str, batch: int, seq: int, precision: str, steps: int, fused: bool) -> int:
    """Both; the exit status."""
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    said = [planted(dtype, device) for dtype in DTYPES]
    asked = {"model": model, "batch": batch, "seq": seq, "precision": precision, "fused": fused}
    said += of_training(asked, steps)
    sys.stdout.writelines(f"{'holds' if ok else 'FAILS'}: {text}\n" for ok, text in said)
    return int(not all(ok for ok, _ in said))


if __name__ == "__main__":
    given = [a for a in sys.argv[1:] if a != "--fused"]
    defaults_ = ["tiny", "2", "32", "fp32", "5"]
    name, b, s, p, n = [*given, *defaults_[len(given) :]]
    sys.exit(main(name, int(b), int(s), p, int(n), "--fused" in sys.argv))
