"""Makes tests/data/h100_onnxruntime and h100_large: excerpts of two captures, and what they cost.

    python tests/data/make_h100_engines.py ONNXRUNTIME_RUN LARGE_RUN

Both are run directories from one H100 after `layerline scrub` (docs/results/measure.sh): GPT-2 at
1x512 in fp16 with ONNX Runtime CUDA, GPT-2 large at 1x1024 in tf32 with TensorRT. Kept of an
nsys export: the first two inferences' kernels, sets and NVTX ranges, the calls that launched them
(of ONNX Runtime's also cuEventRecord, which joins the clocks), the strings that these use, what
the GPU is. Kept of ONNX Runtime's profile: one run before and the two, with operator and provider.

What every module costs is worked out here, in expected.json, by another way than Layerline's,
of which nothing is imported: the clocks are joined by the launches themselves (the distances at
which all of them lie in nodes), nodes without a module's name take their neighbours', ranges are
read by their texts.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sqlite3
import statistics
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ITERATIONS = 2
PROCESS = 1000  # instead of the real one
ACTIVITIES = ("CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMSET")
STRINGS = ("demangledName", "shortName", "nameId", "textId")
COLUMNS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "start end deviceId contextId streamId correlationId globalPid "
    "demangledName shortName",
    "CUPTI_ACTIVITY_KIND_MEMSET": "start end deviceId contextId streamId correlationId globalPid "
    "bytes",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start end eventClass globalTid correlationId nameId",
    "NVTX_EVENTS": "start end eventType rangeId category text globalTid textId domainId",
    "TARGET_INFO_GPU": "id name smCount clockRate memoryBandwidth totalMemory computeMajor "
    "computeMinor",
}
Operation = tuple[int, int, frozenset[str]]  # iteration, ns, modules


# --- excerpts -----------------------------------------------------------------------------------


class Capture:
    """Rows of an nsys export by table, and its strings."""

    def __init__(self, path: Path) -> None:
        self.database = sqlite3.connect(path)
        self.database.row_factory = sqlite3.Row
        self.strings = dict(self.database.execute("SELECT id, value FROM StringIds"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        there = {r[1] for r in self.database.execute(f'PRAGMA table_info("{table}")')}
        columns = ", ".join(f'"{c}"' for c in COLUMNS[table].split() if c in there)
        order = " ORDER BY start" if "start" in there else ""
        if not columns:
            return []
        return [dict(r) for r in self.database.execute(f'SELECT {columns} FROM "{table}"{order}')]

    def text(self, row: dict[str, Any]) -> str:
        return str(row.get("text") or self.strings.get(row.get("textId") or row.get("nameId"), ""))


def anonymous(row: dict[str, Any]) -> dict[str, Any]:
    """Another process and thread (globalTid and globalPid: hardware, VM, process, thread)."""
    made = dict(row)
    for key in ("globalTid", "globalPid"):
        if made.get(key) is not None:
            made[key] = (1 << 48) | (PROCESS << 24) | (PROCESS if key == "globalTid" else 0)
    return made


def write(capture: Capture, kept: dict[str, list[dict[str, Any]]], out: Path) -> None:
    """The SQL of an export with these rows, compressed."""
    made = sqlite3.connect(":memory:")
    used: set[int] = set()
    for table, rows in kept.items():
        if not rows:
            continue
        names = list(rows[0])
        made.execute(f'CREATE TABLE "{table}" ({", ".join(names)})')
        marks = ", ".join("?" * len(names))
        for row in map(anonymous, rows):
            used |= {row[c] for c in STRINGS if row.get(c) is not None}
            made.execute(f'INSERT INTO "{table}" VALUES ({marks})', [row[c] for c in names])
    made.execute("CREATE TABLE StringIds (id INTEGER, value TEXT)")
    made.executemany(
        "INSERT INTO StringIds VALUES (?, ?)", ((i, capture.strings[i]) for i in sorted(used))
    )
    made.commit()
    out.write_bytes(gzip.compress("\n".join(made.iterdump()).encode(), 9, mtime=0))


def pack(document: Any, out: Path) -> None:
    """Compressed JSON."""
    text = json.dumps(document, separators=(",", ":")).encode()
    out.write_bytes(gzip.compress(text, 9, mtime=0))


def launched(
    capture: Capture, lowest: int, highest: int
) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    """The operations launched in [lowest, highest] by table, and the calls that did it."""
    calls = {r["correlationId"]: r for r in capture.rows("CUPTI_ACTIVITY_KIND_RUNTIME")}
    kept: dict[str, list[dict[str, Any]]] = {}
    used: dict[int, dict[str, Any]] = {}
    for table in ACTIVITIES:
        kept[table] = [
            r
            for r in capture.rows(table)
            if lowest <= calls[r["correlationId"]]["start"] <= highest
        ]
        used |= {r["correlationId"]: calls[r["correlationId"]] for r in kept[table]}
    return kept, sorted(used.values(), key=lambda r: int(r["start"]))


def facts(meta: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What analysis uses of a trace.meta.json, of the iterations that are kept."""
    told = meta.get("facts", {})
    return {
        **{k: meta[k] for k in ("schema_version", "source", "precision", "backend", "engine")},
        "latency_ns": meta["latency_ns"][:ITERATIONS],
        "facts": {"queued": told["queued"], "clock": told["clock"], **more},
    }


