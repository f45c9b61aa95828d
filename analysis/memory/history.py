"""The life of every allocation of one device, from an allocator's events.

An allocation is born with an ``alloc`` event and counts as allocated until its ``free_requested``
event, as in `torch.cuda.memory_allocated` (CUDACachingAllocator.cpp: `free` lowers the counter
before the block can be used again, which is ``free_completed``). Those that are older than the
first event are known from their free, or from the blocks that are left at the end.

Events tell the bytes that were asked for. What a block takes is that rounded up, and in blocks of
over a MiB more still: `layout` works it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.documents import Memory
from ...core.tables import Ints, codes
from ..readers.base import Artefact
from . import layout

IN_USE = "active_allocated"
_RESERVE = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
CPU = -1  # the device number of the CPU


@dataclass(frozen=True)
class History:
    """`events`: how many. Arrays for each event: `time_ns` (-1: unknown), `mark` (-1: none).
    `reserved`: bytes before the first event and after each; None where there is no cache. Arrays
    for each allocation: `born` and `freed` are numbers of events (-1: before the first one;
    `events`: never), `stack` is a number of `stacks` (-1: unknown). `estimated`: how many blocks
    are of a size that is not known but guessed. `actions`: the code of each event in `names`.
    """

    device: int
    events: int
    time_ns: Ints
    mark: Ints
    action: Ints
    names: list[str]
    event_stack: Ints
    event_address: Ints
    event_size: Ints
    reserved: Ints | None
    address: Ints
    requested: Ints
    size: Ints
    born: Ints
    freed: Ints
    stack: Ints
    stacks: list[str]
    estimated: int

    def live(
        self, amount: Ints | None = None, born: Ints | None = None, freed: Ints | None = None
    ) -> Ints:
        """The sum of `amount` (the blocks' sizes) of what is allocated, before the first event and
        after each. `born`, `freed`: other times of birth and end."""
        amount = self.size if amount is None else amount
        born = self.born if born is None else born
        n, gone = self.events + 2, np.maximum(self.freed if freed is None else freed, born)
        # Sums of float64 are exact up to 2**53 bytes.
        change = np.bincount(born + 1, amount, n) - np.bincount(gone + 1, amount, n)
        live: Ints = np.cumsum(change[: self.events + 1].astype(np.int64))
        return live

    def alive(self, state: int) -> Ints:
        """The allocations that live in a state: 0 before the first event, n after event n - 1."""
        found: Ints = np.flatnonzero((self.born < state) & (self.freed >= state))
        return found

    def of_action(self, name: str) -> Any:
        """Which events are of an action."""
        return self.action == (self.names.index(name) if name in self.names else -2)


def devices(artefact: Artefact) -> list[int]:
    """The devices that have events or memory, the one with most of it first."""
    held: dict[int, int] = {}
    for name in ("segments", "events"):
        if name in artefact.tables:
            sizes = artefact.tables[name].select(["device", "size"]).group_by("device")
            for row in sizes.aggregate([("size", "sum")]).to_pylist():
                if row["device"] is not None:
                    held[row["device"]] = held.get(row["device"], 0) + (row["size_sum"] or 0)
    return sorted(held, key=lambda d: (-held[d], d))


def build(artefact: Artefact, device: int, meta: Memory | None = None) -> History:
    """The history of one device. `meta` tells of the marks, and how memory lay at the start."""
    events = _of(artefact, "events", device)
    blocks = _of(artefact, "blocks", device)
    action, names = codes(events["action"]) if len(events) else (np.zeros(0, np.int64), [])
    names = [str(n) for n in names]
    stack, stacks = codes(events["frames"]) if len(events) else (np.zeros(0, np.int64), [])
    address, size = _ints(events, "address"), _ints(events, "size", 0)
    stacks = [str(s) for s in stacks]
    lives = _lives(action, names, address, size, stack)
    lives = _with_blocks(lives, blocks, len(events), stacks)
    settings = artefact.facts.get("settings") or {}
    on_cpu = settings.get("device") == "cpu"
    if meta is not None and not settings:  # an early recording on a CPU does not say so itself
        on_cpu = meta.device == "cpu"
    if on_cpu and meta is not None:
        lives = _with_tensors(lives, meta, len(events))
    taken, estimated = lives["requested"], 0
    if not on_cpu:
        work = layout.Work(names, action, address, size, lives, blocks, settings)
        taken, estimated = layout.sizes(work, None if meta is None else meta.start)
    return History(
        device=CPU if on_cpu else device,
        events=len(events),
        time_ns=_ints(events, "time_ns"),
        mark=_marks(events, meta),
        action=action.astype(np.int64),
        names=names,
        event_stack=stack.astype(np.int64),
        event_address=address,
        event_size=size,
        reserved=None if on_cpu else _reserved(artefact, device, action, names, size),
        address=lives["address"],
        requested=lives["requested"],
        size=taken,
        born=lives["born"],
        freed=lives["freed"],
        stack=lives["stack"],
        stacks=stacks,
        estimated=estimated,
    )


def _of(artefact: Artefact, name: str, device: int) -> pa.Table:
    data = artefact.tables.get(name)
    if data is None:
        from ..readers.memory.snapshot import EVENTS

        return EVENTS.empty_table()
    if pc.all(pc.equal(data["device"], device)).as_py() and not data["device"].null_count:
        return data  # without a copy
    return data.filter(pc.equal(data["device"], device))


def _ints(data: pa.Table, column: str, unknown: int = -1) -> Ints:
    return np.asarray(pc.fill_null(data[column], unknown).to_numpy(), np.int64)


Lives = dict[str, Ints]


def _lives(action: Any, names: list[str], address: Ints, size: Ints, stack: Any) -> Lives:
    """Each alloc with the next free of its address, and each free that no alloc comes before."""
    code = {n: names.index(n) if n in names else -2 for n in ("alloc", "free_requested")}
    allocs = np.flatnonzero(action == code["alloc"])
    frees = np.flatnonzero(action == code["free_requested"])
    both = np.concatenate([allocs, frees])
    order = np.lexsort((both, address[both]))
    sorted_ = both[order]
    is_alloc = order < len(allocs)
    n = len(action)
    following = np.full(len(sorted_), n, np.int64)
    matched = np.zeros(len(sorted_), bool)
    if len(sorted_) > 1:
        same = address[sorted_[1:]] == address[sorted_[:-1]]
        pair = same & is_alloc[:-1] & ~is_alloc[1:]
        following[:-1][pair] = sorted_[1:][pair]
        matched[1:] = pair
    born = sorted_[is_alloc]
    old = sorted_[~is_alloc & ~matched]
    at = np.concatenate([born, old])
    none = np.full(len(old), -1, np.int64)
    return {
        "address": address[at],
        "requested": size[at],
        "born": np.concatenate([born, none]),
        "freed": np.concatenate([following[is_alloc], old]),
        "stack": np.concatenate([stack[born].astype(np.int64), none]),
    }


def _with_blocks(lives: Lives, blocks: pa.Table, events: int, stacks: list[str]) -> Lives:
    """Also those that are older than the first event and outlive the last."""
    used = blocks.filter(pc.equal(blocks["state"], IN_USE))
    known = set(lives["address"][lives["freed"] == events].tolist())
    rows = [r for r in used.to_pylist() if r["address"] is not None and r["address"] not in known]
    number = {text: i for i, text in enumerate(stacks)}
    for row in rows:
        if row["frames"] is not None and row["frames"] not in number:
            number[row["frames"]] = len(stacks)
            stacks.append(row["frames"])
    asked = [r["requested_size"] if r["requested_size"] is not None else r["size"] for r in rows]
    more = {
        "address": [r["address"] for r in rows],
        "requested": [a or 0 for a in asked],
        "born": [-1] * len(rows),
        "freed": [events] * len(rows),
        "stack": [number.get(r["frames"], -1) for r in rows],
    }
    return _joined(lives, more)


def _with_tensors(lives: Lives, meta: Memory, events: int) -> Lives:
    """Also the tensors that were there when recording began: on the CPU no block tells of them."""
    seen: dict[int, int] = {}
    for tensor in meta.tensors:
        if tensor.mark == 0 and tensor.kind != "output" and tensor.kind != "input":
            seen.setdefault(tensor.address, tensor.bytes)
    known = set(lives["address"][lives["born"] == -1].tolist())
    rows = [(a, b) for a, b in seen.items() if a not in known]
    return _joined(
        lives,
        {
            "address": [a for a, _ in rows],
            "requested": [b for _, b in rows],
            "born": [-1] * len(rows),
            "freed": [events] * len(rows),
            "stack": [-1] * len(rows),
        },
    )


def _joined(lives: Lives, more: dict[str, list[int]]) -> Lives:
    return {k: np.concatenate([v, np.array(more[k], np.int64)]) for k, v in lives.items()}


def _reserved(artefact: Artefact, device: int, action: Any, names: list[str], size: Ints) -> Ints:
    """Counted back from what is reserved at the end."""
    sign = np.array([_RESERVE.get(n, 0) for n in names] or [0], np.int64)
    change = np.where(action >= 0, sign[np.maximum(action, 0)], 0) * size
    segments = _of(artefact, "segments", device)
    end = pc.sum(segments["size"]).as_py() or 0
    after = np.cumsum(change)
    start = end - (int(after[-1]) if len(after) else 0)
    return np.concatenate([[start], start + after]).astype(np.int64)


def _marks(events: pa.Table, meta: Memory | None) -> Ints:
    """The mark of each event: as the allocator noted it, else by time. They ascend.

    The allocator's note is one of each thread (`user_metadata` of CUDACachingAllocator.cpp is
    thread_local): a thread that has set no mark yet, or not the last one, notes an older one, or
    none. So what is noted counts where it is the highest until then. Elsewhere the mark is that by
    time, within what is noted before and after."""
    none = np.full(len(events), -1, np.int64)
    if meta is None or not len(events) or not meta.marks.time_ns:
        return none
    time = _ints(events, "time_ns")
    since = np.array(meta.marks.time_ns, np.int64) // 1000 * 1000  # events are cut to microseconds
    by_time = np.searchsorted(np.maximum.accumulate(since), time, side="right") - 1
    code, texts = codes(events["metadata"])
    most = len(meta.marks.time_ns)
    numbers = [int(t) if t.isdecimal() and len(t) < 18 and int(t) < most else -1 for t in texts]
    if not any(n >= 0 for n in numbers):
        found: Ints = np.maximum.accumulate(by_time)
        return found
    noted = np.array([*numbers, -1], np.int64)[code]
    least = np.maximum.accumulate(noted)
    newest = (noted == least) & (noted >= 0)
    following = np.where(newest, noted, most - 1)[::-1]
    greatest = np.minimum.accumulate(following)[::-1]  # of what is noted from here on
    found = np.where(newest, noted, np.clip(by_time, least, greatest))
    return np.maximum.accumulate(found)
