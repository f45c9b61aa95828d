"""What a profiler trace says of one communication: the operation, its group, its size.

NCCL's arguments stand on ``record_param_comms`` and are copied to the kernels that it launched
(torch/csrc/distributed/c10d/ParamCommsUtils.hpp; libkineto's output_json.cpp); traces of gloo, and
old ones, have names and shapes of operators only (``c10d::allreduce_``, ``gloo:all_reduce``).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

RECORD = "record_param_comms"
# Ranges and operators that are communication by their own name.
NAMED = re.compile(r"record_param_comms$|c10d::|gloo:|nccl:|_c10d_functional::")
# Kernels that are communication by name, where no record leads to them.
KERNELS = re.compile(r"^(void )?(nccl|ncclx)|nccl(Dev)?Kernel|nvshmem|deep_ep|deepep|msccl", re.I)

# Bytes of an element, by the names of `toString(ScalarType)` and of C++ types, lower case.
_SIZES = {
    "byte": 1, "char": 1, "bool": 1, "unsigned char": 1, "signed char": 1, "half": 2, "bfloat16": 2,
    "short": 2, "short int": 2, "c10::half": 2, "c10::bfloat16": 2, "int": 4, "float": 4,
    "uint32": 4, "uint16": 2, "uint64": 8, "long": 8, "long int": 8, "double": 8,
    "complexfloat": 8, "complexdouble": 16, "c10::complex<float>": 8, "c10::complex<double>": 16,
}  # fmt: skip
# Of operations: the spelling of torch (allreduce, _allgather_base, all_gather_into_tensor_coalesced
# ...), of NCCL (AllReduce) and of gloo, without what is no letter, in the order of looking.
_OPERATIONS = (
    ("allreduce", "all-reduce"), ("allgather", "all-gather"), ("reducescatter", "reduce-scatter"),
    ("alltoall", "all-to-all"), ("broadcast", "broadcast"), ("barrier", "barrier"),
    ("sendrecv", "send-recv"), ("send", "send"), ("recv", "recv"), ("scatter", "scatter"),
    ("gather", "gather"), ("reduce", "reduce"), ("coalesced", "coalesced"),
)  # fmt: skip


@dataclass(frozen=True)
class Arguments:
    """Arguments of a communication; None where the trace has none.

    `ranks`: of the group, all of them or None. `elements_in`, `elements_out`: of this rank.
    `source`, `target`: the peer, a number within the group. `dims`: of the inputs, an empty list
    for what is no tensor. `types`: their types. `inputs`: plain values of them, as text.
    """

    operation: str | None = None
    group: str | None = None
    group_about: str | None = None
    ranks: tuple[int, ...] | None = None
    group_size: int | None = None
    elements_in: int | None = None
    elements_out: int | None = None
    dtype: str | None = None
    source: int | None = None
    target: int | None = None
    dims: tuple[Any, ...] = ()
    types: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def is_named(name: str) -> bool:
    """Whether an operator or range of this name is communication."""
    return NAMED.match(name) is not None


def operation_of(name: str) -> str:
    """The operation that is meant by a name; the name itself where none is known."""
    letters = re.sub(r"[^a-z]", "", name.lower())
    return next((told for part, told in _OPERATIONS if part in letters), name)


def parse(texts: tuple[bytes, ...]) -> Arguments:
    """The arguments in these texts, in the order of `chunks.COMMUNICATION`."""
    values = [_value(text) for text in texts]
    name, group, about, ranks, size, start, stride, inside, outside, dtype = values[:10]
    source, target, dims, types, inputs = values[10:]
    count = _int(size)
    return Arguments(
        operation=_text(name),
        group=_text(group),
        group_about=_text(about),
        ranks=_ranks(ranks, count, _int(start), _int(stride)),
        group_size=count,
        elements_in=_int(inside),
        elements_out=_int(outside),
        dtype=_text(dtype),
        source=_int(source),
        target=_int(target),
        dims=tuple(dims) if isinstance(dims, list) else (),
        types=tuple(map(str, types)) if isinstance(types, list) else (),
        inputs=tuple(map(str, inputs)) if isinstance(inputs, list) else (),
    )


def element_bytes(dtype: str | None) -> int | None:
    """Bytes of an element of this type; None where it is not known."""
    if dtype is None:
        return None
    lower = dtype.lower()
    return 1 if "float8" in lower else _SIZES.get(lower)


def elements(dims: Any) -> int | None:
    """Elements of a tensor, or of all tensors of a list, of these dimensions; None without any."""
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(d, int) for d in dims):
        return math.prod(dims)
    parts = [elements(d) for d in dims]
    known = [p for p in parts if p is not None]
    return sum(known) if known else None


def _ranks(
    value: Any, size: int | None, start: int | None, stride: int | None
) -> tuple[int, ...] | None:
    """The ranks of the group; they are a text, cut off with ``...`` where they are many."""
    if isinstance(value, str) and "..." not in value:
        ranks = tuple(int(r) for r in re.findall(r"\d+", value))
        if ranks and size in (None, len(ranks)):
            return ranks
    if size is not None and start is not None and start >= 0 and stride is not None and stride > 0:
        return tuple(range(start, start + size * stride, stride))
    return None


def _value(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text) if text else None
    except msgspec.DecodeError:
        return None


def _text(value: Any) -> str | None:
    return value.encode(errors="replace").decode() if isinstance(value, str) and value else None


def _int(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        value = int(value)
    ok = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**62
    return value if ok else None