# --- what it costs ------------------------------------------------------------------------------


def ancestors(module: str) -> set[str]:
    parts = module.split(".")
    return {".".join(parts[:i]) for i in range(1, len(parts) + 1)}


def costs(operations: Iterable[Operation]) -> dict[str, list[float]]:
    """Module -> median over iterations of [what is wholly inside, that and what is partly]."""
    own: dict[str, list[int]] = defaultdict(lambda: [0] * ITERATIONS)
    most: dict[str, list[int]] = defaultdict(lambda: [0] * ITERATIONS)
    for iteration, ns, modules in operations:
        around = [ancestors(m) for m in modules]
        for m in set.union(*around):
            most[m][iteration] += ns
            own[m][iteration] += ns if all(m in a for a in around) else 0
    return {m: [statistics.median(own[m]), statistics.median(most[m])] for m in sorted(most)}


def expected(operations: list[Operation], layers: dict[str, list[int]]) -> dict[str, Any]:
    totals = [sum(ns for i, ns, _ in operations if i == k) for k in range(ITERATIONS)]
    return {"totals_ns": totals, "modules": costs(operations), "layers": layers}


# --- ONNX Runtime CUDA --------------------------------------------------------------------------


def onnxruntime(run: Path, out: Path) -> None:
    name = "fp16.onnxruntime-cuda"
    capture = Capture(run / f"captures/{name}.sqlite")
    meta = json.loads((run / f"captures/{name}.trace.meta.json").read_text())
    events = json.loads((run / f"captures/{name}.trace.profile.json").read_text())
    runs = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: int(e["ts"]))
    first = meta["facts"]["runs_before"]
    chosen = runs[first - 1 : first + ITERATIONS]
    inside = [
        e
        for e in events
        if e["cat"] == "Node" and any(0 <= e["ts"] - r["ts"] <= r["dur"] for r in chosen)
    ]
    calls = [
        r
        for r in capture.rows("CUPTI_ACTIVITY_KIND_RUNTIME")
        if capture.text(r).startswith("cuEventRecord")
    ]
    readings = meta["facts"]["clock_readings"]
    half = len(readings) // 2
    recorded = [*calls[: half + 2 * ITERATIONS], *calls[-half:]]
    kept, launches = launched(capture, recorded[0]["start"], recorded[-half - 1]["start"])
    kept["CUPTI_ACTIVITY_KIND_RUNTIME"] = sorted(
        [*launches, *recorded], key=lambda r: int(r["start"])
    )
    kept["TARGET_INFO_GPU"] = capture.rows("TARGET_INFO_GPU")
    write(capture, kept, out / f"{name}.sql.gz")
    slim = [
        {
            **{k: e[k] for k in ("cat", "ph", "name", "ts", "dur")},
            "pid": PROCESS,
            "tid": PROCESS,
            "args": {k: v for k, v in e["args"].items() if k in ("op_name", "provider")},
        }
        for e in sorted([*chosen, *inside], key=lambda e: int(e["ts"]))
    ]
    pack(slim, out / f"{name}.trace.profile.json.gz")
    more = {
        "runs_before": 1,
        "clock_readings": readings,
        "profiling_start_ns": meta["facts"]["profiling_start_ns"],
    }
    (out / f"{name}.trace.meta.json").write_text(json.dumps(facts(meta, **more)) + "\n")
    layers = json.loads((run / f"engines/{name}.layers.json").read_text())
    pack(layers, out / f"{name}.layers.json.gz")
    pack(json.loads((run / "export/fp16.nodes.json").read_text()), out / "nodes.json.gz")
    nodes = [e for e in inside if e["ts"] >= chosen[1]["ts"]]
    pack(node_costs(kept, launches, nodes), out / "expected.json.gz")


