"""Which place in inductor's generated code a call is, by the range around it.

With ``cpp.enable_kernel_profile`` a package opens a range around every kernel and extern call,
under the name that it has in the code; a kernel of the CPU with ``graph_0_`` before it, one of
Triton with ``kernels_.`` (torch/_inductor/codegen/cpp.py, cpp_wrapper_gpu.py; torch 2.11 to 2.13).
The code runs from top to bottom, so the calls of one name come in the order of their places.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from .inductor_provenance import called

_BEFORE = re.compile(r"^(graph_\d+_|kernels_\.)")


def call_of(name: str) -> str:
    """What a range of this name is a call of (`inductor_provenance.called`)."""
    return called(_BEFORE.sub("", name))


def places(ranges: Sequence[str], layers: Sequence[str]) -> list[int | None]:
    """Of each range on the host in one run of the code, in order, the number of its layer.

    `layers` are ``NAME:PLACE``, in order. None for a range that is no call of theirs, and for all
    calls of a name that was called another number of times than it has places: a branch was taken
    or ranges were lost, and which call is at which place is not known.
    """
    of_name: dict[str, list[int]] = {}
    for number, layer in enumerate(layers):
        of_name.setdefault(called(layer.rpartition(":")[0]), []).append(number)
    calls: dict[str, list[int]] = {}
    for index, name in enumerate(ranges):
        calls.setdefault(call_of(name), []).append(index)
    found: list[int | None] = [None] * len(ranges)
    for name, members in calls.items():
        candidates = of_name.get(name, [])
        if len(members) == len(candidates):
            for index, number in zip(members, candidates, strict=True):
                found[index] = number
    return found
