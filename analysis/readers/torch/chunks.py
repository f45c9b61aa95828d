"""A profiler trace in chunks: its events a few megabytes at a time, never the whole file.

The trace is an object with an array ``traceEvents`` (Kineto, 2021 to now), or the bare array
(the autograd profiler, and other writers of the Chrome trace format). A chunk is cut at a place
that looks like the border of two events and parsed; if it parses, the cut was at a border: what
was parsed began at an event and is a sequence of whole values, and JSON read from the left has
one reading only. A cut inside a string or a nested list leaves something open and does not
parse; then the true border is found by counting brackets outside of strings.

Format: Chrome "Trace Event Format", https://docs.google.com/document/d/
1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU; fields of ``args`` as libkineto's
output_json.cpp and torch/csrc/profiler/kineto_shim.cpp write them.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, cast

import msgspec

from ....core.errors import InputError
from ..bounded import (
    MAX_BEFORE_JSON,
    MIB,
    after_json,
    decode,
    encoding_of,
    json_start,
    open_bytes,
    open_text,
)

CHUNK = MIB // 4  # with its events it fits a core's cache, which halves the time
MOST_HEAD = 16 * MIB  # of what stands before the events, and behind them
MOST_EVENT = 16 * MIB
MOST_DEPTH = 64  # of nested lists and objects; real traces reach 8
MOST_LOOSE = 1_500_000  # events that only the slow parser takes
LEAST_ROUNDED = 2.0**43  # microseconds from which on doubles are more than a nanosecond apart
LEAST_EVENT = 8  # bytes of an event on average: `{"ph":1}`

_BORDER = re.compile(rb"\}\s*,\s*\{")
# A string that the chunk cuts off reaches to its end.
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[\[\]{}]', re.DOTALL)
_LIST_FOLLOWS = re.compile(rb"\s*:?\s*(\[)?")
_OPENING, _CLOSING = (b"{", b"["), (b"}", b"]")
_BETWEEN = b" \t\r\n,"
_BARE = re.compile(r"(?<=[:\[,])(\s*)(-?)(?:inf(?:inity)?|nan(?:\(\w*\))?)(?=\s*[,}\]])", re.I)
_ESCAPE = re.compile(r'\\(?![\\"/bfnrtu])')

Number = int | float | str | None
ABSENT = msgspec.Raw()


class Args(msgspec.Struct, gc=False):
    """The arguments of an event that are used; all others are skipped by the parser. A number that
    is not there is -1, as in the columns made of them."""

    correlation: Number = -1
    sequence: Number = msgspec.field(default=-1, name="Sequence number")
    forward_thread: Number = msgspec.field(default=-1, name="Fwd thread id")
    index: Number = msgspec.field(default=-1, name="Ev Idx")
    stream: Number = -1
    device: Number = -1
    # Of a kernel; as text, for few kernels differ: who keeps them looks at each text once.
    grid: msgspec.Raw = ABSENT
    block: msgspec.Raw = ABSENT
    registers: msgspec.Raw = msgspec.field(default=ABSENT, name="registers per thread")
    shared: msgspec.Raw = msgspec.field(default=ABSENT, name="shared memory")
    # Of a communication (`communication.py`), as text for the same reason.
    collective: msgspec.Raw = msgspec.field(default=ABSENT, name="Collective name")
    group: msgspec.Raw = msgspec.field(default=ABSENT, name="Process Group Name")
    group_about: msgspec.Raw = msgspec.field(default=ABSENT, name="Process Group Description")
    group_ranks: msgspec.Raw = msgspec.field(default=ABSENT, name="Process Group Ranks")
    group_size: msgspec.Raw = msgspec.field(default=ABSENT, name="Group size")
    group_start: msgspec.Raw = msgspec.field(default=ABSENT, name="Global rank start")
    group_stride: msgspec.Raw = msgspec.field(default=ABSENT, name="Global rank stride")
    elements_in: msgspec.Raw = msgspec.field(default=ABSENT, name="In msg nelems")
    elements_out: msgspec.Raw = msgspec.field(default=ABSENT, name="Out msg nelems")
    dtype: msgspec.Raw = ABSENT
    source_rank: msgspec.Raw = msgspec.field(default=ABSENT, name="Src Rank")
    target_rank: msgspec.Raw = msgspec.field(default=ABSENT, name="Dst Rank")
    collective_number: Number = msgspec.field(default=-1, name="Seq")
    dims: msgspec.Raw = msgspec.field(default=ABSENT, name="Input Dims")
    types: msgspec.Raw = msgspec.field(default=ABSENT, name="Input type")
    inputs: msgspec.Raw = msgspec.field(default=ABSENT, name="Concrete Inputs")


# Those of which `communication.Arguments` is made, in its order.
COMMUNICATION = (
    "collective", "group", "group_about", "group_ranks", "group_size", "group_start",
    "group_stride", "elements_in", "elements_out", "dtype", "source_rank", "target_rank",
    "dims", "types", "inputs",
)  # fmt: skip
_RAW = ("grid", "block", "registers", "shared", *COMMUNICATION)


class Event(msgspec.Struct, gc=False):
    """One event of a trace; times in microseconds, as number or text. A `ts` that a double would
    round is as the file has it."""

    ph: str = "X"
    name: Number = ""
    cat: str | None = None
    ts: Number | msgspec.Raw = None
    dur: Number = None
    pid: Number = None
    tid: Number = None
    args: Args | None = None


class _Near(Event, gc=False):
    """An event whose `ts` no double rounds."""

    ts: int | Annotated[float, msgspec.Meta(lt=LEAST_ROUNDED)] | str | None = None


class _Dated(Event, gc=False):
    """An event whose `ts` is kept as it is written."""

    ts: msgspec.Raw = ABSENT


_EVENTS = msgspec.json.Decoder(list[Event])
_NEAR = msgspec.json.Decoder(list[_Near])
_DATED = msgspec.json.Decoder(list[_Dated])


class _Real(float):
    """A number of the slow parser, with its text."""

    text: str

    def __new__(cls, text: str) -> _Real:
        number = super().__new__(cls, text)
        number.text = text
        return number


@dataclass
class Chunks:
    """A trace being read: iterate for lists of events; `head` and `repaired` fill as it goes.

    `head` holds the top-level values beside the events (whole after the iteration); `repaired`
    counts chunks that no strict JSON parser takes (bare inf and nan, control characters, single
    backslashes in names, which profilers of several years wrote).
    """

    path: Path
    head: dict[str, Any] = field(default_factory=dict)
    repaired: int = 0
    _absolute: bool = False  # whether times were met that a double rounds
    _loose: int = 0

    def __iter__(self) -> Iterator[list[Event]]:
        with _utf8(self.path) as stream:
            rest, closing = self._begin(stream)
            yield from self._events(stream, rest, closing)

    # --- before the events ------------------------------------------------------------------

    def _begin(self, stream: IO[bytes]) -> tuple[bytes, bool]:
        """Read up to the first event; gives what follows, and whether an object encloses it."""
        data = stream.read(CHUNK)
        if data.startswith(b"\xef\xbb\xbf"):
            data = data[3:]
        data = data[json_start(data[: 2 * MAX_BEFORE_JSON].decode("latin-1")) :]
        start = data[:1]
        if start == b"[":
            return data[1:], False
        if start != b"{":
            raise InputError("is not a profiler trace (no JSON object or list)", file=self.path)
        scan = _Scan(self.path)
        while (at := scan.member(data, b"traceEvents")) is None:
            more = stream.read(CHUNK)
            if not more:
                raise self._not_a_trace(data)
            data += more
            if len(data) > MOST_HEAD:
                what = f"no traceEvents in the first {MOST_HEAD // MIB} MiB"
                raise InputError(what, file=self.path)
        before = data[: at[0]].rstrip().rstrip(b",") + b"}"
        self._take_head(before)
        return data[at[1] :], True

    def _not_a_trace(self, data: bytes) -> InputError:
        value = _lenient(data)
        if isinstance(value, dict) and "nodes" in value and "schema" in value:
            return InputError(
                f"is a PyTorch execution trace (schema {value['schema']}), which has no times",
                file=self.path,
                fix="give the profiler's trace of the same run",
            )
        if isinstance(value, dict):
            return InputError("is JSON without traceEvents", file=self.path)
        return InputError("is cut short or not JSON", file=self.path, fix="copy it again")

    def _take_head(self, data: bytes) -> None:
        value = _lenient(data)
        if isinstance(value, dict):
            self.head.update(value)

    # --- the events -------------------------------------------------------------------------

    def _events(self, stream: IO[bytes], rest: bytes, enclosed: bool) -> Iterator[list[Event]]:
        count, ended = 0, False
        scan = _Scan(self.path)
        rest = rest.lstrip(_BETWEEN)
        while True:
            more = stream.read(CHUNK)
            ended = not more
            rest = rest + more if rest else more.lstrip(_BETWEEN)
            if len(rest) > MOST_EVENT + CHUNK:
                what = f"an event of more than {MOST_EVENT // MIB} MiB after {count:,}"
                raise InputError(what, file=self.path)
            # A scan that has begun found an event that is longer than a chunk: it goes on. The scan
            # is slow: of what ends the file too, all but the last event is taken without it.
            cut = None if scan.at else _quick_border(rest)
            events = None if cut is None else self._strict(rest[:cut])
            if events is None or cut is None:
                cut, close = scan.border(rest)
                if close is not None:
                    last = rest[:close].strip().rstrip(b",")
                    yield self._parse(last, count) if last else []
                    self._finish(stream, rest[close + 1 :], enclosed)
                    return
                if ended:
                    yield from self._cut_short(rest, cut, enclosed, count)
                    return
                if cut is None:
                    continue  # one event, longer than what was read
                events = self._parse(rest[:cut], count)
            if len(events) > len(rest) // LEAST_EVENT + 1:
                raise InputError("is not a profiler trace: its events are empty", file=self.path)
            count += len(events)
            yield events
            rest, scan = rest[cut:].lstrip(_BETWEEN), _Scan(self.path)

    def _cut_short(
        self, rest: bytes, cut: int | None, enclosed: bool, count: int
    ) -> Iterator[list[Event]]:
        """The file ended without closing the events: allowed for a bare list only."""
        last = rest.strip().rstrip(b",")
        whole = not last or (cut is not None and not rest[cut:].strip().rstrip(b",").strip())
        if enclosed or not whole or not (count or last):
            raise InputError(
                f"is cut short after {count:,} events", file=self.path, fix="copy it again"
            )
        if last:
            yield self._parse(last, count)

    def _finish(self, stream: IO[bytes], rest: bytes, enclosed: bool) -> None:
        """What follows the events: more top-level values, and the closing brace."""
        while more := stream.read(CHUNK):
            rest += more
            if len(rest) > MOST_HEAD:
                what = f"more than {MOST_HEAD // MIB} MiB follow the events"
                raise InputError(what, file=self.path)
        if not enclosed:
            return
        rest = rest.strip()
        end = rest.rfind(b"}") + 1
        if after_json(decode(rest[end:])):
            rest = rest[:end]
        if not rest.endswith(b"}"):
            raise InputError("is cut short after its events", file=self.path, fix="copy it again")
        self._take_head(b"{" + rest.lstrip(b",").strip())

    def _strict(self, text: bytes) -> list[Event] | None:
        if not self._absolute:
            events = _decoded(text, _NEAR)
            if events is not None:
                return events
            self._absolute = _decoded(text, _EVENTS) is not None
        return _decoded(text, _DATED) if self._absolute else None

    def _parse(self, text: bytes, count: int) -> list[Event]:
        events = self._strict(text)
        if events is not None:
            return events
        values = _lenient(b"[" + text + b"]")
        if not isinstance(values, list) or not all(isinstance(v, dict) for v in values):
            raise InputError(
                f"is not a profiler trace: what follows event {count:,} is no list of events",
                file=self.path,
                fix="is it cut short?",
            )
        self.repaired += 1
        self._loose += len(values)
        if self._loose > MOST_LOOSE:
            what = f"holds over {MOST_LOOSE:,} events in chunks that are no strict JSON"
            raise InputError(what, file=self.path, fix="export it again")
        return [_loose(value) for value in values]


class _Recoded(io.RawIOBase):
    """Text of another encoding as UTF-8."""

    def __init__(self, text: IO[str]) -> None:
        self._text = text

    def read(self, size: int = -1) -> bytes:
        return self._text.read(size).encode("utf-8", "replace")

    def close(self) -> None:
        self._text.close()
        super().close()


def _utf8(path: Path) -> IO[bytes]:
    """The file as UTF-8: what PowerShell redirects into a file is UTF-16."""
    stream = open_bytes(path)
    if encoding_of(cast(io.BufferedReader, stream).peek(4096)[:4096]).startswith("utf-16"):
        stream.close()
        return cast(IO[bytes], _Recoded(open_text(path)))
    return stream


def _quick_border(data: bytes) -> int | None:
    """The place after the last ``}`` that a comma and ``{`` follow; may be a wrong one."""
    window = 1 << 11
    while True:
        places = [m.start() for m in _BORDER.finditer(data, max(0, len(data) - window))]
        if places:
            return places[-1] + 1
        if window >= len(data):
            return None
        window *= 8


class _Scan:
    """Counts brackets outside of strings in data that grows at its end: each byte is looked at
    once. InputError where they nest deeper than `MOST_DEPTH`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.at = 0  # what lies before has been looked at
        self._depth = 0
        self._border: int | None = None

    def border(self, data: bytes) -> tuple[int | None, int | None]:
        """The place after the last whole event, and the place of the ``]`` that ends the list,
        each None when not in `data`."""
        for start, end, text in self._tokens(data):
            if text == b"]" or text == b"}":
                if self._depth < 0:
                    return self._border, start
                if self._depth == 0:
                    self._border = end
        return self._border, None

    def member(self, data: bytes, key: bytes) -> tuple[int, int] | None:
        """Where a top-level member of an object with a list as value stands: its start, and the
        place after the ``[``; None when it is not in `data`."""
        wanted = b'"' + key + b'"'
        for start, end, text in self._tokens(data):
            if self._depth == 1 and text == wanted:
                after = _LIST_FOLLOWS.match(data, end)
                if after and after.group(1):
                    return start, after.end()
                if after and after.end() == len(data):  # cut off: look again with more
                    self.at = start
                    return None
        return None

    def _tokens(self, data: bytes) -> Iterator[tuple[int, int, bytes]]:
        for token in _TOKEN.finditer(data, self.at):
            text = token.group()
            if text in _OPENING:
                self._depth += 1
                if self._depth > MOST_DEPTH:
                    raise InputError("is nested deeper than any profiler trace", file=self.path)
            elif text in _CLOSING:
                self._depth -= 1
            elif len(text) < 2 or not text.endswith(b'"') or token.end() == len(data):
                self.at = token.start()  # a string that may go on
                return
            yield token.start(), token.end(), text
        self.at = len(data)


def _decoded(text: bytes, decoder: msgspec.json.Decoder[Any]) -> list[Event] | None:
    try:
        return decoder.decode(b"[" + text + b"]")  # type: ignore[no-any-return]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _lenient(data: bytes) -> Any:
    """Parse with repairs; None where that fails too."""
    if b"\x00" in data:
        return None  # a hole in the file: what follows it is of another event
    text = data.decode("utf-8", errors="replace")
    tried = None
    for repair in (lambda t: t, partial(_ESCAPE.sub, r"\\\\"), partial(_BARE.sub, r"\1null")):
        text = repair(text)
        if text == tried:
            continue
        try:
            return json.loads(text, strict=False, parse_float=_Real)
        except RecursionError:
            return None
        except ValueError:
            tried = text
    return None


def _loose(value: dict[str, Any]) -> Event:
    """An event from a dict; a field of an unusable type is unknown."""
    args = value.get("args")
    args = args if isinstance(args, dict) else {}
    cat = value.get("cat")
    used: dict[str, Any] = {
        name: _raw(args.get(key)) if name in _RAW else _scalar(args.get(key))
        for name, key in zip(Args.__struct_fields__, Args.__struct_encode_fields__, strict=True)
    }
    ts = _scalar(value.get("ts"))
    return Event(
        ph=str(value.get("ph", "X")),
        name=_scalar(value.get("name")) or "",
        cat=cat if isinstance(cat, str) else None,
        ts=msgspec.Raw(ts.text.encode()) if isinstance(ts, _Real) else ts,
        **{key: _scalar(value.get(key)) for key in ("dur", "pid", "tid")},
        args=Args(**used),
    )


def _scalar(value: Any) -> Number:
    return value if isinstance(value, (int, float, str)) else None


def _raw(value: Any) -> msgspec.Raw:
    return ABSENT if value is None else msgspec.Raw(json.dumps(value).encode())
