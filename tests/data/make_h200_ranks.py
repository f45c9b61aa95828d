"""Cut what two ranks did out of their captures of H200s, and work it out without Layerline.

    python make_h200_ranks.py EXCHANGE FSDP h200_ranks

Both are folders of captures of `docs/results/measure_ranks.sh` after `layerline scrub`: sequence
parallel in bf16 (profiler traces, and nsys exports with blobs), the tiny Llama under FSDP (traces,
of which one step is kept). Then of each folder and tool, as CSV:

- `steps`: what each step of each rank consists of, ns. The step is cut at every moment at which
  anything begins or ends, and of each piece it is asked what runs in it.
- `collectives`: the k-th of a rank is the k-th of the other; a rank waits until the last one
  begins, from then on it is transfer; the bus bandwidth by nccl-tests' formula.
- `kernels`: how often each ran and how long, and of that what ran beside no kernel of NCCL.

Kernels of NCCL are told by their names. The clock of rank 1 is ahead of rank 0's by the median of
the distances at which both end the same collective; half of it is taken off either.
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import statistics
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd

RANKS = (0, 1)
HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver", "fwdbwd")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
STEP = "layerline/iteration/"
OPERATIONS = {
    "AllGather": "all-gather",
    "ReduceScatter": "reduce-scatter",
    "AllReduce": "all-reduce",
}
BYTES = {"BFloat16": 2, "Float": 4}
# Of the arguments of a host's event nothing else is read; those of NCCL's stay whole.
ARGS = (
    "External id",
    "correlation",
    "Sequence number",
    "Fwd thread id",
    "stream",
    "device",
    "grid",
)
# Of nsys, with the columns that lead to strings.
TABLES = (
    "StringIds", "NVTX_EVENTS", "NVTX_PAYLOAD_SCHEMA_ENTRIES", "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_MEMCPY",
    "TARGET_INFO_GPU", "TARGET_INFO_SESSION_START_TIME",
)  # fmt: skip
STRINGS = ("demangledName", "shortName", "mangledName", "nameId", "textId")
META = ("precision", "workload", "gpu", "torch", "sequence", "hidden", "rank", "ranks", "model")


# --- excerpts -------------------------------------------------------------------------------------


def cut(trace: dict[str, Any], step: int | None) -> dict[str, Any]:
    """The trace with what this step's host did and launched; all of it for None."""
    events = [e for e in trace["traceEvents"] if e.get("ph") in ("X", "M", "s", "f")]
    if step is not None:
        marks = {e["name"]: e for e in events if e.get("cat") == "user_annotation"}
        low, after = marks[f"{STEP}{step}"]["ts"], marks.get(f"{STEP}{step + 1}")
        high = after["ts"] if after else float("inf")
        on_host = [e for e in events if e.get("cat") in HOST and low <= e["ts"] < high]
        launched = {e.get("args", {}).get("correlation") for e in on_host} - {None}
        events = on_host + [
            e for e in events if e.get("cat") in DEVICE and e["args"]["correlation"] in launched
        ]
    kept = []
    for e in events:
        if e.get("cat") in (*HOST, *DEVICE):
            whole = "nccl" in e["name"] or e["name"] == "record_param_comms"
            args = {k: v for k, v in e.get("args", {}).items() if whole or k in ARGS}
            kept.append({**e, "args": args} if args else {k: e[k] for k in e if k != "args"})
    head = ("schemaVersion", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit")
    return {k: trace[k] for k in head} | {"traceEvents": kept}


def sql(path: Path) -> str:
    """The SQL of an nsys export with the tables that are read, and the strings that these use."""
    db = sqlite3.connect(":memory:")
    with sqlite3.connect(path) as source:
        source.backup(db)
    there = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
    used = []
    for table in there:
        if table not in TABLES:
            db.execute(f'drop table "{table}"')
            continue
        columns = [row[1] for row in db.execute(f'pragma table_info("{table}")')]
        used += [f"select ifnull({c}, 0) from {table}" for c in columns if c in STRINGS]
    db.execute(f"delete from StringIds where id not in ({' union '.join(used)})")
    db.commit()
    return "\n".join(db.iterdump())


def excerpts(captures: Path, to: Path, step: int | None) -> None:
    """The captures of both ranks, without what nothing reads."""
    to.mkdir(parents=True, exist_ok=True)
    for path in sorted(captures.iterdir()):
        if path.name.endswith(".trace.json.gz"):
            trace = cut(json.loads(gzip.decompress(path.read_bytes())), step)
            pack(json.dumps(trace, separators=(",", ":")), to / path.name)
        elif path.suffix == ".sqlite":
            pack(sql(path), to / f"{path.stem}.sql.gz")
        elif path.name.endswith(".meta.json") and ".nsys." not in path.name:
            meta = json.loads(path.read_text())
            kept = {k: meta[k] for k in META if k in meta}
            if parts := meta.get("parts"):  # the program's own clock
                kept["seconds"] = {k: v for k, v in parts.get("seconds", {}).items() if k != "loop"}
            (to / path.name).write_text(json.dumps(kept, indent=1) + "\n")


def pack(text: str, to: Path) -> None:
    to.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


# --- what a capture holds -------------------------------------------------------------------------


@dataclass
class Operation:
    """On the device, ns of the rank's own clock; `called`: when the host launched it."""

    start: int
    end: int
    kind: str  # compute, communication, copy
    name: str
    called: int
    operation: str = ""
    bytes: int = 0
    latest: int = 0  # when the last rank began it, on this rank's clock


@dataclass
class Rank:
    operations: list[Operation] = field(default_factory=list)
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def collectives(self) -> list[Operation]:
        found = [o for o in self.operations if o.kind == "communication"]
        return sorted(found, key=lambda o: o.called)

    def done(self, moment: int) -> int:
        """When all had ended that was launched before."""
        return max([moment, *(o.end for o in self.operations if o.called < moment)])

    @property
    def steps(self) -> dict[int, tuple[int, int]]:
        """From where the range has begun and what came before has ended, to the next one."""
        begins = {n: self.done(low) for n, (low, _) in sorted(self.ranges.items())}
        return {
            n: (low, begins.get(n + 1, self.done(self.ranges[n][1]))) for n, low in begins.items()
        }


def of_trace(path: Path) -> Rank:
    """A profiler trace. Its microseconds have three decimals: as decimals they are exact."""
    trace = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    base, rank, calls = trace["baseTimeNanoseconds"], Rank(), {}

    def moments(e: dict[str, Any]) -> tuple[int, int]:
        return base + int(e["ts"] * 1000), base + int((e["ts"] + e["dur"]) * 1000)

    for e in trace["traceEvents"]:
        if e.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in e["args"]:
            calls[e["args"]["correlation"]] = moments(e)[0]
        elif e.get("cat") == "user_annotation" and e["name"].startswith(STEP):
            rank.ranges[int(e["name"].removeprefix(STEP))] = moments(e)
    for e in trace["traceEvents"]:
        if e.get("cat") not in DEVICE:
            continue
        args, kind = e["args"], "compute" if e["cat"] == "kernel" else "copy"
        made = Operation(*moments(e), kind, e["name"], calls[args["correlation"]])
        if kind == "compute" and e["name"].startswith("nccl"):
            made.kind, made.operation = "communication", nccl_operation(e["name"])
            given = args["In msg nelems"], args["Out msg nelems"]
            made.bytes = min(given) * BYTES[args["dtype"]]
        rank.operations.append(made)
    return rank


def nccl_operation(kernel: str) -> str:
    return next(word for part, word in OPERATIONS.items() if f"_{part}_" in kernel)


def of_nsys(path: Path) -> Rank:
    """An nsys export, as SQL. NCCL's payload: 32 bytes of header, the communicator, the bytes."""
    db = sqlite3.connect(":memory:")
    db.executescript(gzip.decompress(path.read_bytes()).decode())
    rank = Rank()
    for text, low, high in db.execute("select text, start, end from NVTX_EVENTS where text glob ?",
                                      (f"{STEP}*",)):  # fmt: skip
        rank.ranges[int(text.removeprefix(STEP))] = low, high
    kernels = (
        "select k.start, k.end, s.value, r.start, r.globalTid from CUPTI_ACTIVITY_KIND_KERNEL k "
        "join StringIds s on s.id = k.demangledName "
        "join CUPTI_ACTIVITY_KIND_RUNTIME r on r.correlationId = k.correlationId"
    )
    payload = (
        "select binaryData from NVTX_EVENTS where length(binaryData) > 32 and start <= ?1 "
        "and end >= ?1 and globalTid = ?2"
    )
    for start, end, name, called, thread in db.execute(kernels).fetchall():
        made = Operation(start, end, "compute", name, called)
        if name.startswith("nccl"):
            made.kind, made.operation = "communication", nccl_operation(name)
            ((data,),) = db.execute(payload, (called, thread)).fetchall()
            made.bytes = int.from_bytes(data[40:48], "little")
        rank.operations.append(made)
    for table in ("MEMSET", "MEMCPY"):
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        if db.execute("select 1 from sqlite_master where name = ?", (name,)).fetchone():
            rank.operations += [
                Operation(start, end, "copy", table, called)
                for start, end, called in db.execute(
                    f"select m.start, m.end, r.start from {name} m join "
                    "CUPTI_ACTIVITY_KIND_RUNTIME r on r.correlationId = m.correlationId"
                )
            ]
    return rank


# --- what follows from it -------------------------------------------------------------------------


def tables(ranks: dict[int, Rank]) -> dict[str, pd.DataFrame]:
    """Steps, collectives and kernels of two ranks."""
    first, second = (ranks[r].collectives for r in RANKS)
    assert [(o.operation, o.bytes) for o in first] == [(o.operation, o.bytes) for o in second]
    ahead = statistics.median(b.end - a.end for a, b in zip(first, second, strict=True))
    clock = {0: round(-ahead / 2), 1: round(ahead / 2)}
    rows = []
    for k, pair in enumerate(zip(first, second, strict=True)):
        starts = [o.start - clock[r] for r, o in enumerate(pair)]
        latest = max(starts)
        transfer = statistics.fmean(o.end - clock[r] - latest for r, o in enumerate(pair))
        for r, o in enumerate(pair):
            o.latest = latest + clock[r]
            # All ranks have S: of all-gather and reduce-scatter that is every rank's part.
            size = o.bytes * (1 if o.operation == "all-reduce" else len(RANKS))
            factor = (len(RANKS) - 1) / len(RANKS) * (2 if o.operation == "all-reduce" else 1)
            rows.append(
                {
                    "rank": r, "number": k, "operation": o.operation, "bytes": o.bytes,
                    "duration_ns": o.end - o.start, "wait_ns": latest - starts[r],
                    "transfer_ns": round(transfer), "late_rank": starts.index(latest),
                    "exposed_ns": exposed(ranks[r], o), "bus_gb_s": size * factor / transfer,
                }
            )  # fmt: skip
    steps = [
        {"rank": r, "step": n, "duration_ns": high - low, **parts(rank, low, high)}
        for r, rank in ranks.items()
        for n, (low, high) in rank.steps.items()
    ]
    return {
        "collectives": pd.DataFrame(rows),
        "steps": pd.DataFrame(steps),
        "kernels": pd.concat(kernels(r, rank) for r, rank in ranks.items()),
    }


def exposed(rank: Rank, of: Operation) -> int:
    """For how long nothing was computed while it ran."""
    near = [o for o in rank.operations if o.kind == "compute" and overlap(o, of)]
    points = sorted({of.start, of.end, *(min(max(p, of.start), of.end) for o in near
                                         for p in (o.start, o.end))})  # fmt: skip
    return sum(
        b - a for a, b in pairwise(points) if not any(o.start <= a and b <= o.end for o in near)
    )


def parts(rank: Rank, low: int, high: int) -> dict[str, int]:
    """What every piece of a step is, added up."""
    told = dict.fromkeys(
        ("compute", "transfer", "wait", "copy", "idle_host", "idle_dependency", "idle_launch"), 0
    )
    moments = {p for o in rank.operations for p in (o.start, o.end, o.called, o.latest)}
    points = sorted({low, high, *(p for p in moments if low < p < high)})
    for a, b in pairwise(points):
        runs = [o for o in rank.operations if o.start <= a and b <= o.end]
        kinds = {o.kind for o in runs}
        if "compute" in kinds:
            part = "compute"
        elif "communication" in kinds:
            moves = any(o.latest <= a for o in runs if o.kind == "communication")
            part = "transfer" if moves else "wait"
        elif "copy" in kinds:
            part = "copy"
        else:
            part = idle(rank, a)
        told[part] += b - a
    return {f"{name}_ns": ns for name, ns in told.items()}


def idle(rank: Rank, moment: int) -> str:
    """Why nothing runs at a moment: by when the host launched what runs next."""
    coming = [o for o in rank.operations if o.start > moment]
    if not coming:
        return "idle_host"
    after = min(coming, key=lambda o: (o.start, o.called))
    since = max((o.end for o in rank.operations if o.end <= moment), default=None)
    if since is not None and after.called <= since:
        return "idle_dependency"
    return "idle_host" if moment < after.called else "idle_launch"


def overlap(a: Operation, b: Operation) -> bool:
    return a.start < b.end and b.start < a.end


def kernels(number: int, rank: Rank) -> pd.DataFrame:
    """Of each kernel that computes: calls and time, and those beside no kernel of NCCL."""
    of_nccl = rank.collectives
    rows = [
        {
            "rank": number,
            "name": short(o.name),
            "ns": o.end - o.start,
            "alone": not any(overlap(o, c) for c in of_nccl),
        }
        for o in rank.operations
        if o.kind == "compute"
    ]
    every = pd.DataFrame(rows)
    every["alone_ns"] = every["ns"].where(every["alone"], 0)
    return (
        every.groupby(["rank", "name"])
        .agg(calls=("ns", "size"), ns=("ns", "sum"), alone=("alone", "sum"),
             alone_ns=("alone_ns", "sum"))
        .reset_index()
    )  # fmt: skip


def short(name: str) -> str:
    """The function's name without its return type, namespaces, template and arguments."""
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    return re.split(r"[<(]", name, maxsplit=1)[0].rsplit("::", 1)[-1]


def main(exchange: Path, fsdp: Path, to: Path) -> None:
    excerpts(exchange, to / "exchange", None)
    excerpts(fsdp, to / "fsdp", 1)
    for folder, tool, ending, read in (
        ("exchange", "torch", "trace.json.gz", of_trace),
        ("exchange", "nsys", "sql.gz", of_nsys),
        ("fsdp", "torch", "trace.json.gz", of_trace),
    ):
        paths = sorted((to / folder).glob(f"*.{ending}"))
        for name, table in tables(dict(enumerate(map(read, paths)))).items():
            table.to_csv(to / folder / f"{tool}.{name}.csv", index=False, float_format="%.3f")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
