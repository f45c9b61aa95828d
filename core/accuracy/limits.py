"""Whether an engine's outputs are those of the reference: limits by precision, and the verdict.

The profile stage stops by it before anything is measured at length, and a report makes no ratio of
an engine that fails. How the limits were chosen: docs/accuracy.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """The least cosine of the outputs with the reference's, and the least share of positions whose
    largest entry is the same one."""

    cosine: float
    top1: float


LIMITS = {
    "fp32": Limits(0.9999, 0.99),
    "tf32": Limits(0.999, 0.95),
    "fp16": Limits(0.999, 0.9),
    "bf16": Limits(0.99, 0.7),
}
# With fewer positions, one that is nearly a tie would decide: top-1 is then shown and not judged.
FEWEST_POSITIONS = 20


def default(precision: str) -> Limits:
    """The limits of a precision where nothing was asked for; fp32's, of one that has none."""
    return LIMITS.get(precision, LIMITS["fp32"])


@dataclass(frozen=True)
class Asked:
    """Limits that a user set, by precision; "" is every precision."""

    cosine: Mapping[str, float] = field(default_factory=dict)
    top1: Mapping[str, float] = field(default_factory=dict)

    def limits(self, precision: str, recorded: Mapping[str, Any] | None = None) -> Limits:
        """The limits of a precision: what was asked for, else what was `recorded` with the
        figures, else the default."""
        known = {k: v for k, v in (recorded or {}).items() if v is not None}
        else_ = default(precision)._asdict() | known
        given = {"cosine": self.cosine, "top1": self.top1}
        return Limits(**{k: v.get(precision, v.get("", else_[k])) for k, v in given.items()})

    def as_json(self) -> dict[str, Any]:
        """For a manifest; empty where nothing was asked for."""
        return {k: dict(v) for k, v in vars(self).items() if v}


DEFAULTS = Asked()


@dataclass(frozen=True)
class Verdict:
    """`ok` None: it cannot be told. `why`: what is wrong, or why it cannot be told; else empty."""

    ok: bool | None
    why: str = ""

    @property
    def wrong(self) -> bool:
        """Whether the outputs are wrong for sure."""
        return self.ok is False


def judge(figures: Mapping[str, Any], limits: Limits) -> Verdict:
    """The verdict on an accuracy.json: on each output, where it tells them apart.

    One output that is wrong is a failure, whatever the others are; one that cannot be told leaves
    the whole unknown.
    """
    outputs = figures.get("outputs") or {"": figures}
    found = [_one(name if len(outputs) > 1 else "", o, limits) for name, o in outputs.items()]
    order = (False, None, True)
    return min(found, key=lambda v: order.index(v.ok))


def _one(name: str, o: Mapping[str, Any], limits: Limits) -> Verdict:
    of = f" of {name}" if name else ""
    if o.get("reference_nonfinite"):
        n = o["reference_nonfinite"]
        return Verdict(None, f"the reference itself has {n:,} values{of} that are NaN or infinite")
    if fault := next(_faults(o, limits), None):
        return Verdict(False, f"{name}: {fault}" if name else fault)
    if o.get("cosine") is None and o.get("max_abs") != 0:
        return Verdict(None, f"the cosine{of} is unknown")
    return Verdict(True)


def _faults(o: Mapping[str, Any], limits: Limits) -> Iterator[str]:
    cosine, top1, positions = (o.get(k) for k in ("cosine", "top1", "positions"))
    if n := o.get("nonfinite"):
        yield f"{n:,} {'value is' if n == 1 else 'values are'} NaN or infinite"
    if (constant := o.get("constant")) is not None:
        yield f"every value is {constant:.4g}"
    # Tested as "not at least": NaN is below every limit.
    if cosine is not None and not cosine >= limits.cosine:
        yield f"cosine {cosine:.5g}, below {limits.cosine:g}"
    few = positions is not None and positions < FEWEST_POSITIONS
    if top1 is not None and not few and not top1 >= limits.top1:
        yield f"top-1 agreement {top1:.1%}, below {limits.top1:.0%}".replace("%", " %")
