"""What must hold of a job's captures, rank by rank: "holds" or "FAILS", a line each; what nothing
can be held against is told without either.

    python tests/gpu/ranks_hold.py RUN

RUN is of `layerline train … --nproc N --profile torch,nsys`, explained by `layerline ranks RUN`.
Where two tools are compared, kernels of communication are left out, and calls that ran beside one:
both last as long as a peer is late, which differs from run to run. Exit status 1 where one fails.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from layerline.analysis.captures import rank_partials
from layerline.analysis.model.ranks import PARTS, RankCapture
from layerline.analysis.ranks import beside
from layerline.analysis.ranks.job import reduce
from layerline.core.kernel_names import function_name

WITHIN = 0.02
# Of planned memory: below it what libraries keep for themselves is not small.
LEAST_BYTES = 1e9
Claims = Iterator[tuple[bool | None, str]]  # None: nothing to hold it against
Kernel = tuple[str, str | None, str | None, str | None]  # name, grid, module, phase


def metas(run: Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """What each rank's run says of itself."""
    for path in sorted(run.glob("captures/*.meta.json")):
        yield path, json.loads(path.read_text())


def captured(run: Path, pattern: str) -> dict[int, RankCapture]:
    """The captures of a tool, by rank."""
    found = [c for p in sorted(run.glob(pattern)) for c in rank_partials.captures(p)]
    return {c.rank: c for c in found}


def by_module(capture: RankCapture) -> dict[str, float]:
    """Median over steps of the time of what a module computed, in ns; all of it as "all"."""
    steps = [i for i in capture.steps["iteration"].to_pylist() if i is not None]
    sums: dict[str, dict[int, int]] = defaultdict(lambda: dict.fromkeys(steps, 0))
    for row in capture.work.to_pylist():
        if row["iteration"] in sums["all"]:
            for name in ("all", row["module"] or ""):
                sums[name][row["iteration"]] += row["total_ns"]
    return {name: statistics.median(of.values()) for name, of in sums.items()}


def calls(capture: RankCapture) -> tuple[dict[Kernel, list[int]], Counter[Kernel]]:
    """Of each kernel of a grid in a module and phase, how long each call took that ran beside no
    communication; and how many calls there are in all. Tools spell the whole name differently."""
    alone: dict[Kernel, list[int]] = defaultdict(list)
    count: Counter[Kernel] = Counter()
    for row in capture.work.to_pylist():
        kernel = function_name(row["name"]), row["grid"], row["module"], row["phase"]
        alone[kernel] += row["alone"]
        count[kernel] += row["count"]
    return alone, count


def tools_agree(torch: Mapping[int, RankCapture], nsys: Mapping[int, RankCapture]) -> Claims:
    """What kernels take alone, of each rank by both tools: the median of each times its calls."""
    for rank in sorted(torch.keys() & nsys.keys()):
        (ours, count), (theirs, _) = calls(torch[rank]), calls(nsys[rank])
        both = [k for k in ours if ours[k] and theirs.get(k)]
        a, b = (sum(count[k] * statistics.median(of[k]) for k in both) for of in (ours, theirs))
        of_all = f"{sum(count[k] for k in both):,} of {count.total():,} calls"
        yield (
            bool(both) and abs(b / a - 1) <= WITHIN,
            f"rank {rank}: {a / 1e6:.3f} ms of kernels alone by torch.profiler, "
            f"{b / 1e6:.3f} by nsys ({b / a - 1 if a else 0:+.2%}), for {of_all}",
        )


def slowed(tool: str, captures: Mapping[int, RankCapture]) -> Iterator[str]:
    """What ran beside communication, and how much longer it took: it differs from run to run."""
    for rank, capture in sorted(captures.items()):
        steps = capture.steps["iteration"].to_pylist()
        for step, of in beside.by_step(capture.work, steps).items():
            if not of["beside_kernels"]:
                continue
            longer, took = of["slowed_ns"], of["compared_ns"]
            by = "nothing to compare"
            if took and longer is not None:
                by = f"{longer / 1e6:.3f} ms longer ({took / (took - longer):.3f}x)"
            yield (
                f"{tool}, rank {rank}, step {step}: {by}; {of['compared_kernels']:,} of "
                f"{of['beside_kernels']:,} kernels beside communication are compared"
            )


def parts_add_up(run: Path) -> Claims:
    """The parts of a step of a rank are the step, to the nanosecond."""
    rows = pq.read_table(run / "tables/ranks.parquet").to_pylist()
    left = [r["duration_ns"] - sum(r[f"{p}_ns"] for p in PARTS) for r in rows]
    yield not any(left), f"the parts of {len(rows)} steps are the steps to the nanosecond"


