"""NCCL's own account of its calls in an nsys export: its NVTX domain's ranges with payload.

The form of a payload is in `NVTX_PAYLOAD_SCHEMA_ENTRIES` (a copy for each process), found by the
schema's number; for NCCL it is 2**24 + the number of the call (src/include/nvtx.h and
nvtx_payload_schemas.h). The values are in `NVTX_EVENTS.binaryData`: a header of four 64-bit numbers
(domain, schema, size of the payload, where it begins), then the payload; there only where the
export was made with ``--include-blobs=true``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from . import schema
from .sqlite import SqliteSource

_FIRST = 1 << 24
_OPERATIONS = {
    4: "AllGather", 5: "AllReduce", 6: "Broadcast", 7: "ReduceScatter", 8: "Reduce", 9: "Send",
    10: "Recv", 16: "AlltoAll",
}  # fmt: skip
_HEADER = struct.Struct("<4Q")
_COMMUNICATOR, _BYTES, _PEER = "NCCL communicator ID", "Message size [bytes]", "Peer rank"
_RANKS, _RANK = "No. of ranks", "Rank"
_USED = (_COMMUNICATOR, _BYTES, _PEER, _RANKS, _RANK)
# Fields by their type (NVTX_PAYLOAD_ENTRY_TYPE_*): int is 5, address 18, size_t 22.
_FORMATS = {5: "<i", 18: "<Q", 22: "<Q"}
ENTRIES, ENTRY = "NVTX_PAYLOAD_SCHEMA_ENTRIES", ("schemaId", "type", "name", "offset")
MOST = 5_000_000  # calls


@dataclass(frozen=True)
class Call:
    """A call: ns, the thread (globalTid), the operation as NCCL spells it, the communicator as the
    process knows it; the message's bytes and the peer within the communicator, None for none."""

    start: int
    end: int
    thread: int
    operation: str
    communicator: int
    bytes: int | None
    peer: int | None

    @property
    def process(self) -> int:
        """The key of the process."""
        return self.thread >> schema.PROCESS_SHIFT


@dataclass(frozen=True)
class Member:
    """A rank of a communicator, and how many it has."""

    rank: int
    size: int


@dataclass(frozen=True)
class Told:
    """The calls, and by process and communicator which rank of it the process is."""

    calls: list[Call] = field(default_factory=list)
    members: dict[tuple[int, int], Member] = field(default_factory=dict)

    def rank(self, process: int) -> Member | None:
        """The rank of a process in the largest communicator that it made; None where none was made
        within the capture."""
        own = [m for (p, _), m in self.members.items() if p == process]
        return max(own, key=lambda m: m.size, default=None)


def read(source: SqliteSource) -> Told:
    """What NCCL tells; nothing where the export has no payloads."""
    forms = forms_of(source.rows(ENTRIES, ENTRY))
    told = Told()
    if not forms:
        return told
    for start, end, thread, data in source.blobs(schema.NVTX, MOST):
        found = _payload(data, forms)
        if found is None or thread is None:
            continue
        number, payload = found
        values = _values(forms[number], payload)
        communicator = values.get(_COMMUNICATOR)
        if communicator is None or start is None:
            continue
        if _RANKS in values and _RANK in values:
            member = Member(values[_RANK], values[_RANKS])
            told.members[thread >> schema.PROCESS_SHIFT, communicator] = member
        operation = _OPERATIONS.get(number - _FIRST)
        if operation is not None and end is not None:
            bytes_, peer = values.get(_BYTES), values.get(_PEER)
            told.calls.append(Call(start, end, thread, operation, communicator, bytes_, peer))
    return told


Form = list[tuple[str, str, int]]  # name, format, offset


def forms_of(entries: Iterable[tuple[object, ...]]) -> dict[int, Form]:
    """The forms of NCCL's payloads, by schema, from rows of `ENTRY`."""
    forms: dict[int, Form] = {}
    seen: set[tuple[int, str]] = set()
    for number, kind, name, offset in entries:
        if not isinstance(number, int) or number < _FIRST or not isinstance(name, str):
            continue
        form = _FORMATS.get(kind) if isinstance(kind, int) else None
        offset = 0 if offset is None else offset
        if form is None or not isinstance(offset, int) or (number, name) in seen:
            continue
        seen.add((number, name))
        forms.setdefault(number, []).append((name, form, offset))
    return forms


def bare(data: bytes, forms: Mapping[int, Form]) -> bytes | None:
    """A blob with nothing in it but the numbers that `read` uses; None where it is no payload of
    NCCL's."""
    found = _payload(data, forms)
    if found is None:
        return None
    number, payload = found
    kept = bytearray(len(payload))
    for name, kind, offset in forms[number]:
        end = offset + struct.calcsize(kind)
        if name in _USED and offset >= 0 and end <= len(payload):
            kept[offset:end] = payload[offset:end]
    return _HEADER.pack(0, number, len(kept), _HEADER.size) + kept


def _payload(data: bytes, forms: Mapping[int, Form]) -> tuple[int, bytes] | None:
    """The schema of a blob, one of `forms`, and its payload."""
    if len(data) < _HEADER.size:
        return None
    _, number, size, offset = _HEADER.unpack_from(data)
    if number not in forms or offset + size > len(data):
        return None
    return number, data[offset : offset + size]


def _values(form: Form, payload: bytes) -> dict[str, int]:
    values = {}
    for name, kind, offset in form:
        if 0 <= offset <= len(payload) - struct.calcsize(kind):
            values[name] = int(struct.unpack_from(kind, payload, offset)[0])
    return values
