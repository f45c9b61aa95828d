"""A CUDA caching allocator in miniature, and the snapshot that it leaves.

As c10/cuda/CUDACachingAllocator.cpp does it: two pools, blocks in a row in each segment, best fit,
the rest of a block split off (small pool and expandable segments: from 512 bytes on; large pool:
beyond a MiB), free neighbours joined. It keeps `allocated` and its peak as the real one does
(`torch.cuda.max_memory_allocated`), which is what tests compare with. Blocks are kept as rows of
each segment, and are looked for by walking them.

The snapshot is that of torch.cuda.memory._snapshot() (torch/csrc/cuda/Module.cpp): `segments` with
`blocks`, and for each device the events in `device_traces`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
BASE = 0x7F00_0000_0000


@dataclass
class Block:
    address: int
    size: int
    asked: int = 0
    used: bool = False
    frames: list[Any] = field(default_factory=list)


@dataclass
class Segment:
    address: int
    size: int
    small: bool
    blocks: list[Block]
    frames: list[Any] = field(default_factory=list)


class Allocator:
    """One device. `frames`, `mark`: what further events have. `limit`: bytes of the device."""

    def __init__(self, expandable: bool = False, limit: int = 1 << 40) -> None:
        self.expandable, self.limit = expandable, limit
        self.segments: list[Segment] = []
        self.events: list[dict[str, Any]] = []
        self.recording = True
        self.frames: list[dict[str, Any]] = []
        self.mark = ""
        self.now = 1_772_688_692_000_000
        self.allocated = self.peak = 0
        self._next = BASE

    @property
    def reserved(self) -> int:
        return sum(s.size for s in self.segments)

    def alloc(self, asked: int) -> int:
        """The address of a new block; MemoryError where the device is full."""
        size = max(512, -(-asked // 512) * 512)
        small = size <= MIB
        found = self._best(size, small) or self._more(size, small)
        if found is None:
            self._event("oom", None, asked, device_free=self.limit - self.reserved)
            raise MemoryError
        segment, block = found
        rest = block.size - size
        if rest >= 512 if small or self.expandable else rest > MIB:
            at = segment.blocks.index(block)
            segment.blocks.insert(at + 1, Block(block.address + size, rest))
            block.size = size
        block.used, block.asked, block.frames = True, asked, self.frames
        self.allocated += block.size
        self.peak = max(self.peak, self.allocated)
        self._event("alloc", block.address, asked)
        return block.address

    def free(self, address: int) -> None:
        """Give a block back."""
        for segment in self.segments:
            for at, block in enumerate(segment.blocks):
                if block.address == address and block.used:
                    self.allocated -= block.size
                    self._event("free_requested", address, block.asked)
                    self._event("free_completed", address, block.asked)
                    block.used, block.asked, block.frames = False, 0, []
                    self._join(segment, at)
                    return
        raise KeyError(address)

    def empty_cache(self) -> None:
        """Give segments back that are one free block."""
        for segment in list(self.segments):
            if len(segment.blocks) == 1 and not segment.blocks[0].used and not self.expandable:
                self.segments.remove(segment)
                self._event("segment_free", segment.address, segment.size)

    def snapshot(self, device: int = 0) -> dict[str, Any]:
        """As torch dumps it, this device's events in their place."""
        return {
            "segments": [self._segment(s, device) for s in self.segments],
            "device_traces": [*([] for _ in range(device)), self.events],
            "allocator_settings": {
                "PYTORCH_CUDA_ALLOC_CONF": "",
                "max_split_size": -1,
                "expandable_segments": self.expandable,
                "roundup_power2_divisions": {str(1 << n): 0 for n in range(16)},
            },
        }

    def start(self) -> dict[str, Any]:
        """How memory lies now, in the form of what lies beside a snapshot."""
        return {
            "segments": [
                {
                    "address": s.address,
                    "bytes": s.size,
                    "pool": "small" if s.small else "large",
                    "expandable": self.expandable,
                    "blocks": [[b.address, b.size, b.asked, b.used] for b in s.blocks],
                }
                for s in self.segments
            ]
        }

    def _segment(self, segment: Segment, device: int) -> dict[str, Any]:
        used = sum(b.size for b in segment.blocks if b.used)
        return {
            "device": device,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": used,
            "active_size": used,
            "requested_size": sum(b.asked for b in segment.blocks),
            "stream": 0,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": self.expandable,
            "frames": segment.frames,
            "blocks": [
                {
                    "address": b.address,
                    "size": b.size,
                    "requested_size": b.asked,
                    "state": "active_allocated" if b.used else "inactive",
                    "frames": b.frames,
                }
                for b in segment.blocks
            ],
        }

    def _best(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        fits = [
            (b.size, b.address, s, b)
            for s in self.segments
            if s.small == small
            for b in s.blocks
            if not b.used and b.size >= size
        ]
        if not fits:
            return None
        _, _, segment, block = min(fits, key=lambda f: f[:2])
        return segment, block

    def _more(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        if self.expandable:
            return self._map(size, small)
        need = -(-size // (2 * MIB)) * 2 * MIB
        if small or size < 10 * MIB:
            need = 2 * MIB if small else 20 * MIB
        if self.reserved + need > self.limit:
            return None
        block = Block(self._next, need)
        segment = Segment(self._next, need, small, [block], self.frames)
        self._next += need  # the next segment may begin where this one ends
        self.segments.append(segment)
        self._event("segment_alloc", segment.address, need)
        return segment, block

    def _map(self, size: int, small: bool) -> tuple[Segment, Block] | None:
        """Map pages at the end of the pool's one segment until a block fits."""
        own = next((s for s in self.segments if s.small == small), None)
        page = 2 * MIB if small else 20 * MIB
        if own is None:
            own = Segment(self._next, 0, small, [], self.frames)
            self._next += 1 << 40
        last = own.blocks[-1] if own.blocks and not own.blocks[-1].used else None
        missing = size - (last.size if last else 0)
        need = -(-missing // page) * page
        if self.reserved + need > self.limit:
            return None
        if own not in self.segments:
            self.segments.append(own)
        self._event("segment_map", own.address + own.size, need)
        if last is None:
            last = Block(own.address + own.size, 0)
            own.blocks.append(last)
        own.size, last.size = own.size + need, last.size + need
        return own, last

    def _join(self, segment: Segment, at: int) -> None:
        blocks = segment.blocks
        if at + 1 < len(blocks) and not blocks[at + 1].used:
            blocks[at].size += blocks.pop(at + 1).size
        if at and not blocks[at - 1].used:
            blocks[at - 1].size += blocks.pop(at).size

    def _event(self, action: str, address: int | None, size: int, **more: Any) -> None:
        self.now += 3
        if not self.recording:
            return
        self.events.append(
            {
                "action": action,
                **({} if address is None else {"addr": address}),
                **more,
                "size": size,
                "stream": 0,
                "time_us": self.now,
                "compile_context": "N/A",
                "user_metadata": self.mark,
                "frames": self.frames,
            }
        )
