"""What differs between the two sides of the comparison, and which numbers each difference bends.

What is absent is "unknown" and never taken to be equal. Facts are collected elsewhere
(`analysis.captures.settings`); here they are only compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..formatting import percent
from ..model.comparison import Difference
from ..model.side import SideFacts

UNKNOWN = "unknown"
# Frequencies are read at one moment; smaller differences are the governor's ordinary moves.
CLOCK_TOLERANCE = 0.05
# One-minute load average per usable CPU before a capture; above it something else was running.
BUSY_LOAD = 0.5


@dataclass(frozen=True)
class Fact:
    """A fact that both sides should share, and what it means when they do not."""

    what: str
    effect: str
    equal: Callable[[Any, Any], bool] = lambda a, b: bool(a == b)


def _close(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return bool(a == b)
    return bool(abs(a - b) <= CLOCK_TOLERANCE * max(abs(a), abs(b)))


FACTS: dict[str, Fact] = {
    "precision": Fact(
        "precision asked for",
        "The ratio compares two precisions as well as two implementations.",
    ),
    "compute": Fact(
        "precision computed in",
        "Times are of different arithmetic, and so are the results.",
    ),
    "tf32": Fact(
        "TF32",
        "Matrix products with TF32 take a fraction of the time of fp32 and have 10 bits of "
        "mantissa: part of the difference is precision.",
    ),
    "device": Fact("device", "Times of different devices: no ratio says anything of the software."),
    "gpu": Fact("GPU", "Times of different GPUs: no ratio says anything of the software."),
    "cpu": Fact("CPU", "Times of different CPUs: no ratio says anything of the software."),
    "cpus": Fact("usable CPUs", "One side had more cores to use."),
    "threads": Fact("threads", "The side with more threads has more cores at work."),
    "train_mode": Fact(
        "train mode",
        "Training keeps what backward needs and runs layers (dropout, batch norm) that "
        "inference leaves out.",
    ),
    "dropout": Fact(
        "dropout", "Dropout draws random numbers and multiplies; the other side does neither."
    ),
    "gradients": Fact(
        "autograd", "Recording the graph for backward costs time that inference does not have."
    ),
    "attention": Fact(
        "attention implementation",
        "Another algorithm for attention: compare attn as a whole, not operation by operation.",
    ),
    "autocast": Fact(
        "autocast", "Casts between precisions are operations of one side only, and cost time."
    ),
    "weights": Fact(
        "precision of the weights", "Weights of another size: memory traffic differs accordingly."
    ),
    "batch": Fact("batch", "Another amount of work: times must not be compared."),
    "sequence": Fact("sequence", "Another amount of work: times must not be compared."),
    "inputs": Fact("inputs", "Other inputs: another amount of work, or other values."),
    "model": Fact("model", "Not the same export of the model: layers may not correspond."),
    "machine": Fact("machine", "Measured on different machines."),
    "driver": Fact("driver", "Another driver brings other kernels and launch costs."),
    "governor": Fact("CPU frequency governor", "The CPU may have run at another frequency."),
    "mhz": Fact("CPU frequency (MHz)", "The CPU ran at another frequency.", _close),
    "clocks": Fact("GPU clocks", "The GPU may have run at another frequency.", _close),
    "layerline": Fact("layerline version", "Measured by another version of the tool."),
}


def differences(sides: Sequence[SideFacts]) -> list[Difference]:
    """Differences in the order of `FACTS`.

    `sides` are the keys of the columns that a difference bends. Facts that neither side
    recorded come last, in one entry. An engine is held against the eager sides of its own
    precision, as its ratio is; against those of fp32 where it has none, else against all.
    """
    engines = [s for s in sides if s.side == "engine"]
    eagers = [s for s in sides if s.side == "eager"]
    differing: list[Difference] = []
    nowhere: list[str] = []
    for name, fact in FACTS.items():
        keys: dict[tuple[str, str, str], dict[str, None]] = {}
        if engines and eagers and all(s.facts.get(name) is None for s in (*engines, *eagers)):
            nowhere.append(fact.what)
            continue
        for engine in engines:
            for eager in _compared(engine, eagers):
                a, b = engine.facts.get(name), eager.facts.get(name)
                if a is not None and b is not None and fact.equal(a, b):
                    continue
                known = a is not None and b is not None
                effect = "" if known else "Not recorded on one side, so it may differ. "
                entry = (text(a), text(b), effect + fact.effect)
                keys.setdefault(entry, {}).update({engine.key: None, eager.key: None})
        differing += [
            Difference(fact.what, a, b, effect, list(sides))
            for (a, b, effect), sides in keys.items()
        ]
    differing += [*_asked_and_run(engines), *_random_weights(sides)]
    differing += [*_busy(sides), *_throttled(sides)]
    if nowhere:
        effect = "Neither side recorded these, so they may differ."
        every = [(s, UNKNOWN) for s in sides]
        differing += _bent("not recorded: " + ", ".join(nowhere), effect, every, other=UNKNOWN)
    return differing


def _compared(engine: SideFacts, eagers: Sequence[SideFacts]) -> Sequence[SideFacts]:
    """The eager sides that the engine's time is compared with."""
    for precision in (engine.facts.get("precision"), "fp32"):
        same = [s for s in eagers if s.facts.get("precision") == precision]
        if precision is not None and same:
            return same
    return eagers


