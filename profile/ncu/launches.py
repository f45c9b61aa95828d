"""The launches of one iteration: of an nsys export, and those that an ncu report holds."""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sqlite3
import sys
import urllib.parse
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from ...core import own_ranges
from ...core.errors import InputError
from ...core.replay.match import Seen
from ...core.replay.plan import Launch
from ...core.resolve.spelling import is_enqueue
from . import tool as tool_

PUSH_POP = 59  # NvtxPushPopRange in ENUM_NSYS_EVENT_TYPE
_KERNELS = """
SELECT k.start, k.end, r.start, r.globalTid, d.value, s.value, k.gridX, k.gridY, k.gridZ,
       k.blockX, k.blockY, k.blockZ, k.registersPerThread, k.staticSharedMemory,
       k.dynamicSharedMemory
FROM CUPTI_ACTIVITY_KIND_KERNEL k
JOIN CUPTI_ACTIVITY_KIND_RUNTIME r
  ON r.correlationId = k.correlationId AND (r.globalTid >> 24) = (k.globalPid >> 24)
JOIN StringIds d ON d.id = k.demangledName
JOIN StringIds s ON s.id = k.shortName
ORDER BY r.start, k.start
"""
_RANGES = f"""
SELECT n.start, n.end, n.globalTid, COALESCE(n.text, t.value)
FROM NVTX_EVENTS n LEFT JOIN StringIds t ON t.id = n.textId
WHERE n.eventType = {PUSH_POP} AND n.end IS NOT NULL
ORDER BY n.start
"""


class Range(NamedTuple):
    """A push/pop range of one thread, in ns."""

    start: int
    end: int
    thread: int
    text: str


def kernels_and_ranges(path: Path) -> tuple[list[Any], list[Range]]:
    """Kernels and named ranges of an nsys export, in the order of launching and of opening.

    Kernels: start, end, launch, thread, name, short name, grid x y z, block x y z, registers,
    static and dynamic shared bytes. InputError where they cannot be read.
    """
    where = urllib.parse.quote(str(path.absolute()))  # a ? or # of its own would end the path
    try:
        with contextlib.closing(sqlite3.connect(f"file:{where}?mode=ro", uri=True)) as file:
            ranges = [Range(*row) for row in file.execute(_RANGES) if row[3]]
            return file.execute(_KERNELS).fetchall(), ranges
    except sqlite3.Error as e:
        raise InputError(
            f"has no kernels and ranges that can be read ({e})",
            file=path,
            fix="profile it again with nsys",
        ) from None


def first_iteration(path: Path) -> tuple[list[Any], list[Range]]:
    """Of `kernels_and_ranges` those of the first range ``layerline/iteration/N``, itself included.
    InputError where the file holds none, or it launched no kernel."""
    kernels, ranges = kernels_and_ranges(path)
    iteration = next((r for r in ranges if r.text.startswith(own_ranges.ITERATION)), None)
    if iteration is None:
        raise InputError("holds no iteration", file=path, fix="profile it again with nsys")
    start, end, thread, _ = iteration
    chosen = [k for k in kernels if k[3] >> 24 == thread >> 24 and start <= k[2] <= end]
    if not chosen:
        raise InputError("its first iteration launched no kernel", file=path)
    return chosen, [r for r in ranges if start <= r.start and r.end <= end]


def of_nsys(path: Path) -> list[Launch]:
    """The kernels that one inference launched, in the order of launching, with their layers.

    `path`: an export of a TensorRT capture to SQLite. InputError where it holds no inference.
    """
    kernels, ranges = kernels_and_ranges(path)
    inference = next((r for r in ranges if is_enqueue(r.text)), None)
    if inference is None:
        raise InputError("holds no inference of TensorRT", file=path, fix="profile it with nsys")
    start, end, thread, _ = inference
    chosen = [k for k in kernels if k[3] == thread and start <= k[2] <= end]
    if not chosen:
        raise InputError("its first inference launched no kernel", file=path)
    inside = [r for r in ranges if r.thread == thread and start <= r.start and r.end <= end]
    layers = [r for r in inside if not is_enqueue(r.text)]
    stacks = open_at(layers, [(k[2], thread) for k in chosen])
    return [
        launch_of(i, kernel, layer=stack[-1].text if stack else None)
        for i, (kernel, stack) in enumerate(zip(chosen, stacks, strict=True))
    ]


