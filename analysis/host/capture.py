"""The host block of a side of a run, from the side's capture by nsys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from ...core.errors import InputError
from ..model.comparison import HostSide
from ..readers.nsys import diagnostics
from ..readers.nsys import host as host_
from ..readers.nsys.host import CUDA, LIBRARIES, SYSTEM, Host
from . import calls, launch_bound

# What nsys calls the sources of the tables.
_TRACES = {CUDA: "cuda", SYSTEM: "osrt", "cuDNN": "cudnn", "cuBLAS": "cublas"}
_OPTION = "--trace="
# What nsys calls them in its messages, where that is another name.
_SPOKEN = {SYSTEM: "OS runtime"}


def read(path: Path, command: Sequence[str]) -> Host | None:
    """The host's calls of a capture; None where the file is no export of nsys in SQLite.

    `command`: what made the capture. It has what was traced, and so why a table is missing.
    """
    if path.suffix != ".sqlite" or not path.exists():
        return None
    try:
        return explained(host_.read(path), command)
    except InputError:
        return None  # who reads the operations says what is wrong with the file


def explained(host: Host, command: Sequence[str]) -> Host:
    """The same with exact reasons: from the command that made the capture, and from what nsys says
    that it could not trace. Its silence proves nothing: of cuBLAS it never says so."""
    asked = next((w for w in command if w.startswith(_OPTION)), None)
    traced = None if asked is None else asked.removeprefix(_OPTION).split(",")
    why = dict(host.missing)
    for kind in why:
        refused = diagnostics.refusal(_SPOKEN.get(kind, kind), host.diagnostics)
        if traced is not None and _TRACES[kind] not in traced:
            why[kind] = f"not traced ({asked})"
        elif refused:
            why[kind] = f"nsys could not trace it ({refused[1]})"
        elif traced is not None:
            what = "the system" if kind == SYSTEM else kind
            why[kind] = (
                f"asked for; nsys recorded no call into {what} and does not say whether it could"
            )
    return replace(host, missing=why)


def warned(host: Host | None) -> list[str]:
    """What nsys says that the capture lost, and its errors, as sentences without their full stops.

    A message that is a reason in `missing` is left out. One that says that a library could not be
    traced stays where calls of it were recorded all the same: nsys speaks of each copy of a library
    that is loaded.
    """
    if host is None:
        return []
    refused = {kind: diagnostics.refusal(kind, host.diagnostics) for kind in LIBRARIES}
    reasons = {refusal[0] for kind, refusal in refused.items() if refusal and kind in host.missing}
    partly = {refusal[0] for kind, refusal in refused.items() if refusal and kind in host.calls}
    doubts = [d for d in host.diagnostics if d in partly or (d.lossy and d not in reasons)]
    return diagnostics.sentences(doubts)


def block(
    host: Host | None,
    ops: pa.Table,
    latency: Sequence[int],
    queued: Sequence[int] = (),
    pieces: Sequence[int] = (),
) -> HostSide | None:
    """The block of the operations `ops` of a capture; `latency` and `queued` without nsys, in ns;
    `pieces` as of `calls.measure`.

    None without a capture, or where its launches are not known.
    """
    measured = None if host is None else calls.measure(ops, host, pieces)
    if host is None or measured is None:
        return None
    bound = launch_bound.bound(latency, queued)
    return replace(launch_bound.describe(measured, bound, latency), tool=host.tool)
