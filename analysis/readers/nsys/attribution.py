"""Each GPU operation with the call that launched it and the ranges around that call.

An operation and its call have the same process (globalPid >> 24 = globalTid >> 24) and the same
correlation id, which is unique within a process only. Where several calls have it, one with a
launch's name counts before others, and then the one that started last (the inner one, of a
runtime call and the driver call inside it). The ranges are those of the call's thread that hold
the call's start (`range_forest`); a start/end range that ends on another thread holds on both.

A node of a CUDA graph is launched by the graph's launch, but belongs to a layer by where it was
captured: `origin` gives the ranges around the creation of its node, where the capture has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from . import schema
from .capture import KINDS, Calls, Capture, GraphNodes, Operations, Ranges
from .range_forest import Forest, Nesting, join, paths, plant
from .source import NULL, Codes, Integers

GRAPHS_FIX = "start nsys before the graphs are made"
Indices = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Launched:
    """What is known of the operations of one kind, one entry per row of `operations`.

    `piece`: innermost piece of the forest around the launch, -1 for none. `call`: the number of
    the launch, -1 where it is not in the capture. `call_start`: ns, `NULL` without one. `origin`:
    for nodes of CUDA graphs the innermost piece around the node's creation, -1 for none; None
    without such nodes.
    """

    operations: Operations
    piece: Indices
    call: Indices
    call_start: Integers
    origin: Indices | None


@dataclass(frozen=True)
class Attribution:
    """The forest of all threads, the path of each of its pieces, and every operation's place."""

    capture: Capture
    forest: Forest
    launched: list[Launched]
    notes: list[str]
    untold: int = 0  # operations of CUDA graphs that were made before the capture began

    @cached_property
    def named_paths(self) -> tuple[Indices, Nesting]:
        """Number of the path of names of each piece, and the paths by number."""
        return paths(self.forest, self.capture.ranges.name[self.forest.owner])


class _Trees:
    """The forests by thread, and where each one's pieces lie in the joined forest."""

    def __init__(self, ranges: Ranges) -> None:
        self._at: dict[int, tuple[Forest, int]] = {}
        forests: list[Forest] = []
        offset = 0
        for thread, which in _by_thread(ranges):
            end = ranges.end[which]
            end = np.where(end == NULL, np.iinfo(np.int64).max, end)
            forest = plant(ranges.start[which], end, ranges.loose[which])
            if len(which) != len(ranges) or len(forests):
                forest = replace(forest, owner=which[forest.owner].astype(np.int32))
            self._at[thread] = (forest, offset)
            forests.append(forest)
            offset += len(forest.start)
        self.joined = join(forests)

    def innermost(self, moments: Integers, threads: Codes, values: list[int]) -> Indices:
        """Pieces of the joined forest that hold moments of threads, given as codes."""
        innermost = np.full(len(moments), -1, np.int32)
        for code, thread in enumerate(values):
            forest, offset = self._at.get(thread, (None, 0))
            if forest is None:
                continue
            here = threads == code
            pieces = forest.innermost(moments if here.all() else moments[here])
            innermost[here] = np.where(pieces >= 0, pieces + np.int32(offset), -1)
        return innermost