def node_costs(
    kept: dict[str, list[dict[str, Any]]],
    launches: list[dict[str, Any]],
    nodes: list[dict[str, Any]],
) -> dict[str, Any]:
    """Every operation to the node around its launch, by the launches alone."""
    nodes = sorted(nodes, key=lambda e: int(e["ts"]))
    starts = [1_000 * e["ts"] for e in nodes]
    ends = [s + 1_000 * (e["dur"] + 1) for s, e in zip(starts, nodes, strict=True)]
    places = {r["correlationId"]: r["start"] for r in launches}

    def placed(ahead: int) -> list[int] | None:
        """The node of each launch for one distance of the clocks, if all lie in nodes."""
        found = [bisect_right(starts, at + ahead) - 1 for at in places.values()]
        inside = all(
            k >= 0 and at + ahead <= ends[k] for at, k in zip(places.values(), found, strict=True)
        )
        return found if inside else None

    # The first launch lies in one of the first nodes; every 250 ns is tried.
    begin = min(places.values())
    tried = range(starts[0] - begin, ends[9] - begin, 250)
    found = [p for p in map(placed, tried) if p is not None]
    if not found or any(p != found[0] for p in found):
        raise SystemExit("the launches alone do not tell their nodes")
    node_of = dict(zip(places, found[0], strict=True))
    count = len(nodes) // ITERATIONS
    modules = list(node_modules([e["name"].removesuffix("_kernel_time") for e in nodes[:count]]))
    layers: dict[str, list[int]] = defaultdict(lambda: [0] * ITERATIONS)
    operations = []
    for row in (r for table in ACTIVITIES for r in kept[table]):
        iteration, k = divmod(node_of[row["correlationId"]], count)
        ns = row["end"] - row["start"]
        operations.append((iteration, ns, modules[k]))
        layers[nodes[k]["name"].removesuffix("_kernel_time")][iteration] += ns
    return expected(operations, dict(sorted(layers.items())))


def node_modules(names: list[str]) -> Iterator[frozenset[str]]:
    """By its name, else by what ran before and after it."""
    named = [m and m[1] for m in (re.match(r"((?:transformer|lm_head)[\w.]*)/", n) for n in names)]
    for i, name in enumerate(names):
        before = next((m for m in reversed(named[:i]) if m), "")
        after = next((m for m in named[i + 1 :] if m), "")
        if named[i]:
            yield frozenset({str(named[i])})
        elif name.startswith("BiasSoftmax") and before == after and before.endswith(".attn"):
            yield frozenset({before})
        elif name.startswith("GPT2Gelu") and before.removesuffix(".c_fc") + ".c_proj" == after:
            yield frozenset({before.replace(".c_fc", ".act")})
        elif name == "SkipLayerNormalization" and after == "transformer":
            # The last sum and the normalisation behind it.
            yield frozenset({"transformer.h.11", "transformer.ln_f"})
        else:
            raise SystemExit(f"{name} between {before} and {after}")


