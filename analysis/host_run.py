"""The host block of a side of a run, from the side's capture by nsys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..core.errors import InputError
from . import host_side, host_verdict, launch
from .readers import nsys_host
from .readers.nsys_host import CUDA, SYSTEM, Host
from .report.view import HostSide

# What nsys calls the sources of the tables.
_TRACES = {CUDA: "cuda", SYSTEM: "osrt", "cuDNN": "cudnn", "cuBLAS": "cublas"}
_OPTION = "--trace="


def read(path: Path, meta: Mapping[str, Any]) -> Host | None:
    """The host's calls of a capture; null where the file is no export of nsys in SQLite.

    `meta`: the capture's meta.json. Its `command` tells what was traced, and so why a table is
    missing.
    """
    if path.suffix != ".sqlite" or not path.exists():
        return None
    try:
        return explained(nsys_host.read(path), meta.get("command"))
    except InputError:
        return None  # who reads the operations says what is wrong with the file


def explained(host: Host, command: Any) -> Host:
    """The same, with reasons made exact by the command that made the capture."""
    words = command if isinstance(command, (list, tuple)) else ()
    asked = next((w for w in words if isinstance(w, str) and w.startswith(_OPTION)), None)
    if asked is None:
        return host
    traced = asked.removeprefix(_OPTION).split(",")
    why = {
        kind: f"traced, and no call into {kind} was seen"
        if _TRACES[kind] in traced
        else f"not traced ({asked})"
        for kind in host.missing
    }
    return replace(host, missing=why)


def block(
    host: Host | None,
    ops: pa.Table,
    latency: Sequence[int],
    queued: Sequence[int] = (),
    *,
    cuda_graph: bool = False,
) -> HostSide | None:
    """The block of the operations `ops` of a capture; `latency` and `queued` without nsys, in ns.

    Null without a capture, or where its launches cannot be told.
    """
    measured = None if host is None else host_side.measure(ops, host)
    if measured is None:
        return None
    bound = launch.bound(latency, queued)
    return host_verdict.describe(measured, bound, latency, cuda_graph=cuda_graph)