def attribute(capture: Capture) -> Attribution:
    """Match every operation with its launch and its ranges."""
    trees = _Trees(capture.ranges)
    notes: list[str] = []
    calls = capture.calls
    matches = [_match(operations, calls) for operations in capture.operations]
    if any((m < 0).any() for m in matches) and capture.more_calls is not None:
        # Launched by a call of an unforeseen name, or by none in the capture: look among all.
        others, first = capture.more_calls(), len(calls)
        calls = _append(calls, others)
        for operations, match in zip(capture.operations, matches, strict=True):
            missing = match < 0
            if missing.any():
                again = _match(operations, others)
                match[missing] = np.where(again >= 0, again + np.int32(first), -1)[missing]
    launched, untold = [], 0
    node_pieces = _node_pieces(capture.nodes, trees)
    for operations, match in zip(capture.operations, matches, strict=True):
        has = match >= 0
        missing_count = int((~has).sum())
        if missing_count:
            kind = KINDS[operations.kind]
            notes.append(
                f"{missing_count} of {len(has)} {kind} operations have no launch in the capture; "
                "they are kept without a range"
            )
        if has.all():
            start = calls.start[match]
            piece = trees.innermost(start, calls.thread[match], calls.threads)
        else:
            start = np.full(len(match), NULL)
            start[has] = calls.start[match[has]]
            piece = np.full(len(match), -1, np.int32)
            piece[has] = trees.innermost(start[has], calls.thread[match[has]], calls.threads)
        origin = _origin(operations, node_pieces)
        if count := _untold(operations, node_pieces):
            untold += count
            notes.append(
                f"{count} {KINDS[operations.kind]} operations are of CUDA graphs that were made "
                f"before the capture began: their layers are not told; {GRAPHS_FIX}"
            )
        launched.append(Launched(operations, piece, match, start, origin))
    return Attribution(capture, trees.joined, launched, notes, untold)


def _by_thread(ranges: Ranges) -> list[tuple[int, npt.NDArray[np.int64]]]:
    """Thread (globalTid) and its ranges' indices; a range of two threads is in both."""
    crossing_code = np.asarray([t != NULL for t in ranges.end_threads] or [False])
    by_thread: dict[int, npt.NDArray[np.int64]] = {}
    for code, thread in enumerate(ranges.threads):
        if thread != NULL:
            by_thread[thread] = np.flatnonzero(ranges.thread == code)
    if crossing_code.any() and len(ranges):
        moved = np.flatnonzero(crossing_code[ranges.end_thread] & ranges.loose)
        for code, thread in enumerate(ranges.end_threads):
            if thread == NULL:
                continue
            extra = moved[ranges.end_thread[moved] == code]
            own = by_thread.get(thread, np.empty(0, np.int64))
            by_thread[thread] = np.union1d(own, extra)
    return [(t, w) for t, w in by_thread.items() if len(w)]


def _append(calls: Calls, others: Calls) -> Calls:
    return Calls(
        np.concatenate((calls.start, others.start)),
        np.concatenate((calls.correlation, others.correlation)),
        np.concatenate(
            (calls.thread, others.thread.astype(np.int32) + np.int32(len(calls.threads)))
        ),
        [*calls.threads, *others.threads],
    )


def _match(operations: Operations, calls: Calls) -> Indices:
    """Index of each operation's call, -1 for none."""
    call = np.full(len(operations), -1, np.int32)
    if not len(operations) or not len(calls):
        return call
    owners: dict[int, list[int]] = {}
    for code, thread in enumerate(calls.threads):
        if thread != NULL:
            owners.setdefault(thread >> schema.PROCESS_SHIFT, []).append(code)
    for code, process in enumerate(operations.processes):
        if process == NULL and len(owners) == 1:
            process = next(iter(owners))  # an old export without globalPid, of one process
        threads = owners.get(process)
        if threads is None:
            continue
        mine = operations.process == code
        of_process = np.zeros(len(calls.threads), np.bool_)
        of_process[threads] = True
        theirs = of_process[calls.thread]
        all_mine, all_theirs = bool(mine.all()), bool(theirs.all())
        wanted = operations.correlation if all_mine else operations.correlation[mine]
        correlation = calls.correlation if all_theirs else calls.correlation[theirs]
        start = calls.start if all_theirs else calls.start[theirs]
        match = _latest(correlation, start, wanted)
        if not all_theirs:
            match = np.where(match >= 0, np.flatnonzero(theirs)[match], -1).astype(np.int32)
        if all_mine:
            return match
        call[mine] = match
    return call


