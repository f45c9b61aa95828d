"""Groups to a trace in Perfetto's protobuf format, written as a stream.

Field numbers and meaning: protos/perfetto/trace/perfetto_trace.proto and "Writing TrackEvent
protos synthetically" (https://perfetto.dev/docs/reference/synthetic-track-event). A track is made
known once; a slice is a begin and an end packet; names and texts are stored once (interned) and
named by number. Packets need not be in order of time: readers sort them, and keep the file's order
for equal times, so each lane is written as it nests.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import IO, cast

import numpy as np

from ...core.files import replacing
from . import wire
from .tracks import NULL, About, Group, Ints, Slices, Track, Value

# Trace, TracePacket
_PACKET, _TIME, _SEQUENCE, _EVENT, _INTERNED, _FLAGS, _TRACK = 1, 8, 10, 11, 12, 13, 60
_CLEARED, _NEEDS_STATE = 1, 2
# TrackEvent
_ANNOTATION, _TYPE, _NAME, _UUID, _DOUBLE, _OPENS, _CLOSES = 4, 9, 10, 11, 44, 47, 48
_BEGIN, _END, _INSTANT, _COUNTER = 1, 2, 3, 4
# DebugAnnotation
_KEY, _BOOL, _INT, _REAL, _TEXT, _LIST = 1, 2, 4, 5, 17, 12
# InternedData
_EVENT_NAMES, _KEYS, _TEXTS = 2, 3, 29
# TrackDescriptor
_T_UUID, _T_NAME, _T_PROCESS, _T_PARENT, _T_COUNTER = 1, 2, 3, 5, 8
_T_ORDERING, _T_RANK, _T_DESCRIPTION = 11, 12, 14
_EXPLICIT = 3
_FLUSH = 1 << 20
_BLOCK = 1 << 16  # slices whose columns are unpacked at once

_TAIL = wire.integer(_SEQUENCE, 1) + wire.integer(_FLAGS, _NEEDS_STATE)
_TAG_TIME = wire.varint(_TIME << 3)
_TAG_PACKET = wire.varint(_PACKET << 3 | 2)
_TAG_EVENT = wire.varint(_EVENT << 3 | 2)


class Writer:
    """Writes packets to `stream`; times given to it are in the trace's clock (ns, from 0)."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._buffer = bytearray()
        self._texts: dict[tuple[int, str], int] = {}
        self._uuid = 0
        state = wire.integer(_FLAGS, _CLEARED)
        self._packet(wire.integer(_SEQUENCE, 1) + state)

    def close(self) -> None:
        """Write what is still held."""
        self._stream.write(self._buffer)
        self._buffer.clear()

    def process(self, number: int, name: str, description: str) -> int:
        """Make a group known; the number of its track. `number` stands for its process id."""
        about = wire.integer(1, number) + wire.text(6, name)
        return self._track(wire.data(_T_PROCESS, about), name, number, description)

    def track(self, track: Track, parent: int, rank: int) -> int:
        """Make a track (one lane of it) known under `parent`; its number."""
        extra = wire.integer(_T_PARENT, parent)
        if track.values is not None:
            extra += wire.data(_T_COUNTER, wire.text(6, track.values.unit))
        return self._track(extra, track.name, rank, track.description)

    def _track(self, extra: bytes, name: str, rank: int, description: str) -> int:
        self._uuid += 1
        # The order in which tracks are made, not that of their names.
        extra += wire.integer(_T_ORDERING, _EXPLICIT) + wire.integer(_T_RANK, rank)
        if description:
            extra += wire.text(_T_DESCRIPTION, description)
        descriptor = wire.integer(_T_UUID, self._uuid) + wire.text(_T_NAME, name) + extra
        self._packet(wire.data(_TRACK, descriptor) + wire.integer(_SEQUENCE, 1))
        return self._uuid

    def lane(self, track: int, slices: Slices, order: Ints, shift: int) -> None:
        """The slices of one lane in drawing order; `shift` is added to their times."""
        head = wire.integer(_TYPE, _BEGIN) + wire.integer(_UUID, track)
        used = np.unique(slices.name[order]).tolist()
        names = {n: self._name(slices.names[n]) for n in used}
        abouts: dict[int, bytes] = {}
        own = [(self._key(k), v) for k, v in slices.own.items()]
        ending = _event(wire.integer(_TYPE, _END) + wire.integer(_UUID, track))
        running: list[tuple[int, bytes]] = []  # ends of the slices that are open, and their packets
        for at in range(0, len(order), _BLOCK):
            rows = order[at : at + _BLOCK]
            begins, ends = slices.start[rows] + shift, slices.end[rows] + shift
            columns = [
                [names[n] for n in slices.name[rows].tolist()],
                *(_annotated(key, values[rows]) for key, values in own),
                _arrows(slices, rows),
            ]
            each = zip(
                begins.tolist(),
                wire.varints(begins, _TAG_TIME),
                ends.tolist(),
                _packets(ends, ending),
                slices.about[rows].tolist(),
                zip(*columns, strict=True),
                strict=True,
            )
            for start, begin, end, closing, about, (name, *fields) in each:
                while running and running[-1][0] <= start:
                    self._buffer += running.pop()[1]
                shared = abouts.get(about)
                if shared is None:
                    shared = abouts[about] = self._annotations(slices.abouts[about])
                self._packet(begin + _event(b"".join((head, name, shared, *fields))))
                running.append((end, closing))
        while running:
            self._buffer += running.pop()[1]

    def _name(self, name: str) -> bytes:
        return wire.integer(_NAME, self._intern(_EVENT_NAMES, name))

    def counter(self, track: int, times: Sequence[int], values: Sequence[float]) -> None:
        """Values of a counter."""
        head = wire.integer(_TYPE, _COUNTER) + wire.integer(_UUID, track)
        for time, value in zip(times, values, strict=True):
            self._at(time, _event(head + wire.double(_DOUBLE, value)))

    def instant(self, track: int, name: str, about: About, time: int) -> None:
        """A moment with arguments."""
        event = wire.integer(_TYPE, _INSTANT) + wire.integer(_UUID, track)
        self._at(time, _event(event + self._name(name) + self._annotations(about)))

    def _at(self, time: int, event: bytes) -> None:
        self._packet(_TAG_TIME + wire.varint(time) + event)

    def _packet(self, content: bytes) -> None:
        self._buffer += _TAG_PACKET + wire.varint(len(content)) + content
        if len(self._buffer) >= _FLUSH:
            self.close()

    def _annotations(self, about: About) -> bytes:
        pairs = about.items()
        return b"".join([wire.data(_ANNOTATION, self._key(k) + self._value(v)) for k, v in pairs])

    def _key(self, name: str) -> bytes:
        return wire.integer(_KEY, self._intern(_KEYS, name))

    def _value(self, value: Value) -> bytes:
        if isinstance(value, bool):
            return wire.integer(_BOOL, value)
        if isinstance(value, int):
            return wire.integer(_INT, value)
        if isinstance(value, float):
            return wire.double(_REAL, value)
        if isinstance(value, str):
            return wire.integer(_TEXT, self._intern(_TEXTS, value))
        return b"".join(wire.data(_LIST, self._value(v)) for v in value)

    def _intern(self, field: int, text: str) -> int:
        number = self._texts.get((field, text))
        if number is None:
            number = self._texts[field, text] = len(self._texts) + 1
            entry = wire.data(field, wire.integer(1, number) + wire.text(2, text))
            self._packet(wire.data(_INTERNED, entry) + _TAIL)
        return number


