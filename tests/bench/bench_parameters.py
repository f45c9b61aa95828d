"""A step that counts which parameters it changes beside one that does not: time and memory.

Both sides in one process, in turns of `STEPS` steps (without, with, with, without), so that the
machine's load is the same for both; turns are short, because load comes and goes. The answer is of
the median of the ratios of neighbours with its 95 % interval (of order statistics): "holds" where
all of it is within `MOST`, "FAILS" (exit status 1) where all of it is beyond, else it cannot be
told. On a GPU the kernels that count are summed up besides, in steps of their own under
torch.profiler: that is what they cost wherever the device is the one that is waited for::

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

from layerline.core.stats import interval_rank
from layerline.profile.eager.parameters.plugin import ParameterChanges
from layerline.workloads.loop import step
from layerline.workloads.plugin import Plugin, opened
from layerline.workloads.request import Request

STEPS = 4
MOST = 1.05
COUNTING = ("keep", "compare", "finish")


def main(model: str, batch: int, seq: int, precision: str, turns: int, fused: bool) -> int:
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

    def counting() -> float:
        """Seconds that a step's counting kernels take."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for _ in range(STEPS):
                step(training, next(numbers), (changes,))
            training.synchronize()
        times = (e.self_device_time_total for e in profiler.key_averages() if e.key in COUNTING)
        return sum(times) / STEPS / 1e6

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
        kernels = counting() if cuda else None
    without, watched = (statistics.median(side) * 1e3 for side in zip(*pairs, strict=True))
    said, failed = _answer(sorted(b / a for a, b in pairs))
    print(f"{model} {batch}x{seq} {precision}{' fused' * fused} on {training.device}", end=": ")
    print(f"without {without:.3f} ms, with {watched:.3f} ms, {said}", end="")
    if kernels is not None:
        held = sum(p.numel() * p.element_size() for p in training.model.parameters())
        print(f"; kernels {kernels * 1e3:.3f} ms, {kernels * 1e3 / without:.2%} of a step", end="")
        # A parameter and its gradient read and the copy written; the copy and the parameter read.
        rate = f"{5 * held / kernels / 1e12:.2f} TB/s" if kernels else "not seen"
        print(f" ({rate}); {(peak - peak_before) / 1e6:+.1f} MB at the peak", end="")
    print()
    return int(failed)


def _answer(ratios: list[float]) -> tuple[str, bool]:
    """What the ratios of neighbours, in their order, say of `MOST`; and whether they are beyond."""
    rank, quarter = interval_rank(len(ratios)), len(ratios) // 4
    text = f"ratio {statistics.median(ratios):.4f} (n {len(ratios)}, middle half "
    text += f"{ratios[quarter]:.4f}-{ratios[-1 - quarter]:.4f}, 95 % "
    if rank is None:
        return f"{text}unknown): too few turns", False
    low, high = ratios[rank - 1], ratios[-rank]
    answer = "holds" if high <= MOST else "FAILS" if low > MOST else "? cannot be told"
    return f"{text}{low:.4f}-{high:.4f}): at most {MOST - 1:.0%} {answer}", low > MOST


if __name__ == "__main__":
    given = [a for a in sys.argv[1:] if a != "--fused"]
    defaults = ["tiny", "4", "64", "fp32", "60"]
    name, b, s, p, n = [*given, *defaults[len(given) :]]
    sys.exit(main(name, int(b), int(s), p, int(n), "--fused" in sys.argv))