def launch_of(index: int, kernel: Any, *, layer: str | None, place: str | None = None) -> Launch:
    """The launch of a row of `kernels_and_ranges`."""
    start, end, _, _, name, function = kernel[:6]
    grid, block, (registers, static, dynamic) = kernel[6:9], kernel[9:12], kernel[12:]
    work = (index, name, function, grid, block, registers, static, dynamic)
    return Launch(*work, layer, end - start, place)


def open_at(ranges: list[Range], times: list[tuple[int, int]]) -> list[list[Range]]:
    """The ranges that were open at each (time, thread), the innermost last."""
    waiting: dict[int, list[Range]] = defaultdict(list)  # of each thread, the last to open first
    for r in sorted(ranges, key=lambda r: (-r.start, r.end)):
        waiting[r.thread].append(r)
    stacks: dict[int, list[Range]] = defaultdict(list)
    stack_of: list[list[Range]] = [[] for _ in times]
    for i in sorted(range(len(times)), key=lambda i: times[i]):
        at, thread = times[i]
        stack, later = stacks[thread], waiting[thread]
        while later and later[-1].start <= at:
            opened = later.pop()
            while stack and stack[-1].end < opened.start:
                stack.pop()
            stack.append(opened)
        while stack and stack[-1].end < at:
            stack.pop()
        stack_of[i] = list(stack)
    return stack_of


def _library() -> Any:
    """`ncu_report`: the package, or the one that Nsight Compute brings; None without either."""
    with contextlib.suppress(ImportError):
        return importlib.import_module("ncu_report")
    tool = next((shutil.which(a) for a in reversed(tool_.command()) if shutil.which(a)), None)
    if tool is None:
        return None
    for folder in Path(tool).resolve().parents:
        if (folder / "extras/python/ncu_report.py").exists():
            sys.path.append(str(folder / "extras/python"))
            with contextlib.suppress(ImportError):
                return importlib.import_module("ncu_report")
    return None


def of_report(path: Path) -> list[Seen] | None:
    """The launches of a report in order; None where no ncu_report is here to read it."""
    library = _library()
    if library is None:
        return None
    try:
        report = library.load_report(str(path))
        actions = [
            results.action_by_idx(a)
            for results in (report.range_by_idx(r) for r in range(report.num_ranges()))
            for a in range(results.num_actions())
        ]
        return [_seen(number, action) for number, action in enumerate(actions)]
    except (RuntimeError, ValueError, TypeError, AttributeError, OSError) as e:
        raise InputError(f"cannot be read by ncu_report ({e})", file=path) from None


def _seen(number: int, action: Any) -> Seen:
    push_pop: list[tuple[str, str]] = []
    start_end: list[str] = []  # hold for every thread: the phase, where a thread has no module
    state = action.nvtx_state()
    for domain_id in state.domains() if state is not None else ():
        domain = state.domain_by_id(domain_id)
        push_pop += [(domain.name(), name) for name in domain.push_pop_ranges()]
        start_end += list(domain.start_end_ranges())
    # A report keeps order within a domain only; Myelin's ranges lie inside TensorRT's.
    names = [n for d, n in push_pop if d == "myelin-exec"] or [n for _, n in push_pop]
    names = names or start_end
    own = own_ranges.innermost((n for _, n in push_pop), start_end)
    return Seen(
        number=number,
        function=action.name(action.NameBase_FUNCTION),
        grid=_size(action, "grid"),
        block=_size(action, "block"),
        layer=own or (names[-1] if names else None),
    )


def _size(action: Any, what: str) -> tuple[int, ...] | None:
    parts = [action.metric_by_name(f"launch__{what}_dim_{axis}") for axis in "xyz"]
    return None if None in parts else tuple(int(p.value()) for p in parts)
