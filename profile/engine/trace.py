"""One built engine under nsys: the kernels, and the names of the layers that launched them.

Leaves ``captures/{precision}.{backend}.nsys-rep``, ``.sqlite`` and ``.trace.meta.json``: how it
was taken, with the device-event latency of each captured iteration.
"""

from __future__ import annotations

from typing import Any

from ...core.files import write_json
from ...engines import launch
from .. import nsys
from .measure import SCHEMA_VERSION, SPARE_SECONDS, Subject, identity

WARMUP = 10
SUFFIXES = (".nsys-rep", ".sqlite", ".trace.meta.json")


def suffixes(of: Subject) -> list[str]:
    """What a capture of this engine leaves; some backends write a file of their own beside it."""
    own = of.backend.trace_suffix
    return [*SUFFIXES, *([own] if own else [])]


def job(of: Subject, iterations: int) -> dict[str, Any]:
    """The worker's job."""
    own = of.backend.trace_suffix
    raw = of.capture(own) if own else None
    return of.job("trace", raw, launch.exactly(iterations, WARMUP))


def trace(of: Subject, iterations: int) -> dict[str, Any]:
    """Capture `iterations` inferences; gives facts for the manifest. LayerlineError on failure."""
    answer = nsys.capture(
        of.backend.worker(),
        job(of, iterations),
        of.capture(".nsys-rep"),
        of.capture(".sqlite"),
        what=f"{of.precision} {of.backend.name}",
        timeout=SPARE_SECONDS,
    )
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
    return {"iterations": iterations}
