"""One built engine under nsys: the kernels, and the names of the layers that launched them.

Leaves ``captures/{precision}.{backend}.nsys-rep``, ``.sqlite`` and ``.trace.meta.json``: how it
was taken, with the device-event latency of each captured iteration.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.files import write_json
from ...engines import launch
from .. import nsys
from .measure import SCHEMA_VERSION, Subject, identity

WARMUP = 10
# Ten have a 95 % interval of the median (six are the fewest), and more than that only swells the
# capture: each is held by device events against the span of its kernels.
ITERATIONS = 10


def suffixes(of: Subject) -> list[str]:
    """What a capture of this engine leaves; some backends write a file of their own beside it."""
    own = of.backend.trace_suffix
    return [".nsys-rep", ".trace.meta.json", *([own] if own else [])]


def job(of: Subject, iterations: int) -> dict[str, Any]:
    """The worker's job."""
    own = of.backend.trace_suffix
    raw = of.capture(own) if own else None
    return of.job("trace", raw, launch.exactly(iterations, WARMUP))


def keep(of: Subject, answer: Mapping[str, Any], report: Path) -> dict[str, Any]:
    """Write the report of a capture, and how it was taken; gives facts for the manifest."""
    nsys.keep(report, of.capture(".nsys-rep"))
    document = {
        "schema_version": SCHEMA_VERSION,
        "source": of.capture(".sqlite").name,
        **identity(of),
        "engine": of.engine.name,
        "latency_ns": answer["latency_ns"],
        "host_ns": answer.get("host_ns", []),
        "warmup": WARMUP,
        "command": answer["command"],
        "machine": answer["machine"],
        "facts": answer.get("facts", {}),
    }
    write_json(of.capture(".trace.meta.json"), document)
    return {"iterations": len(answer["latency_ns"]), "capture_seconds": answer["seconds"]}


def export(of: Subject) -> dict[str, Any]:
    """Export the report. InputError."""
    nsys.export(of.capture(".nsys-rep"), of.capture(".sqlite"))
    return {}
