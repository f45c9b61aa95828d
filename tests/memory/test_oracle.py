"""The same pickle through PyTorch's own reader of snapshots (torch.cuda._memory_viz)."""

from __future__ import annotations

import pickle
import random
import re

import pytest
from memory_snapshot import MIB, Allocator

from layerline.analysis.memory import history
from layerline.analysis.readers.memory import snapshot

viz = pytest.importorskip("torch.cuda._memory_viz")


@pytest.fixture(params=[False, True], ids=["segments", "expandable"])
def memory(request) -> Allocator:
    made = Allocator(request.param)
    made.frames = [{"name": "f", "filename": "/a/b.py", "line": 3}]
    chance, live = random.Random(7), []
    for _ in range(400):
        if live and chance.random() < 0.45:
            made.free(live.pop(chance.randrange(len(live))))
        else:
            small = chance.random() < 0.7
            live.append(made.alloc(chance.randrange(1, MIB if small else 12 * MIB)))
    return made


def read(tmp_path, memory: Allocator) -> tuple[dict, history.History]:
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(memory.snapshot(), 4))
    return pickle.loads(path.read_bytes()), history.build(snapshot.read(path), 0)


def test_what_is_alive_at_the_end(tmp_path, memory):
    """`filter_alloc_free_pairs` leaves the allocs that no free comes after."""
    value, ours = read(tmp_path, memory)
    left = viz.filter_alloc_free_pairs(value)["device_traces"][0]
    theirs = sorted((e["addr"], e["size"]) for e in left if e["action"] == "alloc")
    alive = ours.alive(ours.events)
    found = zip(ours.address[alive].tolist(), ours.requested[alive].tolist(), strict=True)
    assert sorted(found) == theirs


def test_totals_at_the_end(tmp_path, memory):
    """`segsum` prints the sums of segments, of what was asked for, and of the rest."""
    value, ours = read(tmp_path, memory)
    text = viz.segsum(value)
    alive = ours.alive(ours.events)
    assert ours.reserved is not None
    totals = {"reserved": int(ours.reserved[-1]), "allocated": int(ours.requested[alive].sum())}
    for name, size in totals.items():
        assert f"total_{name}: {viz.Bytes(size)}" in text
    free = re.search(r"total_free: (\S+) \((\S+)% internal\)", text)
    assert free is not None and free[1] == repr(viz.Bytes(totals["reserved"] - totals["allocated"]))
    rounding = int(ours.live()[-1]) - totals["allocated"]
    share = 100 * rounding / (totals["reserved"] - totals["allocated"])
    assert float(free[2]) == pytest.approx(share, abs=0.05)
