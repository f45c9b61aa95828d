"""Makes tests/data/h100_tiny from a run directory: what analysis needs of two captures, no more.

    python tests/data/make_h100_tiny.py RUN

RUN is a two-layer GPT-2 (64 wide, batch 1, sequence 64, vocabulary 512) that was exported, built in
fp32 and fp16 with TensorRT 8.6 and captured under nsys 2025.3 on an H100:

    layerline export --run RUN --model tiny --batch 1 --seq 64 --precision fp32,fp16
    layerline engines --run RUN --backend tensorrt --precision fp32,fp16
    layerline profile --run RUN --backend tensorrt --precision fp32,fp16

Kept of an nsys export: kernels, the calls that launched them, NVTX ranges, the strings that these
use, and what the GPU is. Left out: environment, host, users, processes, threads, addresses, ids.
"""

from __future__ import annotations

import gzip
import json
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "h100_tiny"
TABLES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
# Columns that hold the number of a string.
STRINGS = ("demangledName", "shortName", "mangledName", "nameId", "textId", "jsonTextId")
GPU = ("id", "name", "smCount", "clockRate", "memoryBandwidth", "totalMemory", "computeMajor",
       "computeMinor")  # fmt: skip
PROCESS = 1000  # instead of the real one


def _renumbered(name: str, value: Any) -> Any:
    """globalTid and globalPid (hardware, VM, process, thread) of another process and thread."""
    if value is None or name not in ("globalTid", "globalPid", "endGlobalTid"):
        return value
    return (1 << 48) | (PROCESS << 24) | (PROCESS if name != "globalPid" else 0)


def strip(capture: Path, out: Path) -> None:
    """Write the SQL of a stripped copy of an nsys export, compressed."""
    source, made = sqlite3.connect(capture), sqlite3.connect(":memory:")
    used: set[int] = set()
    for table in TABLES:
        columns = [r[1] for r in source.execute(f'PRAGMA table_info("{table}")')]
        rows = source.execute(f'SELECT * FROM "{table}" ORDER BY start').fetchall()
        kept = [c for c, *vs in zip(columns, *rows, strict=True) if any(v is not None for v in vs)]
        made.execute(f'CREATE TABLE "{table}" ({", ".join(f"{c!r}" for c in kept)})')
        for row in rows:
            entry = {c: _renumbered(c, v) for c, v in zip(columns, row, strict=True)}
            used |= {entry[c] for c in STRINGS if c in entry and entry[c] is not None}
            marks = ", ".join("?" * len(kept))
            made.execute(f'INSERT INTO "{table}" VALUES ({marks})', [entry[c] for c in kept])
    made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    strings = source.execute("SELECT id, value FROM StringIds ORDER BY id")
    made.executemany("INSERT INTO StringIds VALUES (?, ?)", (r for r in strings if r[0] in used))
    names = ", ".join(GPU)
    made.execute(f"CREATE TABLE TARGET_INFO_GPU ({names})")
    gpus = source.execute(f"SELECT {names} FROM TARGET_INFO_GPU").fetchall()
    made.executemany(f"INSERT INTO TARGET_INFO_GPU VALUES ({', '.join('?' * len(GPU))})", gpus)
    made.commit()
    out.write_bytes(gzip.compress("\n".join(made.iterdump()).encode(), 9, mtime=0))


def facts(path: Path) -> Any:
    """A small JSON file without the machine and the names of steps."""
    found = json.loads(path.read_text())
    return {k: v for k, v in found.items() if k not in ("machine", "command", "plan")}


def main(run: Path) -> None:
    """Make the folder anew."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    compressed: dict[str, Any] = {
        "nodes": json.loads((run / "export/fp32.nodes.json").read_text()),
        "model": json.loads((run / "export/model.json").read_text()),
    }
    compressed["model"] = {
        k: compressed["model"].get(k)
        for k in ("model", "class", "weights", "batch", "seq", "attention", "seed", "modules")
    }
    for precision in ("fp32", "fp16"):
        name = f"{precision}.tensorrt"
        strip(run / f"captures/{name}.sqlite", OUT / f"{precision}.sql.gz")
        compressed[precision] = {
            "network": json.loads((run / f"engines/{name}.network.json").read_text()),
            "build": facts(run / f"engines/{name}.build.json"),
            "trace": facts(run / f"captures/{name}.trace.meta.json"),
            "latency": facts(run / f"captures/{name}.latency.json"),
        }
    text = json.dumps(compressed, separators=(",", ":")).encode()
    (OUT / "run.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
