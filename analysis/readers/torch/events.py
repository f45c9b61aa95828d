"""The events of a profiler trace as columns.

`read_events` keeps what has a duration on a thread or a device; names are stored once.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import compress
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....core.errors import InputError
from .chunks import ABSENT, COMMUNICATION, LEAST_ROUNDED, Args, Chunks, Event, Number
from .communication import Arguments, is_named, parse

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# What an event is. Host events nest on their thread: ranges (record_function, module frames),
# Python frames, operators, and calls of a device's runtime or driver.
RANGE, PYTHON, OP, RUNTIME, KERNEL, MEMCPY, MEMSET = range(7)
HOST = (RANGE, PYTHON, OP, RUNTIME)
DEVICE = (KERNEL, MEMCPY, MEMSET)
DEVICE_KINDS = {KERNEL: "kernel", MEMCPY: "memcpy", MEMSET: "memset"}
DRAWN = (RANGE, RUNTIME, *DEVICE)  # what a timeline needs beside the table of operations
STEP = "ProfilerStep#"  # the range of a step of a profiler with a schedule
UNKNOWN = -1

# Categories as written from 2021 to now, in lower case.
_CATEGORIES = {
    "cpu_op": OP,
    "operator": OP,
    "user_annotation": RANGE,
    "python_function": PYTHON,
    "kernel": KERNEL,
    "concurrent_kernel": KERNEL,
    "gpu_memcpy": MEMCPY,
    "memcpy": MEMCPY,
    "gpu_memset": MEMSET,
    "memset": MEMSET,
    "runtime": RUNTIME,
    "overhead": UNKNOWN,
}
MOST_MICROSECONDS = 4e15  # the year 2096; the sum of two, in nanoseconds, fits 64 bits
_SIZES = msgspec.json.Decoder(tuple[int, ...])
_BY_NAME = 1 + max(DEVICE)  # of an event without a category: its name says what it is
_COUNT = msgspec.json.Decoder(int | None)
_NO_ARGS = Args()


def kind_of(category: str | None, name: str, process: Any) -> int:
    """What an event with this category is; UNKNOWN where it is none of ours.

    The autograd profiler of PyTorch up to 1.8 wrote no category: its operators carry the process
    "CPU functions", its kernels "CUDA functions".
    """
    if category is None or category == "":
        text = str(process)
        if text == "CPU functions" or name.startswith("aten::"):
            return OP
        return KERNEL if text == "CUDA functions" else UNKNOWN
    lower = category.lower()
    if lower in _CATEGORIES:
        return _CATEGORIES[lower]
    if lower.endswith(("_runtime", "_driver")):
        return RUNTIME  # cuda_, hip_, xpu_, privateuse1_, mtia_ …
    return UNKNOWN


class _Codes(dict[Any, int]):
    """A value's code: the count of values before it. What `says` says of a value is asked once."""

    def __init__(self, says: Callable[[Any], int] = lambda _: UNKNOWN) -> None:
        self._says, self._said = says, array("b")

    def __missing__(self, key: Any) -> int:
        self._said.append(self._says(key))
        code = self[key] = len(self)
        return code

    def of(self, values: list[Any]) -> Codes:
        """The codes of values."""
        return np.fromiter(map(self.__getitem__, values), np.int32, len(values))

    def said(self, codes: Codes) -> npt.NDArray[np.int8]:
        """What was said of the values with these codes."""
        return np.frombuffer(self._said, np.int8)[codes]


