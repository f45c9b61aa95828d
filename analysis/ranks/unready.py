"""What of a rank's waiting is in vain: its own host had nothing more for the device meanwhile.

Without its waits a device is earlier by their sum, but begins nothing before its host asked for it.
So at each communication it is earlier by no more than the communication was queued; what is lost
there was waited in vain, of the latest waits first. A host that waited for its device is earlier by
as much as that is, and by no more than it waited.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...core.intervals import Ints
from .accounting import Ledger
from .waits import Waits

_MET, _SYNC, _END, _STEP, _CALL, _BEGIN = range(6)


@dataclass(frozen=True)
class Unready:
    """Per row of a rank, ns: `in_vain`, of its exposed wait; `late`, how much longer the host took
    to ask for it than the device would have needed it without earlier waits."""

    in_vain: Ints
    late: Ints


def unready(ledger: Ledger, waits: Waits) -> Unready:
    """Of the rows of a rank, each step by itself, and nothing beside the steps; nothing where the
    rank computes on its host."""
    n = len(ledger.rows)
    in_vain, late = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    host = ledger.host
    if host is None:
        return Unready(in_vain, late)
    moments = [(int(t), _STEP, 0) for t in ledger.step_start]
    moments += [(int(t), _END, k) for k, t in enumerate(ledger.step_end)]
    begun = waits.start[ledger.rows]
    met = np.minimum(waits.latest[ledger.rows], waits.end[ledger.rows])  # all of its ranks had
    for kind, times in ((_CALL, host.issued), (_BEGIN, begun), (_MET, met)):
        moments += [(int(t), kind, k) for k, t in enumerate(times)]
    moments += [(int(t), _SYNC, k) for k, t in enumerate(host.sync_end)]
    moments.sort()
    earlier = host_earlier = 0
    inside = False
    of_call = np.zeros(n, dtype=np.int64)
    gains: list[tuple[int, int]] = []  # row, what its wait is worth

    def lose(ns: int) -> None:
        nonlocal earlier
        earlier -= ns
        while ns > 0:
            row, worth = gains.pop()
            lost = min(worth, ns)
            in_vain[row] += lost
            ns -= lost
            if worth > lost:
                gains.append((row, worth - lost))

    for time, kind, k in moments:
        if kind == _STEP:
            earlier = host_earlier = 0
            gains.clear()
            inside = True
        elif kind == _CALL:
            of_call[k] = host_earlier
        elif kind == _SYNC:
            length = int(host.sync_end[k] - host.sync_start[k])
            host_earlier = min(earlier, host_earlier + length)
        elif kind == _BEGIN:
            queued = time - int(host.issued[k]) + int(of_call[k])
            late[k] = max(earlier - queued, 0)
            lose(int(late[k]))
        elif kind == _MET:
            if inside and (worth := int(ledger.exposed_wait[k])) > 0:
                earlier += worth
                gains.append((k, worth))
        else:
            spare = max(time - int(host.step_end[k]), 0) + host_earlier
            lose(max(earlier - spare, 0))
            earlier = host_earlier = 0
            gains.clear()
            inside = False
    return Unready(in_vain, late)
