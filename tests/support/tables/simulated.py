"""Pairs of measurements with planted noise, for the statistics of a gate."""

from __future__ import annotations

import numpy as np

from layerline.analysis.model.baseline import Baseline, Quantity, SideSamples

SIDE = "engine/fp32.onnxruntime/inference"
NOISES = ("normal", "drift", "two levels", "outliers", "sessions")
MODULES = {f"h.{i}.{part}": share for i in range(6)
           for part, share in (("attn", 0.08), ("mlp", 0.07))}  # fmt: skip
TOTAL_NS = 2_000_000


def factors(rng: np.random.Generator, noise: str, n: int, spread: float) -> np.ndarray:
    """By which the processes of one side are slower than usual."""
    base = 1 + spread * rng.standard_normal(n)
    if noise == "drift":  # on to the end, upwards or downwards, in this session
        base += rng.choice([-1, 1]) * np.linspace(0, 3 * spread, n)
    if noise == "two levels":  # memory lies well, or it does not
        base += 4 * spread * (rng.random(n) < 0.5)
    if noise == "outliers":  # a neighbour came
        base += 20 * spread * (rng.random(n) < 0.1)
    if noise == "sessions":  # a heavier tail than the normal distribution's
        base += spread * (rng.standard_t(3, n) - rng.standard_normal(n))
    return np.maximum(base, 0.2)


def baseline(
    rng: np.random.Generator,
    noise: str = "normal",
    n: int = 5,
    spread: float = 0.005,
    slower: float = 1.0,
    module: str = "",
    in_turn: np.ndarray | None = None,
) -> Baseline:
    """One side. `slower`: the latency by this factor, all of it in `module` where one is named."""
    common = factors(rng, noise, n, spread) if in_turn is None else in_turn
    quantities = []
    more = TOTAL_NS * (slower - 1)
    latency = (TOTAL_NS + more) * common
    quantities.append(Quantity(what="latency", runs=[_whole(latency)]))
    for name, share in MODULES.items():
        time = TOTAL_NS * share + (more if name == module else 0)
        own = common * (1 + 2 * spread * rng.standard_normal(n))
        quantities.append(Quantity(what="module", name=name, runs=[_whole(time * own)]))
    turn = None if in_turn is None else "one"
    side = SideSamples(quantities=quantities)
    return Baseline(baseline_version=1, sides={SIDE: side}, in_turn=turn)


def on_busy_host(
    rng: np.random.Generator, n: int, host: float = 1.0, device: float = 1.0, most: float = 0.75
) -> Baseline:
    """One side of an engine on a GPU, in a session of a host that has two levels, 5 % apart: of the
    processes a share that the session draws, from nothing to `most`, lies at the higher one. The
    device is quiet. `host`: all of the latency by this factor; `device`: both times."""
    queued = TOTAL_NS * device * (1 + 0.005 * rng.standard_normal(n))
    added = 0.007 * np.abs(rng.standard_normal(n)) + 0.05 * (rng.random(n) < most * rng.random())
    latency = 1.02 * TOTAL_NS * device * host * (1 + added)
    quantities = [
        Quantity(what=what, runs=[_whole(values)], within=TOTAL_NS // 500)
        for what, values in (("latency", latency), ("queued", queued))
    ]
    return Baseline(baseline_version=1, sides={SIDE: SideSamples(quantities=quantities)})


def _whole(values: np.ndarray) -> list[int]:
    return [round(float(v)) for v in values]
