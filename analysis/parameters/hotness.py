"""How hot each parameter is: the share of its elements that an optimizer step changes.

States, of which the first that fits is taken:

* ``frozen``: not trainable
* ``never touched``: trainable, and no step changed any element
* ``sparse``: an embedding of which a step changes or has gradients for fewer than half of the rows
* ``cold``: steps change less than `COLD` of its elements, in the mean
* ``hot``: the others

Without an index a parameter's size is unknown, and with it the share of a step; its state is then
that of the share of steps that changed it at all.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core import documents
from ...core.module_paths import NUMBER
from ...core.stats import sum_all
from .history import History, Reals

COLD = 0.1
STATES = ("hot", "cold", "sparse", "never touched", "frozen")
NORM = "layer norm"

# Kinds of layers by their classes; the first that is found in the name.
_KINDS = (
    (NORM, re.compile(r"(Layer|RMS)_?Norm", re.I)),
    ("other norm", re.compile(r"Norm", re.I)),
    ("embedding", re.compile(r"Embed", re.I)),
    # transformers.pytorch_utils.Conv1D is a matrix product, torch.nn.Conv1d a convolution.
    ("linear", re.compile(r"Linear|Dense|Conv1D")),
    ("convolution", re.compile(r"Conv\d?d", re.I)),
)


@dataclass(frozen=True)
class Hotness:
    """A parameter over the steps of a run. `share`: of its elements that a step changes, in the
    mean over steps; `steps_changed`: share of the steps that changed any element; `update`: the
    median of the change's norm as a share of the parameter's; `gradient`: the median norm;
    `rows_changed` and `rows_with_gradient`: medians. None where unknown."""

    about: documents.Parameter
    kind: str
    state: str
    why: str
    share: float | None
    steps_changed: float
    changed: int
    update: float | None
    gradient: float | None
    rows_changed: float | None
    rows_with_gradient: float | None

    @property
    def cold(self) -> bool:
        """Whether it hardly changes though it is trained."""
        return self.state in ("cold", "never touched")

    @property
    def rows_touched(self) -> float | None:
        """Rows of an embedding that have a gradient and change: the fewer of both. An optimizer
        with momentum changes rows that this step did not use."""
        return min((r for r in (self.rows_changed, self.rows_with_gradient) if r is not None),
                   default=None)  # fmt: skip

    @property
    def heat(self) -> float:
        """What parameters are ranked by: the share of a step, or of steps."""
        return self.steps_changed if self.share is None else self.share


@dataclass(frozen=True)
class Group:
    """Parameters of one kind, or of one block. `share`: of all their elements."""

    name: str
    members: tuple[Hotness, ...]
    share: float | None

    def count(self, state: str) -> int:
        """How many are in a state."""
        return sum(m.state == state for m in self.members)

    @property
    def cold(self) -> int:
        """How many are cold or never touched."""
        return sum(m.cold for m in self.members)

    @property
    def update(self) -> float | None:
        """The median of how far a step moves one, as a share of its norm."""
        known = [m.update for m in self.members if m.update is not None]
        return float(np.median(known)) if known else None

    @property
    def elements(self) -> int | None:
        """How many elements they have."""
        return sum_all(m.about.elements for m in self.members)


def of(history: History, limit: float = COLD) -> list[Hotness]:
    """Each parameter, by its index. Steps that the optimizer did not take are left out."""
    figures = {name: values[history.stepped] for name, values in history.figures.items()}
    return [_one(p, {n: v[:, p.index] for n, v in figures.items()}, limit)
            for p in history.parameters]  # fmt: skip


def _one(about: documents.Parameter, figures: dict[str, Reals], limit: float) -> Hotness:
    changed = figures["changed"]
    steps = len(changed)
    share = None
    if about.elements and steps:
        share = float(changed.mean() / about.elements)
    steps_changed = float((changed > 0).mean()) if steps else 0.0
    rows_changed, rows_with_gradient = (
        _median(figures[name]) for name in ("rows_changed", "rows_with_gradient")
    )
    with np.errstate(all="ignore"):
        update = _median(figures["update_norm"] / figures["parameter_norm"])
    gradient = _median(figures["gradient_norm"])
    known = Hotness(
        about, kind(about), "hot", "", share, steps_changed, int(changed.sum()), update, gradient,
        rows_changed, rows_with_gradient,
    )  # fmt: skip
    state, why = _state(known, limit)
    return replace(known, state=state, why=why)


def _state(of: Hotness, limit: float) -> tuple[str, str]:
    if of.about.trainable is False:
        return "frozen", "requires no gradient"
    if not of.changed:
        if of.about.trainable is None:
            return "never touched", "no step names it"
        if of.gradient is None:
            return "never touched", "it never has a gradient"
        if of.gradient == 0:
            return "never touched", "its gradient is 0"
        return "never touched", "every update rounds away"
    if of.rows_touched is not None and of.rows_touched < (of.about.rows or 0) / 2:
        return "sparse", f"{of.rows_touched:g} of {of.about.rows} rows are touched in a step"
    return ("cold", "") if of.heat < limit else ("hot", "")


def _median(values: Reals) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else None


def kind(about: documents.Parameter) -> str:
    """The kind of layer and the parameter's own name: ``layer norm weight``."""
    layer = layer_kind(about.module_class)
    return f"{layer} {about.parameter}" if layer else "unknown"


def layer_kind(module_class: str | None) -> str | None:
    """The kind of layer of a class; its name where that is all that is known."""
    if module_class is None:
        return None
    return next((name for name, form in _KINDS if form.search(module_class)), module_class)


def block(about: documents.Parameter) -> int | None:
    """Which of the model's blocks it is in: the first number of its path."""
    found = NUMBER.search(about.module)
    return None if found is None else int(found[0])


def grouped(parameters: Iterable[Hotness], by: Callable[[Hotness], Hashable]) -> list[Group]:
    """Groups by what `by` gives, in the order of their first members."""
    members: dict[Hashable, list[Hotness]] = {}
    for one in parameters:
        members.setdefault(by(one), []).append(one)
    return [Group(str(name), tuple(m), _share(m)) for name, m in members.items()]


def by_kind(parameters: Sequence[Hotness]) -> list[Group]:
    """Groups by kind of layer, the coldest first."""
    groups = grouped(parameters, lambda p: p.kind)
    return sorted(groups, key=lambda g: (np.mean([m.heat for m in g.members]), g.name))


def by_block(parameters: Sequence[Hotness]) -> list[Group]:
    """Groups by block, in the order of the model; what is in none stands under its module."""
    return grouped(
        parameters,
        lambda p: p.about.module if block(p.about) is None else f"block {block(p.about)}",
    )


def _share(members: Sequence[Hotness]) -> float | None:
    sizes = [m.about.elements for m in members]
    shares = [m.share for m in members]
    total = sum(n for n in sizes if n)
    if not total or any(s is None and n != 0 for s, n in zip(shares, sizes, strict=True)):
        return None
    return sum((s or 0) * (n or 0) for s, n in zip(shares, sizes, strict=True)) / total
