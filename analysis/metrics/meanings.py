"""What metrics mean, in NVIDIA's terms, and what their values suggest.

Definitions follow NVIDIA's Nsight Compute Profiling Guide ("Metrics Guide", "Metrics Reference")
and the section files that ncu ships. Thresholds are those of ncu's own rules where it has one,
and are named as such.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Meaning:
    """`pattern`: the metrics' names, with a group where a table of names completes the text;
    `section`: ncu's section that collects it; `low` and `high`: what a value below `limits[0]`
    or above `limits[1]` suggests. No limits: no judgement by the value alone."""

    pattern: str
    section: str
    text: str
    limits: tuple[float, float] | None = None
    low: str = ""
    high: str = ""


_PIPES = {
    "adu": "Address Divergence Unit: branches and jumps with uniform targets, constant loads",
    "alu": "Arithmetic Logic Unit: bit operations, integer and floating-point comparison",
    "cbu": "Convergence Barrier Unit: barriers, convergence and branch instructions",
    "fma": "FMA: single-precision add, multiply, multiply-add, and integer multiply-add",
    "fmaheavy": "FMA heavy: FP32 arithmetic, FP16 arithmetic and integer dot products",
    "fmalite": "FMA lite: FP32 and FP16 arithmetic",
    "fp16": "Half precision; on recent chips run by the FMA pipeline",
    "fp64": "Double precision; few units on all but data-centre chips",
    "lsu": "Load Store Unit: loads, stores, atomics and reductions to shared and global memory",
    "shared": "FP64 and tensor cores together, which share their way; not shared memory",
    "tensor": "Tensor cores: matrix multiply-accumulate",
    "tex": "Texture unit: texture fetches",
    "tma": "Tensor Memory Accelerator: bulk copies between global and shared memory",
    "uniform": "Uniform datapath: integer work that all threads of a warp share",
    "xu": "Transcendental and data type conversion: exp, tanh, rsqrt, int to float",
}
_TENSOR_OPS = {
    "dmma": "DMMA: double precision",
    "gmma": "GMMA: products of a warp group, of Hopper (half, TF32, FP8, integer)",
    "hmma": "HMMA: half, bfloat16 and TF32",
    "imma": "IMMA: integer",
}
_NAMES = {"pipe": _PIPES, "op": _TENSOR_OPS}
_BUSY = "busy enough to be what limits the kernel; only fewer such instructions make it faster"
_IDLE = "not what limits this kernel"

# The first pattern that matches the name decides.
_MEANINGS = (
    Meaning(
        r"gpu__time_duration",
        "GPU Speed Of Light",
        "Time of the kernel on the GPU, in ns, while it was replayed alone. Not a latency: "
        "caches were flushed and clocks may have been locked",
    ),
    Meaning(
        r"sm__inst_executed\.avg\.per_cycle",
        "ComputeWorkloadAnalysis",
        "Executed IPC: warp instructions per cycle of one SM; four schedulers allow 4",
        (1.0, 3.0),
        "most cycles issue nothing: too few warps, or warps that wait",
        "the schedulers are nearly always busy",
    ),
    Meaning(
        r"sm__inst_issued\.",
        "ComputeWorkloadAnalysis",
        "Issued IPC and its share of the peak (issue slots busy); replays included",
    ),
    Meaning(
        r"sm__instruction_throughput\.",
        "ComputeWorkloadAnalysis",
        "SM busy: the busiest instruction pipeline or issue stage, as a share of its peak",
        (20.0, 80.0),
        "all compute pipelines are under-utilised (ncu's rule): too little work, or waiting",
        "compute is near its peak",
    ),
    Meaning(
        r"sm__(?:pipe|inst_executed_pipe)_tensor_op_(?P<op>[a-z]+)",
        "ComputeWorkloadAnalysis",
        "Tensor cores, {}",
        (5.0, 60.0),
        "no or few products of this kind",
        "products of this kind are near what the tensor cores can do",
    ),
    Meaning(
        r"sm__pipe_tensor|sm__inst_executed_pipe_tensor|sm__ops_path_tensor",
        "ComputeWorkloadAnalysis",
        "Tensor cores: matrix multiply-accumulate (HMMA/HGMMA half and TF32, IMMA integer, "
        "DMMA double). ops_path counts FLOP",
        (5.0, 60.0),
        "tensor cores hardly run: no matrix product, another precision, or a tiny one",
        "matrix products are near what the tensor cores can do",
    ),
    Meaning(
        r"sm(?:sp)?__(?:pipe|inst_executed_pipe)_(?P<pipe>[a-z0-9]+)",
        "ComputeWorkloadAnalysis",
        "Pipeline {}",
        (20.0, 80.0),
        _IDLE,
        _BUSY,
    ),
    Meaning(
        r"gpu__compute_memory_throughput|gpu__dram_throughput|dram__throughput",
        "SpeedOfLight / MemoryWorkloadAnalysis",
        "Throughput of the memory (DRAM alone, or the busiest of L1, L2 and DRAM) as a share "
        "of its peak",
        (60.0, 80.0),
        "below 60 % ncu's rule speaks of latency, not of bandwidth",
        "memory bandwidth bounds the kernel: move fewer bytes, fuse, or use smaller types",
    ),
    Meaning(
        r"sm__throughput",
        "SpeedOfLight",
        "Compute throughput: the busiest part of the SMs as a share of its peak",
        (60.0, 80.0),
        "below 60 % ncu's rule speaks of latency, if memory is low as well",
        "compute bounds the kernel",
    ),
    Meaning(
        r"lts__throughput|l1tex__throughput",
        "SpeedOfLight",
        "Throughput of the L2 (lts) or L1/texture cache as a share of its peak",
        (60.0, 80.0),
        _IDLE,
        "the cache is the bottleneck: better locality or wider accesses help",
    ),
    Meaning(
        r"(?:lts__t|l1tex__t)_sector.*hit_rate|_hit_rate",
        "MemoryWorkloadAnalysis",
        "Cache hit rate: sectors found in the cache, of those asked for",
        (30.0, 80.0),
        "data streams through, or does not fit (see the L2 size line in plots)",
        "most accesses are served by the cache",
    ),
    Meaning(
        r"dram__bytes",
        "MemoryWorkloadAnalysis",
        "Bytes between L2 and DRAM (read, write or both). ncu flushes caches before every "
        "replay (--cache-control all), so weights are read from DRAM that a running engine "
        "might find in L2",
    ),
    Meaning(
        r"sm__warps_active\.avg\.pct_of_peak_sustained_active",
        "Occupancy",
        "Achieved occupancy: active warps per cycle of the SMs that work, of the most possible",
        (30.0, 70.0),
        "few warps hide little latency: registers, shared memory, blocks, or a small grid",
        "enough warps to hide latency; more seldom help",
    ),
    Meaning(
        r"sm__maximum_warps_per_active_cycle_pct",
        "Occupancy",
        "Theoretical occupancy: what registers, shared memory and block size allow",
        (30.0, 70.0),
        "the launch's resources limit how many warps fit on an SM",
        "resources are no limit",
    ),
    Meaning(
        r"launch__occupancy_limit",
        "Occupancy",
        "Blocks per SM that this resource allows; the smallest limit counts",
    ),
    Meaning(
        r"launch__waves_per_multiprocessor",
        "LaunchStats",
        "Waves: how often the grid fills all SMs with as many blocks as fit",
        (1.0, 10.0),
        "the grid does not fill the GPU once: larger batch or sequence, or fewer, larger kernels",
        "the tail of the last wave hardly counts",
    ),
    Meaning(r"launch__registers_per_thread", "LaunchStats", "Registers of each thread"),
    Meaning(
        r"smsp__sass_thread_inst_executed_op_(?:fadd|fmul|ffma)",
        "SpeedOfLight roofline",
        "FP32 instructions of threads; ffma is two FLOP",
    ),
    Meaning(
        r"smsp__sass_thread_inst_executed_op_(?:hadd|hmul|hfma)",
        "SpeedOfLight roofline",
        "FP16 instructions of threads, on pairs: hfma is 4 FLOP",
    ),
    Meaning(
        r"sm__cycles_elapsed\.avg\.per_second",
        "SpeedOfLight",
        "SM clock while the kernel ran: did ncu lock it to the base?",
    ),
    Meaning(r"sm(?:sp)?__cycles_(?:active|elapsed)", "SpeedOfLight", "Cycles of the SMs"),
)
_SUBMETRICS = (
    ("pct_of_peak_sustained_active", "as % of the peak while the unit was active"),
    ("pct_of_peak_sustained_elapsed", "as % of the peak over the whole kernel"),
    ("per_cycle_active", "per cycle in which the unit was active"),
    ("per_cycle_elapsed", "per cycle of the kernel"),
    ("per_second", "per second"),
    ("peak_sustained", "the peak itself, not a measurement"),
)
_ROLLUPS = {
    "sum": "summed over all units",
    "avg": "mean of the units",
    "min": "of the least busy unit",
    "max": "of the busiest unit",
}


def meaning(metric: str) -> Meaning | None:
    """What is known of a metric; None for one that is not in the dictionary."""
    for known in _MEANINGS:
        match = re.match(known.pattern, metric)
        if match is None:
            continue
        for group, name in match.groupdict().items():
            text = _NAMES[group].get(name)
            return None if text is None else replace(known, text=known.text.format(text))
        return known
    return None


def spelled(metric: str) -> str:
    """What the rollup and submetric of a name say, e.g. "mean of the units, per second"."""
    parts = metric.split(".")[1:]
    words = [_ROLLUPS[p] for p in parts[:1] if p in _ROLLUPS]
    words += [text for name, text in _SUBMETRICS if name in parts[1:]]
    return ", ".join(words)


def judgement(metric: str, unit: str | None, value: float) -> str | None:
    """What a value suggests; None where the metric's value alone says nothing.

    Limits in percent apply to percentages only, those of rates and waves to their own unit.
    """
    known = meaning(metric)
    if known is None or known.limits is None:
        return None
    ratio = metric.startswith(("launch__waves", "sm__inst_executed.avg.per_cycle"))
    if not ratio and unit != "%":
        return None
    low, high = known.limits
    if value < low:
        return known.low
    return known.high if value > high else "between: one of several limits"