@dataclass(frozen=True)
class Geometry:
    """The shape of a kernel's launch; registers per thread and bytes of shared memory are None
    where the trace lacks them."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    registers: int | None
    shared: int | None


@dataclass
class Events:
    """Columns of equal length, in the file's order. Unknown is `UNKNOWN` (-1) in every column
    but `start`; times are integer nanoseconds, as the trace counts them."""

    path: Path
    kind: npt.NDArray[np.int8]
    name: Codes  # into `names`
    start: Ints
    duration: Ints
    process: Codes  # into `places`
    thread: Codes  # into `places`
    correlation: Ints
    sequence: Ints
    forward_thread: Ints
    index: Ints
    stream: Ints
    device: Ints
    geometry: Codes  # into `geometries`
    communication: Codes  # into `communications`
    number: Ints  # of a collective in its group ("Seq")
    names: list[str]
    places: list[Any]
    head: dict[str, Any]
    counts: dict[str, int]  # "phase category" -> events in the file
    notes: list[str]
    geometries: list[Geometry] = field(default_factory=list)
    communications: list[Arguments] = field(default_factory=list)

    def only(self, kinds: tuple[int, ...]) -> Events:
        """The events of these kinds, in the file's order."""
        return self.of_rows(np.flatnonzero(np.isin(self.kind, kinds)))

    def of_rows(self, rows: Ints) -> Events:
        """The events in these rows, in their order."""
        columns: dict[str, Any] = {
            c: v[rows] for c, v in vars(self).items() if isinstance(v, np.ndarray)
        }
        return replace(self, **columns)

    def with_rows(self, rows: Mapping[str, Sequence[int]], **changes: Any) -> Events:
        """The events and further rows, with `changes` of other fields; columns that `rows` lacks
        are unknown."""
        more = len(next(iter(rows.values())))
        columns = {
            c: np.concatenate((v, np.asarray(rows.get(c, [UNKNOWN] * more), v.dtype)))
            for c, v in vars(self).items()
            if isinstance(v, np.ndarray)
        }
        return replace(self, **(columns | changes))

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def end(self) -> Ints:
        """End of each event; its start where the duration is unknown."""
        return self.start + np.maximum(self.duration, 0)

    def end_of(self, event: int) -> int:
        """The end of one event."""
        return int(self.start[event]) + max(int(self.duration[event]), 0)


