"""A step that counts which parameters it changes beside one that does not: time and memory.

Both sides in one process, in turns of `STEPS` steps (without, with, with, without), so that the
machine's load is the same for both::

    python tests/bench/bench_parameters.py [MODEL] [BATCH] [SEQ] [PRECISION] [TURNS] [--fused]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from itertools import count
from pathlib import Path

import torch

from layerline.profile.eager.parameters.plugin import ParameterChanges
from layerline.workloads.loop import step
from layerline.workloads.plugin import Plugin, opened
from layerline.workloads.request import Request

STEPS = 10


def main(model: str, batch: int, seq: int, precision: str, turns: int, fused: bool) -> None:
    """Print the median step of each side, the ratios of neighbours, and peak memory on a GPU."""
    folder = Path(tempfile.mkdtemp(prefix="layerline-bench-"))
    asked = {"model": model, "batch": batch, "seq": seq, "precision": precision, "fused": fused}
    training = Request("gpt2", str(folder), threads=1, **asked).build()
    numbers, changes = count(), ParameterChanges(folder)
    cuda = training.device.type == "cuda"

    def timed(plugins: tuple[Plugin, ...]) -> tuple[float, int]:
        """Seconds of a step, and the most bytes that were allocated in it."""
        step(training, next(numbers), plugins)
        training.synchronize()
        if cuda:
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        for _ in range(STEPS):
            step(training, next(numbers), plugins)
        training.synchronize()
        seconds = (time.perf_counter() - began) / STEPS
        return seconds, torch.cuda.max_memory_allocated() if cuda else 0

    timed(())
    _, peak_before = timed(())
    with opened([changes], training):
        timed((changes,))
        pairs = []
        for turn in range(turns):
            sides = [(), (changes,)] if turn % 2 == 0 else [(changes,), ()]
            times = {plugins: timed(plugins) for plugins in sides}
            pairs.append((times[()][0], times[(changes,)][0]))
        _, peak = timed((changes,))
    ratios = sorted(b / a for a, b in pairs)
    low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
    without, watched = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    print(f"{model} {batch}x{seq} {precision}{' fused' * fused} on {training.device}", end=": ")
    print(f"without {without:.3f} ms, with {watched:.3f} ms", end=", ")
    print(f"ratio {statistics.median(ratios):.4f} ({low:.4f}-{high:.4f})", end="")
    print(f", {(peak - peak_before) / 1e6:+.1f} MB at the peak" if cuda else "")


if __name__ == "__main__":
    given = [a for a in sys.argv[1:] if a != "--fused"]
    defaults = ["tiny", "4", "64", "fp32", "24"]
    name, b, s, p, n = [*given, *defaults[len(given) :]]
    main(name, int(b), int(s), p, int(n), "--fused" in sys.argv)