def text(value: Any) -> str:
    """A fact for people."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):
        return ", ".join(f"{k} {text(v)}" for k, v in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(text(v) for v in value) or "none"
    return str(value)


def _asked_and_run(engines: Sequence[SideFacts]) -> Iterator[Difference]:
    """Engines that computed in another precision than was asked for."""
    for side in engines:
        asked, run = side.facts.get("precision"), side.facts.get("compute")
        # TF32 is a way to compute fp32: layers say fp32.
        if run is None or asked is None or run in (asked, {"tf32": "fp32"}.get(asked)):
            continue
        text_ = f"asked for {text(asked)}, computed in {text(run)}"
        effect = "The time is not that of the precision asked for."
        yield from _bent("precision asked for and run", effect, [(side, text_)])


def _random_weights(sides: Sequence[SideFacts]) -> list[Difference]:
    effect = "Seeded random weights: times are real, agreement of the outputs proves little."
    random = [(s, "random") for s in sides if s.facts.get("random_weights")]
    return _bent("weights", effect, random, other=UNKNOWN)


def load(sides: Sequence[SideFacts]) -> dict[str, float]:
    """The machine's load over its CPUs when a side was measured, by side; where it is known."""
    known = ((s.key, s.facts.get("load"), s.facts.get("cpus")) for s in sides)
    return {key: of / cpus for key, of, cpus in known if of is not None and cpus}


def _busy(sides: Sequence[SideFacts]) -> list[Difference]:
    """Sides that were measured while the machine had other work."""
    busy = []
    for side in sides:
        load, cpus = side.facts.get("load"), side.facts.get("cpus")
        if load is not None and cpus and load > BUSY_LOAD * cpus:
            busy.append((side, f"load {load:.1f} on {cpus} CPUs"))
    effect = (
        "Something ran shortly before or beside the measurement (the stage before it counts too): "
        "times may be too long and intervals too wide."
    )
    return _bent("busy machine", effect, busy)


def _throttled(sides: Sequence[SideFacts]) -> list[Difference]:
    """Sides whose GPU ran slower than asked for while it was measured."""
    slowed = [
        (s, ", ".join(f"{why} {percent(share)}" for why, share in s.facts["throttled"].items()))
        for s in sides
        if s.facts.get("throttled")
    ]
    return _bent("GPU slowed down", "By share of samples; times are too long.", slowed)


def _bent(
    what: str, effect: str, bent: Sequence[tuple[SideFacts, str]], other: str = "–"
) -> list[Difference]:
    """The difference of the sides that something bends, each with its value; none without any.
    The first side of a task speaks for it; `other` where a task has none."""
    values = {s.side: value for s, value in reversed(bent)}
    engine, eager = values.get("engine", other), values.get("eager", other)
    return [Difference(what, engine, eager, effect, [s.key for s, _ in bent])] if bent else []