def nanoseconds(values: list[Number | msgspec.Raw]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Microseconds (number or text) as integer nanoseconds, and which of them are known.

    The whole and the broken part are converted apart: 2**53 ns is only 104 days, so a product
    in floating point would round an absolute time. One that is text never becomes a double.
    """
    try:
        return _rounded(np.frombuffer(array("d", cast(list[float], values))))
    except (TypeError, OverflowError):
        kinds = set(map(type, values))
    if kinds == {msgspec.Raw} and (exact := _exact(cast(list[msgspec.Raw], values))) is not None:
        return exact, np.ones(len(values), dtype=np.bool_)
    numbers = cast(list[Number], values)
    if msgspec.Raw in kinds:
        numbers = [_number(v) if isinstance(v, msgspec.Raw) else v for v in values]
    real = np.array([_real(v) for v in numbers], dtype=np.float64)
    ns, known = _rounded(real)
    for i in np.flatnonzero(known & (np.abs(real) >= LEAST_ROUNDED)).tolist():
        value = numbers[i]
        if isinstance(value, str):
            ns[i] = int((Decimal(value) * 1000).to_integral_value())
    return ns, known


def _rounded(real: npt.NDArray[np.float64]) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """As `nanoseconds`, of doubles."""
    known = np.isfinite(real) & (np.abs(real) < MOST_MICROSECONDS)
    real = np.where(known, real, 0.0)
    whole = np.floor(real)
    return whole.astype(np.int64) * 1000 + np.rint((real - whole) * 1000).astype(np.int64), known


def _exact(values: list[msgspec.Raw]) -> Ints | None:
    """Numbers as they are written, in thousandths; None where one is no number, has more than three
    decimals, or is beyond `MOST_MICROSECONDS`."""
    texts = pc.split_pattern(pa.scalar(b"\n".join(values), pa.binary()), b"\n").values
    try:
        decimals = texts.cast(pa.string()).cast(pa.decimal128(38, 3))
    except pa.ArrowInvalid:
        return None
    low, high = np.frombuffer(decimals.buffers()[1], np.int64).reshape(-1, 2).T
    fits = (high == low >> 63) & (np.abs(low) < MOST_MICROSECONDS * 1000)
    return low.copy() if fits.all() else None


def _number(value: msgspec.Raw) -> str | None:
    """The number in a JSON value, as text."""
    return bytes(value).decode(errors="replace").strip('"') or None


def _real(value: Number) -> float:
    try:
        return math.nan if value is None else float(value)
    except (ValueError, OverflowError):
        return math.nan


def integer(value: Number) -> int:
    """An identifier as integer; UNKNOWN where it is none (or does not fit 64 bits)."""
    if value is None:
        return UNKNOWN
    try:
        number = int(value)
    except (ValueError, OverflowError):
        return UNKNOWN
    return number if -(1 << 63) <= number < 1 << 63 else UNKNOWN


def _kind_in(category: str | tuple[str, str | None] | None) -> int:
    if isinstance(category, tuple):
        return UNKNOWN
    return kind_of(category, "", None) if category else _BY_NAME


class _Builder:
    """Takes events chunk by chunk and keeps arrays of what is needed."""

    def __init__(self) -> None:
        self.names, self.places = _Codes(lambda name: is_named(str(name))), _Codes()
        self.categories = _Codes(_kind_in)  # with the phase where it is not X, a duration's
        self.counts = np.zeros(0, dtype=np.int64)  # of events, by the code of their category
        # Grown in place: small arrays of each chunk would leave holes where they were.
        self.columns: dict[str, array[Any]] = {}
        self.undated = 0
        self.geometry_codes: dict[tuple[bytes, ...], int] = {}
        self.geometries: list[Geometry] = []
        self.communication_codes: dict[tuple[bytes, ...], int] = {}
        self.communications: list[Arguments] = []

    def add(self, events: list[Event]) -> None:
        kinds = self._kinds(events)
        kept = list(compress(events, (kinds != UNKNOWN).tolist()))
        if not kept:
            return
        start, dated = nanoseconds([e.ts for e in kept])
        duration, lasting = nanoseconds([e.dur for e in kept])
        duration[~lasting | (duration < 0)] = UNKNOWN
        args = [e.args or _NO_ARGS for e in kept]
        unknown = np.full(len(kept), UNKNOWN)
        part: dict[str, npt.NDArray[Any]] = {
            "kind": kinds[kinds != UNKNOWN],
            "name": self.names.of([e.name for e in kept]),
            "start": start,
            "duration": duration,
            "process": self.places.of([e.pid for e in kept]),
            "thread": self.places.of([e.tid for e in kept]),
            "correlation": _integers([a.correlation for a in args]),
            "index": _integers([a.index for a in args]),
            "stream": _integers([a.stream for a in args]),
            "device": _integers([a.device for a in args]),
            "sequence": _integers([a.sequence for a in args]),
            "forward_thread": _integers([a.forward_thread for a in args]),
            "geometry": unknown.astype(np.int32),
            "communication": unknown.astype(np.int32),
            "number": unknown,
        }
        device = np.flatnonzero(part["kind"] >= KERNEL).tolist()
        part["geometry"][device] = [self._geometry(args[i]) for i in device]
        of_name = np.flatnonzero(self.names.said(part["name"])).tolist()
        told = {i for i in device if args[i].collective is not ABSENT}
        for i in sorted(told.union(i for i in of_name if args[i] is not _NO_ARGS)):
            part["communication"][i] = self._communication(args[i])
            part["number"][i] = integer(args[i].collective_number)
        if not dated.all():
            self.undated += int((~dated).sum())
            part = {k: v[dated] for k, v in part.items()}
        for name, values in part.items():
            self.columns.setdefault(name, array(values.dtype.char)).frombytes(values.tobytes())

    def _kinds(self, events: list[Event]) -> npt.NDArray[np.int8]:
        """What each event is; UNKNOWN also for one that has no duration."""
        codes = self.categories.of([e.cat if e.ph == "X" else (e.ph, e.cat) for e in events])
        counts = np.bincount(codes, minlength=len(self.categories))
        counts[: len(self.counts)] += self.counts
        self.counts = counts
        kinds = self.categories.said(codes)
        for i in np.flatnonzero(kinds == _BY_NAME).tolist():
            kinds[i] = kind_of(None, str(events[i].name), events[i].pid)
        return kinds

    def counted(self) -> dict[str, int]:
        """The events of the file, by "phase category"."""
        pairs = [c if isinstance(c, tuple) else ("X", c) for c in self.categories]
        counts = Counter[tuple[str, str]]()
        for (phase, category), n in zip(pairs, self.counts.tolist(), strict=True):
            counts[phase, category or ""] += n
        return {f"{ph} {cat}" if cat else ph: n for (ph, cat), n in sorted(counts.items())}

    def _geometry(self, args: Args) -> int:
        if args.grid is ABSENT or args.block is ABSENT:
            return UNKNOWN
        texts = bytes(args.grid), bytes(args.block), bytes(args.registers), bytes(args.shared)
        code = self.geometry_codes.get(texts)
        if code is None:
            code, geometry = UNKNOWN, _geometry(*texts)
            if geometry is not None:
                code = len(self.geometries)
                self.geometries.append(geometry)
            self.geometry_codes[texts] = code
        return code

    def _communication(self, args: Args) -> int:
        texts = tuple([bytes(getattr(args, field)) for field in COMMUNICATION])
        code = self.communication_codes.get(texts)
        if code is None:
            code = self.communication_codes[texts] = len(self.communications)
            self.communications.append(parse(texts))
        return code


def _geometry(grid: bytes, block: bytes, registers: bytes, shared: bytes) -> Geometry | None:
    """The geometry in these texts; None where one is of another type than Kineto writes."""
    try:
        return Geometry(
            _SIZES.decode(grid),
            _SIZES.decode(block),
            _COUNT.decode(registers or b"null"),
            _COUNT.decode(shared or b"null"),
        )
    except msgspec.DecodeError:
        return None


def _integers(values: list[Number]) -> Ints:
    """Identifiers as an array; anything that is no integer is UNKNOWN."""
    try:
        return np.frombuffer(array("q", cast(list[int], values)), np.int64)
    except (TypeError, OverflowError):
        return np.array([integer(v) for v in values], dtype=np.int64)


def read_events(path: Path) -> Events:
    """Read a trace (.json, also compressed) in bounded memory. InputError for what is no profiler
    trace, is cut short, or holds no operator, range or kernel."""
    chunks = Chunks(path)
    builder = _Builder()
    for events in chunks:
        builder.add(events)
    if not builder.columns:
        raise InputError(
            "holds no operator, range or kernel with a duration",
            file=path,
            fix="was the profiler started, and stopped before the trace was exported?",
        )
    columns: dict[str, Any] = {k: np.frombuffer(v, v.typecode) for k, v in builder.columns.items()}
    # PyTorch 1.8 to 1.11 wrote the profiler's steps as operators.
    steps = [i for i, name in enumerate(builder.names) if str(name).startswith(STEP)]
    kind = columns["kind"]
    kind[(kind == OP) & np.isin(columns["name"], steps)] = RANGE
    notes = []
    if chunks.repaired:
        notes.append(f"{chunks.repaired} chunks are not strict JSON and were repaired")
    if builder.undated:
        notes.append(f"{builder.undated} events without a usable time were left out")
    endless = int((columns["duration"] == UNKNOWN).sum())
    if endless:
        notes.append(f"{endless} events have no usable duration; it is unknown")
    return Events(
        path=path,
        # A lone surrogate (an escape in JSON) is no text that can be written.
        names=[str(n).encode(errors="replace").decode() for n in builder.names],
        places=list(builder.places),
        head=chunks.head,
        counts=builder.counted(),
        notes=notes,
        geometries=builder.geometries,
        communications=builder.communications,
        **columns,
    )
