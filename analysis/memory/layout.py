"""How many bytes the blocks of the CUDA caching allocator take.

Source: c10/cuda/CUDACachingAllocator.cpp of torch 2.11 (`round_size`, `should_split`,
`alloc_found_block`, `free_block`). What is asked for is rounded up to 512 bytes, or to a fraction
of a power of two where `roundup_power2_divisions` says so. Up to a MiB (the small pool), and in
expandable segments, a block takes just that: the rest of the free block is split off. In the large
pool the rest is split off where it is over a MiB, and else is part of the block. So there the free
blocks must be known: events are played through, from how memory lay at the start.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.documents import MemoryStart
from ...core.tables import Ints

LEAST = 512
MIB = 1 << 20
# A block is at most kLargeBuffer larger than what is rounded up; and twice that where settings that
# are not known round further up.
_MOST_UNSPLIT = 20 * MIB
_CHANGE_FREE = ("segment_alloc", "segment_free", "free_completed")
_DIVISIONS = [1 << n for n in range(16)]  # MiB, of the keys of roundup_power2_divisions


@dataclass(frozen=True)
class Work:
    """Events (codes of `names`, addresses, bytes), lives as in `history`, the blocks at the end."""

    names: list[str]
    action: Any
    address: Ints
    size: Ints
    lives: dict[str, Ints]
    blocks: pa.Table
    settings: dict[str, Any]


def rounded(requested: Ints, settings: dict[str, Any]) -> Ints:
    """What `round_size` makes of bytes that are asked for."""
    plain: Ints = np.maximum(LEAST, -(-requested // LEAST) * LEAST)
    divisions = settings.get("roundup_power2_divisions")
    if not isinstance(divisions, dict) or not any(divisions.values()):
        return plain
    for size in np.unique(requested).tolist():
        parts = _parts(size, divisions)
        if parts > 1 and size > LEAST * parts:
            power = 1 << (size.bit_length() - 1)
            step = power // parts
            plain[requested == size] = -(-size // step) * step if size != power else size
    return plain


def _parts(size: int, divisions: dict[str, Any]) -> int:
    """In how many parts a power of two is divided, for a size (`roundup_power2_divisions`, by
    MiB)."""
    mib = min(max(size // MIB, 1), _DIVISIONS[-1])
    value = divisions.get(str(1 << (mib.bit_length() - 1)))
    return value if isinstance(value, int) else 0


def sizes(work: Work, start: MemoryStart | None) -> tuple[Ints, int]:
    """The bytes of each allocation's block, and of how many that is a guess."""
    lives, n = work.lives, len(work.action)
    taken = rounded(lives["requested"], work.settings)
    at_end = {
        b["address"]: b["size"]
        for b in work.blocks.select(["address", "size", "state"]).to_pylist()
        if b["state"] != "inactive" and b["size"] is not None
    }
    segments = [] if start is None else start.segments
    before = {b[0]: b[1] for s in segments for b in s.blocks if b[3]}
    known = np.zeros(len(taken), bool)
    for told, own in ((at_end, lives["freed"] == n), (before, lives["born"] < 0)):
        for i in np.flatnonzero(own & ~known).tolist():
            size = told.get(int(lives["address"][i]))
            if size is not None and taken[i] <= size <= 2 * taken[i] + _MOST_UNSPLIT:
                taken[i], known[i] = size, True
    if work.settings.get("expandable_segments") is True:
        return taken, 0
    large = taken > MIB
    if not np.any(large & ~known):
        return taken, 0
    pool = _Pool(work.settings)
    for segment in segments:
        if not segment.expandable:
            pool.segment(segment.address)
            for address, size, _, used in segment.blocks:
                (pool.use if used else pool.add)(address, size)
    unsure = _play(pool, work, taken, known | ~large)
    return taken, unsure


def _play(pool: _Pool, work: Work, taken: Ints, known: Any) -> int:
    """Play the events through; sets the sizes of large blocks, and counts those it must guess."""
    lives = work.lives
    large = np.flatnonzero((lives["born"] >= 0) & (taken > MIB))
    of_birth = dict(zip(lives["born"][large].tolist(), large.tolist(), strict=True))
    codes = {name: code for code, name in enumerate(work.names)}
    begins, ends = codes.get("segment_alloc"), codes.get("segment_free")
    # Those whose block must be found, and all that changes where free blocks lie.
    wanted = np.isin(work.action, [codes[n] for n in _CHANGE_FREE if n in codes])
    wanted[lives["born"][large]] = True
    events = np.flatnonzero(wanted)
    columns = (c.tolist() for c in (events, work.action[events], work.address[events]))
    guessed = 0
    for event, action, address in zip(*columns, strict=True):
        born = of_birth.get(event)
        if born is not None:
            found = pool.take(address, int(taken[born]))
            if found is None:  # not in what is known to be free
                guessed += not known[born]
            elif not known[born]:
                taken[born] = found
        elif action == begins:
            pool.segment(address)
            pool.add(address, int(work.size[event]))
        elif action == ends:
            pool.drop(address, int(work.size[event]))
        else:
            pool.free(address)
    return guessed + int(np.count_nonzero((lives["born"] < 0) & ~known))


@dataclass
class _Pool:
    """What is known to be free, as ranges in order that touch nowhere but where segments begin
    (free blocks of two segments are never one), and blocks in use. Where a block in use has been
    guessed, a later event may contradict it: the later one counts."""

    settings: dict[str, Any]
    begins: list[int] = field(default_factory=list)  # of the free ranges, ascending
    ends: dict[int, int] = field(default_factory=dict)  # of each, by where it begins
    used: dict[int, int] = field(default_factory=dict)
    starts: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        most = self.settings.get("max_split_size")
        self.most = most if isinstance(most, int) and most > 0 else 1 << 62

    def segment(self, address: int) -> None:
        self.starts.add(address)

    def drop(self, address: int, size: int) -> None:
        """A segment goes, and what is free in it."""
        self._cut(address, address + size)
        self.starts.discard(address)

    def add(self, address: int, size: int) -> None:
        """A free range, one with its free neighbours."""
        begin, end = address, address + size
        at = self._cut(begin, end)
        if end in self.ends and end not in self.starts:
            end = self.ends.pop(self.begins.pop(at))
        before = self.begins[at - 1] if at else begin
        if begin not in self.starts and self.ends.get(before) == begin:
            self.ends[before] = end
        elif begin < end:
            self.begins.insert(at, begin)
            self.ends[begin] = end

    def take(self, address: int, size: int) -> int | None:
        """Use the free block at an address; its size. None where no such block is known."""
        end = self.ends.get(address)
        if end is None or end - address < size:
            self.use(address, size)
            return None
        split = size < self.most and end - address - size > MIB
        whole = size if split else end - address
        self.use(address, whole)
        return whole

    def use(self, address: int, size: int) -> None:
        """A block in use, whatever was known of its bytes."""
        self._cut(address, address + size)
        self.used[address] = size

    def free(self, address: int) -> None:
        size = self.used.pop(address, None)
        if size is not None:
            self.add(address, size)

    def _cut(self, begin: int, end: int) -> int:
        """Take a range out of what is free; the place that a range from `begin` on would have."""
        at = bisect.bisect_left(self.begins, begin)
        rest = 0
        if at and self.ends[self.begins[at - 1]] > begin:
            rest = self.ends[self.begins[at - 1]]
            self.ends[self.begins[at - 1]] = begin
        while at < len(self.begins) and self.begins[at] < end:
            rest = self.ends.pop(self.begins.pop(at))
        if rest > end:
            self.begins.insert(at, end)
            self.ends[end] = rest
        return at
