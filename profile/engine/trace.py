"""One built engine under nsys: the kernels, and the names of the layers that launched them.

Leaves ``captures/{precision}.{backend}.nsys-rep``, ``.sqlite`` and ``.trace.meta.json``: how it
was taken, with the device-event latency of each captured iteration.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ...core import machine
from ...core.cli.progress import progress
from ...core.files import replacing, write_json
from ...engines import launch
from ...engines.backend import inputs_path
from .. import nsys
from .measure import SCHEMA_VERSION, SPARE_SECONDS, Subject, of_what

WARMUP = 10
SUFFIXES = (".nsys-rep", ".sqlite", ".trace.meta.json")


def suffixes(of: Subject) -> list[str]:
    """What a capture of this engine leaves; some backends write a file of their own beside it."""
    own = of.backend.trace_suffix
    return [*SUFFIXES, *([own] if own else [])]


def trace(of: Subject, iterations: int) -> dict[str, Any]:
    """Capture `iterations` inferences; gives facts for the manifest. LayerlineError on failure."""
    before = machine.state()
    of.run.file("captures").mkdir(parents=True, exist_ok=True)
    plan = {
        "warmup": WARMUP,
        "iterations": {"min": iterations, "max": iterations},
        "target": 1.0,
        "seconds": 60,
    }
    own = of.backend.trace_suffix
    job = launch.job(
        "trace",
        of.engine,
        inputs_path(of.run),
        of.precision,
        threads=of.threads,
        options=of.backend.job_options(of.run, of.precision),
        raw=of.capture(own) if own else None,
        plan=plan,
    )
    report = of.capture(".nsys-rep")
    with replacing(report) as made, tempfile.TemporaryDirectory(prefix="layerline-") as folder:
        stem = Path(folder, "capture")
        with progress(f"{of.precision} {of.backend.name} under nsys"):
            answer = launch.call(
                of.backend.worker(), job, prefix=nsys.prefix(stem), timeout=SPARE_SECONDS
            )
        written = stem.with_suffix(".nsys-rep")
        nsys.check(written, answer.get("said", ""))
        made.write_bytes(written.read_bytes())
    nsys.export(report, of.capture(".sqlite"))
    document = {
        "schema_version": SCHEMA_VERSION,
        "source": of.capture(".sqlite").name,
        **of_what(of),
        "engine": of.engine.name,
        "latency_ns": answer["latency_ns"],
        "host_ns": answer.get("host_ns", []),
        "warmup": WARMUP,
        "command": nsys.prefix(Path("NAME")),
        "machine": {"before": before, "after": machine.state()},
        "facts": answer.get("facts", {}),
    }
    write_json(of.capture(".trace.meta.json"), document)
    return {"iterations": iterations}
