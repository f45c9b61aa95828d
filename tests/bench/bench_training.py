"""The training loop without plug-ins beside a plain loop written by hand: time of a step.

Both sides in one process, in turns, so that the machine's load is the same for both. Of the median
of the ratios of neighbours the 95 % interval (of order statistics) says whether it is within
`MOST`: "holds", "FAILS" (exit status 1) where all of it is beyond, else it cannot be told::

    python tests/bench/bench_training.py [MODEL] [BATCH] [SEQ] [PRECISION] [STEPS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count

import torch

from layerline.core.stats import interval_rank
from layerline.workloads.loop import step
from layerline.workloads.request import Request
from layerline.workloads.training import LOW, Training

MOST = 1.01


def by_hand(training: Training) -> None:
    """One step as a tutorial would write it."""
    batch = next(training.batches)
    low = LOW.get(training.precision)
    with torch.autocast(training.device.type, dtype=low, enabled=low is not None):
        logits = training.model(input_ids=batch["input_ids"]).logits
    loss = torch.nn.functional.cross_entropy(
        logits.float().reshape(-1, logits.shape[-1]),
        batch["labels"].reshape(-1),
        ignore_index=-100,
    )
    loss.backward()
    training.optimizer.step()
    training.optimizer.zero_grad(set_to_none=True)


def timed(work: Callable[[], object], training: Training) -> float:
    """Seconds of one call, from an idle device to an idle device."""
    training.synchronize()
    began = time.perf_counter()
    work()
    training.synchronize()
    return time.perf_counter() - began


def main(model: str, batch: int, seq: int, precision: str, steps: int) -> int:
    """Print the median of each side and the median of the ratios of neighbours."""
    cache = tempfile.mkdtemp(prefix="layerline-bench-")
    asked = {"model": model, "batch": batch, "seq": seq, "precision": precision}
    request = Request("gpt2", cache, threads=1, **asked)
    training, numbers = request.build(), count()
    sides = (lambda: step(training, next(numbers)), lambda: by_hand(training))
    for _ in range(10):
        for side in sides:
            timed(side, training)
    pairs = [tuple(timed(side, training) for side in sides) for _ in range(steps)]
    pairs += [tuple(timed(s, training) for s in sides[::-1])[::-1] for _ in range(steps)]
    ours, plain = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratios = sorted(a / b for a, b in pairs)
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    ratio = f"{statistics.median(ratios):.4f} (n {len(ratios)}, middle half {low:.4f}-{high:.4f}"
    rank = interval_rank(len(ratios)) or 1
    least, most = ratios[rank - 1], ratios[-rank]
    told = "holds" if most <= MOST else "FAILS" if least > MOST else "? cannot be told"
    ratio += f", 95 % {least:.4f}-{most:.4f}): at most {MOST - 1:.0%} {told}"
    print(f"{model} {batch}x{seq} {precision} on {training.device}", end=": ")
    print(f"loop {ours * 1e3:.3f} ms, by hand {plain * 1e3:.3f} ms, ratio {ratio}")
    return int(least > MOST)


if __name__ == "__main__":
    given = sys.argv[1:]
    defaults = ["tiny", "4", "64", "fp32", "200"]
    name, b, s, p, n = [*given, *defaults[len(given) :]]
    sys.exit(main(name, int(b), int(s), p, int(n)))
