"""How many bytes the blocks of the CUDA caching allocator take.

Source: c10/cuda/CUDACachingAllocator.cpp of torch 2.11 (`round_size`, `should_split`,
`alloc_found_block`, `free_block`). What is asked for is rounded up to 512 bytes, or to a fraction
of a power of two where `roundup_power2_divisions` says so. Up to a MiB (the small pool), and in
expandable segments, a block takes just that: the rest of the free block is split off. In the large
pool the rest is split off where it is over a MiB, and else is part of the block. So there the free
blocks must be known: events are played through, from how memory lay at the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ...core.documents import MemoryStart
from ...core.tables import Ints

LEAST = 512
MIB = 1 << 20
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
    known = np.zeros(len(taken), bool)
    for i in np.flatnonzero(lives["freed"] == n).tolist():
        size = at_end.get(int(lives["address"][i]))
        if size is not None:
            taken[i], known[i] = size, True
    segments = [] if start is None else start.segments
    before = {b[0]: b[1] for s in segments for b in s.blocks if b[3]}
    for i in np.flatnonzero((lives["born"] < 0) & ~known).tolist():
        size = before.get(int(lives["address"][i]))
        if size is not None:
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
                (pool.used.__setitem__ if used else pool.add)(address, size)
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
                pool.used[address] = int(taken[born])
            elif not known[born]:
                taken[born] = found
        elif action == begins:
            pool.segment(address)
            pool.add(address, int(work.size[event]))
        elif action == ends:
            pool.drop(address)
        else:
            pool.free(address)
    return guessed + int(np.count_nonzero((lives["born"] < 0) & ~known))


@dataclass
class _Pool:
    """Free ranges by their first and last byte, blocks in use, and where segments begin: free
    blocks of two segments are never one."""

    settings: dict[str, Any]
    free_at: dict[int, int] = field(default_factory=dict)
    free_end: dict[int, int] = field(default_factory=dict)
    used: dict[int, int] = field(default_factory=dict)
    starts: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        most = self.settings.get("max_split_size")
        self.most = most if isinstance(most, int) and most > 0 else 1 << 62

    def segment(self, address: int) -> None:
        self.starts.add(address)

    def drop(self, address: int) -> None:
        """A segment goes, and with it the one free block that it is then."""
        size = self.free_at.pop(address, None)
        if size is not None:
            self.free_end.pop(address + size, None)
        self.starts.discard(address)

    def add(self, address: int, size: int) -> None:
        """A free range, one with its free neighbours."""
        end = address + size
        if address not in self.starts and (before := self.free_end.pop(address, None)) is not None:
            del self.free_at[before]
            address = before
        if end not in self.starts and (after := self.free_at.pop(end, None)) is not None:
            del self.free_end[end + after]
            end += after
        self.free_at[address], self.free_end[end] = end - address, address

    def take(self, address: int, size: int) -> int | None:
        """Use the free block at an address; its size. None where no free block begins there."""
        whole = self.free_at.get(address)
        if whole is None or whole < size:
            return None
        del self.free_at[address], self.free_end[address + whole]
        if size < self.most and whole - size > MIB:
            rest = address + size
            self.free_at[rest], self.free_end[address + whole] = whole - size, rest
            whole = size
        self.used[address] = whole
        return whole

    def free(self, address: int) -> None:
        size = self.used.pop(address, None)
        if size is not None:
            self.add(address, size)