def _latest(correlation: Integers, start: Integers, wanted: Integers) -> Indices:
    """Per wanted id the index of the call with it that started last, -1 for none."""
    if not len(correlation):
        return np.full(len(wanted), -1, np.int32)
    low, high = int(correlation.min()), int(correlation.max())
    n = len(correlation)
    if high - low < 16 * n + 1_000_000:
        table = np.full(high - low + 1, -1, np.int32)
        table[correlation - low] = np.arange(n, dtype=np.int32)
        if np.count_nonzero(table >= 0) < n:
            order = np.argsort(start, kind="stable").astype(np.int32)
            table[correlation[order] - low] = order  # of equal ids the last one stays
        inside = (wanted >= low) & (wanted <= high)
        if inside.all():
            return table[wanted - low]
        return np.where(inside, table[np.where(inside, wanted - low, 0)], -1).astype(np.int32)
    order = np.lexsort((start, correlation)).astype(np.int32)
    ordered = correlation[order]
    at = np.searchsorted(ordered, wanted, side="right") - 1
    hit = (at >= 0) & (ordered[at] == wanted)
    return np.where(hit, order[at], -1).astype(np.int32)


def _node_pieces(nodes: GraphNodes | None, trees: _Trees) -> dict[tuple[int, int], int]:
    """The innermost piece around the creation of each graph node, by process key and node.

    A node of a graph that is launched is a copy, made when the graph was instantiated: it belongs
    to where its original was made. Where that is not in the capture it belongs to nothing known.
    """
    if nodes is None or not len(nodes.node):
        return {}
    created: dict[tuple[int, int], tuple[int, int]] = {}
    copied: dict[tuple[int, int], int] = {}
    columns = (nodes.node, nodes.original, nodes.start, nodes.thread)
    for node, original, start, thread in zip(*(c.tolist() for c in columns), strict=True):
        if NULL in (node, start, thread):
            continue
        key = (thread >> schema.PROCESS_SHIFT, node)
        if original not in (NULL, 0, node):
            copied.setdefault(key, original)
        created.setdefault(key, (start, thread))
    placed, places = [], []
    for key in created:
        first = key
        seen = {first}
        while first in copied and (first[0], copied[first]) in created:
            first = (first[0], copied[first])
            if first in seen:
                break
            seen.add(first)
        if first not in copied:
            placed.append(key)
            places.append(created[first])
    threads = sorted({t for _, t in places})
    code = {t: i for i, t in enumerate(threads)}
    pieces = trees.innermost(
        np.asarray([s for s, _ in places], np.int64),
        np.asarray([code[t] for _, t in places], np.int32),
        threads,
    )
    return dict(zip(placed, pieces.tolist(), strict=True))


def _untold(operations: Operations, node_pieces: dict[tuple[int, int], int]) -> int:
    """How many operations are of CUDA graphs that the capture does not see being made."""
    count = 0
    if operations.node is None:
        return count
    for code, process in enumerate(operations.processes):
        here = operations.node[(operations.process == code) & (operations.node != NULL)]
        distinct, counts = np.unique(here[here != 0], return_counts=True)
        count += sum(
            n
            for node, n in zip(distinct.tolist(), counts.tolist(), strict=True)
            if (process, node) not in node_pieces
        )
    return count


def _origin(operations: Operations, node_pieces: dict[tuple[int, int], int]) -> Indices | None:
    """Per operation the innermost piece around the creation of its graph node."""
    if operations.node is None or not node_pieces:
        return None
    origin = np.full(len(operations), -1, np.int32)
    for code, process in enumerate(operations.processes):
        here = np.flatnonzero((operations.process == code) & (operations.node != NULL))
        distinct, inverse = np.unique(operations.node[here], return_inverse=True)
        pieces = [node_pieces.get((process, n), -1) for n in distinct.tolist()]
        origin[here] = np.asarray(pieces, np.int32)[inverse] if pieces else -1
    return origin
