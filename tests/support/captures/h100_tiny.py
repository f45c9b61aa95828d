"""The run directory of a two-layer GPT-2 as the GPU machine left it, without the eager side."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

import paths

from layerline.core.files import write_json
from layerline.core.run import Run

DATA = paths.DATA / "h100_tiny"
PRECISIONS = ("fp32", "fp16")


def document() -> Any:
    return json.loads(gzip.decompress((DATA / "run.json.gz").read_bytes()))


def write_run(folder: Path) -> Run:
    """The whole run directory, in `folder`."""
    made, found = Run(folder), document()
    write_json(made.file("export", "nodes.json"), found["nodes"])
    write_json(made.file("export", "fp32.nodes.json"), found["nodes"])
    write_json(made.file("export", "model.json"), found["model"])
    write_json(made.file("manifests", "version.json"), {"schema_version": 1})
    for precision in PRECISIONS:
        name, of = f"{precision}.tensorrt", found[precision]
        whole = {"name": "{ForeignNode[transformer.wte.weight...lm_head/MatMul]}"}
        write_json(made.file("engines", f"{name}.layers.json"), {"layers": [whole]})
        write_json(made.file("engines", f"{name}.network.json"), of["network"])
        write_json(made.file("engines", f"{name}.build.json"), of["build"])
        write_json(made.file("captures", f"{name}.trace.meta.json"), of["trace"])
        write_json(made.file("captures", f"{name}.latency.json"), of["latency"])
        database = sqlite3.connect(made.file("captures", f"{name}.sqlite"))
        database.executescript(
            gzip.decompress((DATA / f"{precision}.sql.gz").read_bytes()).decode()
        )
        database.commit()
        database.close()
    return made