# --- TensorRT -----------------------------------------------------------------------------------


def tensorrt(run: Path, out: Path) -> None:
    name = "tf32.tensorrt"
    capture = Capture(run / f"captures/{name}.sqlite")
    ranges = capture.rows("NVTX_EVENTS")
    enqueue = [r for r in ranges if capture.text(r) == "ExecutionContext::enqueue"][:ITERATIONS]
    lowest, highest = enqueue[0]["start"], enqueue[-1]["end"]
    kept, calls = launched(capture, lowest, highest)
    kept["CUPTI_ACTIVITY_KIND_RUNTIME"] = calls
    kept["NVTX_EVENTS"] = [r for r in ranges if r["end"] is None or lowest <= r["start"] <= highest]
    kept["TARGET_INFO_GPU"] = capture.rows("TARGET_INFO_GPU")
    write(capture, kept, out / f"{name}.sql.gz")
    meta = json.loads((run / f"captures/{name}.trace.meta.json").read_text())
    (out / f"{name}.trace.meta.json").write_text(json.dumps(facts(meta)) + "\n")
    pack(json.loads((run / "export/fp32.nodes.json").read_text()), out / "nodes.json.gz")
    at = {r["correlationId"]: r["start"] for r in calls}
    operations = []
    for iteration, whole in enumerate(enqueue):
        mine = sorted(
            (at[r["correlationId"]], r["end"] - r["start"])
            for table in ACTIVITIES
            for r in kept[table]
            if whole["start"] <= at[r["correlationId"]] <= whole["end"]
        )
        texts = [innermost(capture, kept["NVTX_EVENTS"], start) for start, _ in mine]
        found = list(range_modules(texts))
        operations += [(iteration, ns, m) for (_, ns), m in zip(mine, found, strict=True)]
    pack(expected(operations, {}), out / "expected.json.gz")


def innermost(capture: Capture, ranges: list[dict[str, Any]], moment: int) -> str:
    around = [r for r in ranges if r["end"] is not None and r["start"] <= moment <= r["end"]]
    return capture.text(min(around, key=lambda r: int(r["end"] - r["start"])))


def range_modules(texts: list[str]) -> Iterator[frozenset[str]]:
    """By the names in a range's text, else by the range before: what follows c_fc is its GELU,
    what follows ln_1 is c_attn."""
    before: frozenset[str] = frozenset()
    for text in texts:
        found = frozenset(map(spelled, re.findall(r"(?:^|\+| _ )(lm_head|transformer\w*)/", text)))
        if not found and text.startswith("gelu_"):
            found = frozenset(m.replace(".c_fc", ".act") for m in before)
        elif not found and text.startswith("fc__mye"):
            (ln,) = (m for m in before if m.endswith(".ln_1"))
            found = frozenset({ln.replace(".ln_1", ".attn.c_attn")})
        yield found
        before = found


def spelled(name: str) -> str:
    """transformer_h_3_attn_c_proj -> transformer.h.3.attn.c_proj"""
    name = re.sub(r"^transformer_h_(\d+)", r"transformer.h.\1", name)
    name = re.sub(r"^transformer_(wte|wpe|ln_f)$", r"transformer.\1", name)
    name = re.sub(r"(\.h\.\d+)_", r"\1.", name)
    return re.sub(r"\.(attn|mlp)_", r".\1.", name)


def main(small: Path, large: Path) -> None:
    """Make the folders anew."""
    for folder, make, run in (
        ("h100_onnxruntime", onnxruntime, small),
        ("h100_large", tensorrt, large),
    ):
        shutil.rmtree(HERE / folder, ignore_errors=True)
        (HERE / folder).mkdir()
        make(run, HERE / folder)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
