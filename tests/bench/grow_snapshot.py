"""Grow a CUDA allocator snapshot: training steps as torch would have recorded them.

    python tests/bench/grow_snapshot.py OUT.pickle [--mib 1024]

Each step allocates activations, frees them in backward, and makes temporaries; every event has a
stack of 20 to 40 frames, written as torch does (frames shared by reference, one list a stack and
event). The pickle is Python's own, of protocol 4, as `torch.cuda.memory._dump_snapshot` leaves it.
"""

from __future__ import annotations

import argparse
import pickle
import random
from pathlib import Path
from typing import Any

MIB = 1 << 20
SITES, LAYERS = 40, 48


def steps(mib: int, seed: int = 0) -> dict[str, Any]:
    """The snapshot, of about `mib` MiB once it is written."""
    chance = random.Random(seed)
    frames = [
        {"filename": f"/site-packages/model/part_{n % 60}.py", "line": n, "name": f"forward_{n}"}
        for n in range(4000)
    ]
    stacks = [
        [frames[chance.randrange(4000)] for _ in range(chance.randrange(20, 40))]
        for _ in range(SITES * LAYERS)
    ]
    trace: list[dict[str, Any]] = []
    address, now = 0x7F0000000000, 1_772_688_692_031_319
    segment = 64 << 30
    action = {n: n for n in ("alloc", "free_requested", "free_completed", "segment_alloc")}

    def event(name: str, at: int, size: int, stack: list[Any]) -> None:
        nonlocal now
        now += chance.randrange(1, 9)
        trace.append(
            {
                "action": action[name],
                "addr": at,
                "size": size,
                "stream": 0,
                "time_us": now,
                "compile_context": "N/" + "A",
                "user_metadata": "",
                "frames": stack,
            }
        )

    event("segment_alloc", address, segment, stacks[0])
    # 160 bytes an event, as measured; three events an allocation, whose frees share a stack.
    while len(trace) * 160 < mib * MIB:
        held = []
        for layer in range(LAYERS):
            for site in range(SITES):
                size = 512 * chance.randrange(1, 4000)
                at = address + (layer * SITES + site) * (2 << 20)
                event("alloc", at, size, list(stacks[layer * SITES + site]))
                held.append((at, size))
        for at, size in reversed(held):
            stack = list(stacks[chance.randrange(len(stacks))])
            event("free_requested", at, size, stack)
            event("free_completed", at, size, stack)
    block = {"address": address, "size": segment, "requested_size": 0, "state": "inactive"}
    return {
        "segments": [
            {
                "device": 0, "address": address, "total_size": segment, "allocated_size": 0,
                "active_size": 0, "requested_size": 0, "stream": 0, "segment_type": "large",
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": stacks[0],
                "blocks": [{**block, "frames": []}],
            }
        ],
        "device_traces": [trace],
        "allocator_settings": {"max_split_size": -1, "expandable_segments": False},
    }  # fmt: skip


def main() -> None:
    """Write it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("--mib", type=int, default=1024)
    options = parser.parse_args()
    snapshot = steps(options.mib)
    with options.target.open("wb") as out:
        pickle.dump(snapshot, out, protocol=4)
    events = sum(map(len, snapshot["device_traces"]))
    print(f"{options.target}: {options.target.stat().st_size >> 20} MiB, {events:,} events")


if __name__ == "__main__":
    main()
