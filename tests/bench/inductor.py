"""Our package of AOTInductor beside a plain one and torch.compile: is it slower?

    python tests/bench/inductor.py --run RUN [--precision fp32] [--rounds 30] [--threads N]

RUN has an export and an engine of inductor. The plain package is compiled here, of the same model,
without a setting of ours; so is the model by torch.compile. Each is called in turn, `--calls` times
a round, and a round's median is one sample; shown are medians over rounds and the median of the
ratios within rounds, with its 95 % interval. On a GPU each call waits for the device.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from layerline.core.run import open_run
from layerline.core.stats import summarise
from layerline.engines import inductor_build
from layerline.engines.inductor_backend import InductorBackend
from layerline.export import nested
from layerline.export.models import load_spec
from layerline.export.quiet import quiet


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--threads", type=int)
    asked = parser.parse_args()
    if asked.threads:
        torch.set_num_threads(asked.threads)
    with torch.no_grad():
        _measure(asked)


def _measure(asked: Any) -> None:
    run, precision = open_run(asked.run), asked.precision
    spec = load_spec(run.file("export", "model.json"))
    device = inductor_build.device_of(precision)
    model = spec.build(precision).requires_grad_(False).to(device)
    given, _ = inductor_build.inputs_of(spec, precision, device)
    arrays = list(nested.named(given).values())
    flat = inductor_build.Flat(model, given, lambda names: None)
    with tempfile.TemporaryDirectory() as folder, quiet():
        program = torch.export.export(flat, tuple(arrays), strict=False)
        path = torch._inductor.aoti_compile_and_package(program, package_path=f"{folder}/plain.pt2")
        plain = torch._inductor.aoti_load_package(path)
        ours = torch._inductor.aoti_load_package(str(InductorBackend().engine(run, precision)))
        compiled = torch.compile(flat)
        sides = {"plain AOTInductor": plain, "ours": ours, "torch.compile": compiled}
        for side in sides.values():
            for _ in range(10):
                _timed(side, arrays, device)
        rounds = [
            {name: _round(side, arrays, device, asked.calls) for name, side in _turn(sides, i)}
            for i in range(asked.rounds)
        ]
    for name in sides:
        print(f"{name:18} {statistics.median(r[name] for r in rounds) / 1e3:10.1f} us")
    for other in ("plain AOTInductor", "torch.compile"):
        ratios = summarise([round(1e6 * r["ours"] / r[other]) for r in rounds])
        assert ratios is not None
        low, high = (None if v is None else v / 1e6 for v in (ratios.low, ratios.high))
        print(f"ours / {other}: {ratios.median / 1e6:.4f} (95 %: {low} to {high})")


def _turn(sides: dict[str, Any], number: int) -> list[tuple[str, Any]]:
    """The sides, another one first in each round."""
    listed = list(sides.items())
    first = number % len(listed)
    return listed[first:] + listed[:first]


def _round(side: Callable[..., Any], arrays: list[Any], device: torch.device, calls: int) -> int:
    return round(statistics.median(_timed(side, arrays, device) for _ in range(calls)))


def _timed(side: Callable[..., Any], arrays: list[Any], device: torch.device) -> int:
    began = time.perf_counter_ns()
    side(*arrays)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter_ns() - began


if __name__ == "__main__":
    main()
