"""What would lower the peak, and by how much: each a what-if over the same lives, and its source.

The lives of allocations are changed as the remedy would change them, and the highest state is
looked for again: it may be another moment. Such an estimate knows nothing of how the allocator
rounds, of work space, and of the order in which a changed step frees. So each can be tried once
(``layerline memory --try NAME``), and the figures of the try stand beside it.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...core.documents import Memory
from ...core.module_paths import inside, kind_of
from ...core.stats import Estimate
from ...core.tables import Ints
from .categories import Told
from .peak import Peak

MIB = 1 << 20
# bitsandbytes: states below 4096 elements stay as they are, a scale of 4 bytes for 256 elements.
_LEAST_8BIT, _BLOCK_8BIT = 4096, 256
# kSmallBuffer and kLargeBuffer: the pages of expandable segments.
_SMALL_PAGE, _LARGE_PAGE = 2 * MIB, 20 * MIB


@dataclass(frozen=True)
class Tried:
    """The same figures where it was done once: of the step without it and with it. A step's time
    in nanoseconds; without an interval where its samples are too few or have not settled."""

    peak_bytes: int
    reserved_bytes: int | None
    step: Estimate
    base_peak_bytes: int
    base_reserved_bytes: int | None
    base_step: Estimate


@dataclass(frozen=True)
class Remedy:
    """`name`: of ``--try``. `of`: what the figures are of, "allocated" or "reserved" bytes at the
    peak; `before`, `after`. `already`: it is so in this run, and `after` is what it would be
    without. `cost`: what it costs, in words. `why_not`: why it cannot be tried here."""

    name: str
    what: str
    of: str
    before: int
    after: int
    source: str
    cost: str = ""
    already: bool = False
    why_not: str | None = None
    tried: Tried | None = None

    @property
    def saves(self) -> int:
        """How many bytes less; what it saves now where it is so already."""
        return self.after - self.before if self.already else self.before - self.after


def remedies(told: Told, peak: Peak, meta: Memory | None) -> list[Remedy]:
    """All that would change the peak, the one that saves most first; nothing where no phases are
    known."""
    if meta is None or peak.step.number is None:
        return []
    found = [
        *_checkpointing(told, peak, meta),
        *([] if meta.batch == 1 else [_batch(told, peak)]),
        *_optimizer(told, peak, meta),
        _set_to_none(told, peak),
        *_expandable(told, peak),
    ]
    return sorted(found, key=lambda r: (r.of != "allocated", r.already, -r.saves))


def _highest(
    told: Told,
    peak: Peak,
    amount: Ints | None = None,
    born: Ints | None = None,
    freed: Ints | None = None,
) -> int:
    live = told.history.live(amount, born, freed)
    return int(live[peak.step.begin : peak.step.end + 1].max())


# --- checkpointing ------------------------------------------------------------------------------


def blocks(told: Told) -> list[list[str]]:
    """Modules that come in a row, of one class and with the same path but for one number: the
    outermost such rows."""
    rows: dict[tuple[str, str | None], list[str]] = defaultdict(list)
    for path, kind in zip(told.modules, told.classes, strict=True):
        if re.search(r"(?:^|\.)\d+$", path):
            rows[kind_of(path), kind].append(path)
    several = [paths for paths in rows.values() if len(paths) > 1]
    outer = [p for p in several if not any(inside(p[0], o[0]) for o in several if o is not p)]
    return outer or several[:1]


def _checkpointing(told: Told, peak: Peak, meta: Memory) -> Iterator[Remedy]:
    if meta.recomputed_blocks:
        return
    for row in blocks(told):
        pattern = kind_of(row[0])
        for name, chosen in (("checkpoint", row), ("checkpoint-half", row[::2])):
            after = _checkpointed(told, peak, chosen)
            each = "every block" if name == "checkpoint" else "every second block"
            yield Remedy(
                name,
                f"checkpointing {each} of {pattern} ({len(chosen)} of {len(row)})",
                "allocated",
                peak.allocated,
                after,
                "the activations inside a block live from its backward on, its output stays",
                "the forward of these blocks runs twice",
            )


def _checkpointed(told: Told, peak: Peak, paths: list[str]) -> int:
    """The peak where what is kept inside these modules is made again when their backward begins."""
    history, born = told.history, told.history.born.copy()
    outputs: dict[str, set[int]] = defaultdict(set)
    for allocation, path in told.outputs:
        outputs[path].add(allocation)
    kept = told.is_("activations") & told.born_in("forward")
    backward = told.in_phase("backward")
    for path in paths:
        modules = [i for i, p in enumerate(told.modules) if inside(p, path)]
        within = kept & np.isin(told.module, modules)
        within[list(outputs[path])] = False
        begins = np.flatnonzero(backward & np.isin(told.event_module, modules))
        for i in np.flatnonzero(within).tolist():
            later = begins[np.searchsorted(begins, history.born[i]) :]
            if len(later) and later[0] < history.freed[i]:
                born[i] = later[0]
    return _highest(told, peak, born=born)


# --- the rest -----------------------------------------------------------------------------------


def _batch(told: Told, peak: Peak) -> Remedy:
    """Half of the batch: what is of a weight's size is a copy of it, and stays."""
    history = told.history
    scales = told.is_("data", "activations", "temporaries") & ~told.born_in("optimizer")
    for i in np.flatnonzero(scales & (history.requested > 4096)).tolist():
        module = int(told.module[i])
        weights = told.weights.get(told.modules[module], set()) if module >= 0 else set()
        scales[i] = not {int(history.requested[i]), 2 * int(history.requested[i])} & weights
    amount = np.where(scales, history.size // 2, history.size)
    return Remedy(
        "batch",
        "half of the batch",
        "allocated",
        peak.allocated,
        _highest(told, peak, amount),
        "activations, temporaries and data halve; weights, their copies and their state do not",
        "twice as many steps, or accumulated ones, for the same tokens",
    )


def _optimizer(told: Told, peak: Peak, meta: Memory) -> Iterator[Remedy]:
    history, state = told.history, told.is_("optimizer state")
    elements = history.requested // 4
    packed = elements + -(-elements // _BLOCK_8BIT) * 4
    made = told.is_("temporaries") & told.born_in("optimizer")
    alone = np.where(made, 0, history.size)
    yield Remedy(
        "8bit",
        f"{meta.optimizer.class_ or 'optimizer'} state in 8 bits",
        "allocated",
        peak.allocated,
        _highest(told, peak, np.where(state & (elements >= _LEAST_8BIT), packed, alone)),
        "one byte an element and four for 256 elements (bitsandbytes' block-wise states); what the "
        "step allocates for itself goes",
        "another optimizer: check that the loss goes down as before",
        why_not="needs bitsandbytes",
    )
    if not meta.optimizer.fused:
        yield Remedy(
            "fused",
            "the fused optimizer",
            "allocated",
            peak.allocated,
            _highest(told, peak, alone),
            "what the optimizer's step allocates for itself goes",
            "none; it is faster on a GPU",
        )


def _set_to_none(told: Told, peak: Peak) -> Remedy:
    """The gradients of this step as if they had never been set to None."""
    history = told.history
    gradients = np.flatnonzero(told.is_("gradients"))
    step = peak.step
    own = gradients[(history.born[gradients] >= step.begin) & (history.born[gradients] < step.end)]
    already = bool(len(own)) and bool((history.freed[own] < step.end).all())
    born, freed = history.born.copy(), history.freed.copy()
    born[own], freed[own] = step.begin - 1, history.events
    return Remedy(
        "set_to_none",
        "zero_grad(set_to_none=True)",
        "allocated",
        peak.allocated,
        _highest(told, peak, born=born, freed=freed) if already else peak.allocated,
        "gradients would live through the forward",
        already=already,
        why_not="it is so already" if already else None,
    )


def _expandable(told: Told, peak: Peak) -> Iterator[Remedy]:
    history = told.history
    if history.reserved is None or peak.reserved is None:
        return
    live = history.live(np.where(history.size <= MIB, history.size, 0))
    small = int(live[peak.state])
    pages = -(-small // _SMALL_PAGE) * _SMALL_PAGE
    pages += -(-(peak.allocated - small) // _LARGE_PAGE) * _LARGE_PAGE
    most = int(history.reserved[peak.step.begin : peak.step.end + 1].max())
    expandable = "segment_map" in history.names
    if not expandable:
        yield Remedy(
            "expandable",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
            "reserved",
            most,
            min(most, pages),
            "what is allocated at the peak, in pages of 2 and 20 MiB",
            "none that is known",
        )


def with_tries(found: list[Remedy], tried: dict[str, Tried]) -> list[Remedy]:
    """The same with the figures of those that were tried; of the others those that would save
    something."""
    every = [dataclasses.replace(r, tried=tried.get(r.name)) for r in found]
    return [r for r in every if r.saves > 0 or r.tried is not None]


def document(remedy: Remedy) -> dict[str, Any]:
    """As JSON."""
    return {**dataclasses.asdict(remedy), "saves": remedy.saves}
