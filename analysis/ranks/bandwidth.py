"""Algorithm and bus bandwidth, as nccl-tests define them (doc/PERFORMANCE.md), in bytes a second.

S is the bytes of one rank, for all-gather and reduce-scatter those of all ranks together; the time
is that of the transfer, without the wait. Bus bandwidth is S/t times 2(n-1)/n for all-reduce,
(n-1)/n for all-gather, reduce-scatter and all-to-all, and 1 for the others.
"""

from __future__ import annotations

_SCALED = ("all-gather", "reduce-scatter")


def moved(operation: str, bytes_: int | None, ranks: int | None) -> int | None:
    """S of a collective; None where it is not known."""
    if bytes_ is None:
        return None
    if operation in _SCALED:
        return None if ranks is None else bytes_ * ranks
    return bytes_


def factor(operation: str, ranks: int | None) -> float | None:
    """Bus bandwidth over algorithm bandwidth; None where it is not known."""
    if operation in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    if ranks is None or ranks < 1:
        return None
    share = (ranks - 1) / ranks
    if operation == "all-reduce":
        return 2 * share
    return share if operation in (*_SCALED, "all-to-all") else None


def bus(operation: str, bytes_: int | None, ranks: int | None, transfer_ns: float) -> float | None:
    """Bus bandwidth in bytes a second; None where it is not known."""
    whole, by = moved(operation, bytes_, ranks), factor(operation, ranks)
    if whole is None or by is None or transfer_ns <= 0:
        return None
    return whole * by * 1e9 / transfer_ns