def _event(content: bytes) -> bytes:
    return _TAG_EVENT + wire.varint(len(content)) + content + _TAIL


def _annotated(key: bytes, values: Ints) -> list[bytes]:
    """The argument `key` of each slice; nothing where it is not known."""
    arguments = wire.embedded(_ANNOTATION, key, _INT, values)
    for i in np.flatnonzero(values == NULL).tolist():
        arguments[i] = b""
    return arguments


def _packets(times: Ints, event: bytes) -> list[bytes]:
    """The same event at several times, as whole packets."""
    length = [wire.varint(len(_TAG_TIME) + n + len(event)) for n in range(11)]
    starts = [_TAG_PACKET + n + _TAG_TIME for n in length]
    return [starts[len(time)] + time + event for time in wire.varints(times)]


def _arrows(slices: Slices, rows: Ints) -> list[bytes]:
    """The fields of the arrows of each row: those that leave it, then those that end in it."""
    arrows = [b""] * len(rows)
    if slices.opens is not None:
        opens = slices.opens
        begin, end = opens.offsets[rows].tolist(), opens.offsets[rows + 1].tolist()
        for i, (b, e) in enumerate(zip(begin, end, strict=True)):
            arrows[i] = b"".join(wire.fixed64(_OPENS, f) for f in opens.ids[b:e].tolist())
    for closes in slices.closes:
        for i, f in enumerate(closes[rows].tolist()):
            if f != NULL:
                arrows[i] += wire.fixed64(_CLOSES, f)
    return arrows


def write(path: Path, groups: Sequence[Group]) -> None:
    """Write a timeline, whole or not at all; compressed where `path` ends in ``.gz``.

    All groups are aligned: the first measured operation of each is at the same moment, which is
    the length of the longest preparation (launches, host operators) before any of them.
    """
    base = max((g.before() for g in groups), default=0)
    with replacing(path) as temporary, temporary.open("wb") as stream:
        if path.suffix != ".gz":
            to_stream(stream, groups, base)
            return
        # No time of writing: the same timeline is the same file.
        with gzip.GzipFile("", "wb", compresslevel=5, fileobj=stream, mtime=0) as packed:
            to_stream(cast(IO[bytes], packed), groups, base)


def to_stream(stream: IO[bytes], groups: Sequence[Group], base: int) -> None:
    """Write the packets; `base` is when, in the trace's time, each group's `zero` is."""
    writer = Writer(stream)
    for number, group in enumerate(groups, 1):
        about = "; ".join(f"{k} {v}" for k, v in group.facts.items())
        process = writer.process(number, group.label, about)
        shift = base - group.zero
        writer.instant(process, "about this side", group.facts, base)
        for rank, track in enumerate(group.tracks):
            _write_track(writer, track, process, rank, shift)
    writer.close()


def _write_track(writer: Writer, track: Track, parent: int, rank: int, shift: int) -> None:
    if track.slices is not None:
        # Lanes are tracks of the same name and parent: the interface draws them as one.
        for lane in track.lanes:
            writer.lane(writer.track(track, parent, rank), track.slices, lane, shift)
        return
    uuid = writer.track(track, parent, rank)
    if track.values is not None:
        writer.counter(uuid, (track.values.time + shift).tolist(), track.values.value.tolist())
    for below, child in enumerate(track.below):
        _write_track(writer, child, uuid, below, shift)