def exchange(run: Path, tools: Mapping[str, Mapping[int, RankCapture]]) -> Claims:
    """The products of the exchange: by the program's own events, and by each tool."""
    for path, meta in metas(run):
        seconds = (meta.get("parts") or {}).get("seconds")
        if seconds is None:
            continue
        told = {name: statistics.median(of) * 1e3 for name, of in seconds.items() if name != "loop"}
        yield True, f"{path.name}: ms by events { ({k: round(v, 3) for k, v in told.items()}) }"
        for tool, captures in tools.items():
            if (capture := captures.get(meta["rank"])) is None:
                continue
            for name in ("matmul_1", "matmul_2"):
                ms = by_module(capture).get(name, 0) / 1e6
                apart = ms / told[name] - 1
                yield abs(apart) <= WITHIN, f"{name}: {ms:.3f} ms by {tool} ({apart:+.2%})"


def memory(run: Path) -> Claims:
    """What a rank of FSDP holds between two steps is its share of weights and AdamW's moments."""
    for path, meta in metas(run):
        reports = (meta.get("parts") or meta).get("reports") or [{}]
        held, shards = reports[-1].get("allocated"), (meta.get("degrees") or {}).get("shard")
        if held is None or shards is None:
            continue
        planned = 3 * 4 * meta["parameters"] / shards
        latency = path.with_name(path.name.replace(".meta.json", ".latency.json"))
        step_ns = json.loads(latency.read_text())["summary"]["median"]
        tokens = reports[-1]["tokens"] / reports[-1]["step"] / meta["ranks"]
        yield (
            abs(held / planned - 1) <= 0.05 if planned >= LEAST_BYTES else None,
            f"rank {meta['rank']}: {held / 1e9:.3f} GB between steps, {planned / 1e9:.3f} planned"
            f" ({held / planned - 1:+.2%}); {tokens / step_ns * 1e9:.0f} tokens/s in timed steps, "
            f"{reports[-1]['tokens_per_second']:.0f} in all since the report before",
        )


def bubbles(run: Path, captures: Mapping[int, RankCapture]) -> Claims:
    """The bubble of each rank of a pipeline, and that of the ideal schedule by the run's settings.
    On average over the ranks no schedule has less: no step is shorter than one micro-batch through
    all stages and the others through the slowest."""
    meta = next((m for _, m in metas(run) if (m.get("degrees") or {}).get("pp", 1) > 1), None)
    if meta is None or not captures:
        return
    ranks, data = meta["degrees"]["pp"], meta["degrees"]["dp"]
    micro = meta["global_batch"] // (meta["batch"] * data)
    ideal = (ranks - 1) / (micro * meta["stages"] // ranks + ranks - 1)
    every = list(captures.values())
    job = reduce(
        [c.identity for c in every],
        {c.rank: c.collectives for c in every},
        {c.rank: c.steps for c in every},
        captures.__getitem__,
    )
    yield len(job.bubbles) == len(every), f"{len(job.bubbles)} of {len(every)} ranks have a bubble"
    for one in job.bubbles:
        told = "unknown" if one.ideal is None else f"{one.ideal:.1%}"
        yield (
            one.ideal is not None and abs(one.ideal - ideal) < 1e-9,
            f"rank {one.rank}: bubble {one.share:.1%} of a step; ideal schedule {told}, by the "
            f"settings {ideal:.1%} ({meta['schedule']}, {ranks} ranks, {micro} micro-batches)",
        )
    if job.bubbles:
        mean = statistics.mean(one.share for one in job.bubbles)
        yield mean >= ideal - 0.01, f"mean bubble {mean:.1%}, no smaller than the ideal's"


def bandwidths(run: Path) -> Iterator[str]:
    """Bus bandwidth of each operation and size, as `layerline ranks` tells it."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in pq.read_table(run / "tables/collectives.parquet").to_pylist():
        if row["bus_bandwidth"] is not None and row["bytes"] is not None:
            found[row["operation"], row["bytes"]].append(row["bus_bandwidth"] / 1e9)
    for (operation, size), of in sorted(found.items(), key=lambda item: -item[0][1])[:6]:
        yield (
            f"{operation} of {size:,} B: {statistics.median(of):.1f} GB/s on the bus "
            f"({min(of):.1f} to {max(of):.1f}, n {len(of)})"
        )


def main(run: Path) -> int:
    torch = captured(run, "captures/*.trace.json.gz")
    nsys = captured(run, "captures/*.sqlite")
    on_device = any(c.identity.device for c in torch.values())
    said = [*parts_add_up(run), *memory(run), *bubbles(run, torch or nsys)]
    if on_device:
        said += tools_agree(torch, nsys)
        said += exchange(run, {"torch.profiler": torch, "nsys": nsys})
    words = {True: "holds: ", False: "FAILS: ", None: "  "}
    sys.stdout.writelines(f"{words[ok]}{text}\n" for ok, text in said)
    more = [*bandwidths(run), *slowed("torch.profiler", torch), *slowed("nsys", nsys)]
    sys.stdout.writelines(f"  {text}\n" for text in more)
    return 1 if any(ok is False for ok, _ in said) else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
