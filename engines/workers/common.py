"""What every worker shares: reading the job, repeating until it is precise enough, the result.

A worker is a plain script, ``python WORKER job.json``, in whatever interpreter has the backend's
library. It imports the standard library, numpy and that library, runs on Python 3.10, and never
imports layerline. The job and the result are protocol version 1 (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

PROTOCOL = 1
CONFIDENCE = 0.95
FEWEST = 6  # samples that have a 95 % interval of the median
ONE_IN_TWENTY = -1.6448536269514722  # of a normal distribution, one-sided

Job = dict[str, Any]
Task = Callable[[Job], dict[str, Any]]


class WorkerError(Exception):
    """A problem the user can act on; `exit_code`: 2 of input, 3 of a tool that is missing."""

    def __init__(self, what: str, fix: str | None = None, exit_code: int = 2) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.exit_code = exit_code


def read_inputs(job: Job, names: Sequence[str]) -> dict[str, Any]:
    """The job's arrays of these names. WorkerError where the file has not all of them."""
    import numpy as np

    with np.load(job["inputs"], allow_pickle=False) as arrays:
        absent = [name for name in names if name not in arrays.files]
        if absent:
            what = f"{job['inputs']}: has no input {', '.join(absent)}"
            raise WorkerError(what, "export it again")
        return {name: arrays[name] for name in names}


def bfloat16(array: Any) -> Any:
    """The bits of fp32 values rounded to bfloat16, ties to even, in uint16: numpy has no such type.
    NaN stays NaN."""
    import numpy as np

    wide = np.ascontiguousarray(array, dtype=np.float32)
    bits = wide.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(wide), 0x7FC0, rounded).astype(np.uint16)


def save(path: str, arrays: dict[str, Any]) -> None:
    """Write arrays as npz."""
    import numpy as np

    with Path(path).open("wb") as f:
        np.savez(f, **arrays)


def write_result(path: str, result: dict[str, Any]) -> None:
    """Write the result, whole or not at all."""
    temporary = Path(f"{path}.{os.getpid()}.partial")
    with temporary.open("w", encoding="utf-8") as f:
        json.dump({"protocol": PROTOCOL, **result}, f, allow_nan=False)
    temporary.replace(path)


def main(tasks: Mapping[str, Task], arguments: Sequence[str]) -> int:
    """Do the job named on the command line, or, given a FIFO, those whose paths are read there;
    0 when results were written, error results included.

    Anything that is not a WorkerError is a defect: its traceback goes to stderr, no result is
    written, and the parent reports it.
    """
    _die_with_parent()
    if len(arguments) != 1:
        sys.stderr.write("usage: python WORKER job.json\n")
        return 2
    for path in jobs(Path(arguments[0])):
        _do(tasks, path)
    return 0


def jobs(path: Path) -> Iterator[str]:
    """The job at `path`; or, where that is a FIFO, the jobs whose paths are read there, one a line,
    until it is closed or a line is empty. It sleeps between two."""
    if not path.is_fifo():
        yield str(path)
        return
    with path.open(encoding="utf-8") as lines:
        while line := lines.readline().strip():
            yield line


def _do(tasks: Mapping[str, Task], path: str) -> None:
    with Path(path).open(encoding="utf-8") as f:
        job: Job = json.load(f)
    try:
        if job["task"] not in tasks:
            raise WorkerError(
                f"this worker has no task {job['task']!r}, it has {', '.join(sorted(tasks))}"
            )
        write_result(job["result"], {"ok": True, **tasks[job["task"]](job)})
    except WorkerError as e:
        error = {"exit_code": e.exit_code, "what": e.what, "fix": e.fix}
        write_result(job["result"], {"ok": False, "error": error})
    except MemoryError:
        error = {"exit_code": 2, "what": "out of memory", "fix": "use a smaller batch or sequence"}
        write_result(job["result"], {"ok": False, "error": error})


def peak_host_bytes() -> int | None:
    """The most memory this process had; None where Linux does not say.

    Not getrusage: its maximum is that of the parent too, which was forked (getrusage(2)).
    """
    with contextlib.suppress(OSError):
        peak = re.search(r"^VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
        return int(peak[1]) * 1024 if peak else None
    return None


def _die_with_parent() -> None:
    """Ask Linux to end this process with its parent, so that no orphan disturbs a measurement."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


# --- statistics: as in core/stats.py and core/series.py, which a worker cannot import -----------


def interval_rank(n: int) -> int | None:
    """The largest k for which [x(k), x(n+1-k)] covers the median of n samples; None: none does."""
    tail = (1 - CONFIDENCE) / 2
    cumulative, k = 0.0, 0
    while k < (n + 1) // 2:
        log_p = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - n * math.log(2)
        cumulative += math.exp(log_p)
        if cumulative > tail:
            break
        k += 1
    return k or None


def relative_width(samples: Sequence[int]) -> float | None:
    """Half the width of the median's 95 % interval over the median, of samples in their order;
    None: too few samples. Samples that depend on one another have a wider one."""
    ordered = sorted(samples)
    n = len(ordered)
    k = interval_rank(n)
    middle = round((ordered[(n - 1) // 2] + ordered[n // 2]) / 2) if n else 0
    if k is None or not middle:
        return None
    stretch = math.sqrt(dependence([(x > middle) - (x < middle) for x in samples]))
    if stretch > 1:
        k = max(1, math.floor((n + 1) / 2 - ((n + 1) / 2 - k) * stretch))
    return (ordered[n - k] - ordered[k - 1]) / 2 / middle


def dependence(sign: Sequence[int]) -> float:
    """How many samples are worth one independent sample, from the signs of sample - median: Geyer's
    initial positive sequence where the runs test finds too few runs, else 1 (core/series.py)."""
    sides = [s for s in sign if s]
    above, n = sum(s > 0 for s in sides), len(sides)
    below = n - above
    if not above or not below or n < FEWEST:
        return 1.0
    runs = 1 + sum(sides[i] != sides[i - 1] for i in range(1, n))
    pairs = 2 * above * below
    deviation = math.sqrt(pairs * (pairs - n) / (n * n * (n - 1)))
    if (runs + 0.5 - pairs / n - 1) / deviation >= ONE_IN_TWENTY:
        return 1.0
    products = _products(sign)
    total = 0.0
    for lag in range(0, len(sign) - 1, 2):
        pair = (products[lag] + products[lag + 1]) / n
        if pair <= 0:
            break
        total += pair
    return min(max(1.0, 2 * total - 1), float(len(sign)))


def _products(sign: Sequence[int]) -> list[int]:
    """The sum of sign[i] * sign[i + lag], for every lag; by the Fourier transform, because this
    is asked between measurements and a long series needs many lags."""
    import numpy as np

    power = np.abs(np.fft.rfft(np.array(sign, dtype=float), 2 * len(sign))) ** 2
    sums: list[int] = np.rint(np.fft.irfft(power)[: len(sign)]).astype(int).tolist()
    return sums


def repeat(
    run: Callable[[], Any],
    job: Job,
    clock: Callable[[], int] = time.perf_counter_ns,
    sample: Callable[[], int] | None = None,
    settle: float = 0.0,
) -> dict[str, Any]:
    """Warm up, then run until the median's interval is narrower than the target.

    Warming up takes at least `settle` seconds: clocks and caches settle by time, not by count.
    Ends by "target", "iterations" (max reached) or "seconds", never before iterations.min unless
    the seconds ran out, and never without a sample. Times are host-clock nanoseconds around
    `run`, which must not return before its work is done; with `sample`, what that gives after
    each run (device events, say).
    """
    warmup = [_timed(run, clock, sample) for _ in range(job["warmup"])]
    begun = clock() if settle else 0
    while settle and clock() - begun < settle * 1e9:
        warmup.append(_timed(run, clock, sample))
    least, most = job["iterations"]["min"], job["iterations"]["max"]
    started, allowed = clock(), int(job["seconds"] * 1e9)
    samples: list[int] = []
    ended_by = None
    look = least
    while ended_by is None:
        samples.append(_timed(run, clock, sample))
        n = len(samples)
        if n >= look:
            # Looking after each sample would cost more than small models do.
            look = max(n + 1, n + n // 10)
            width = relative_width(samples)
            if width is not None and width <= job["target"]:
                ended_by = "target"
        if ended_by is None and n >= most:
            ended_by = "iterations"
        spent = clock() - started
        if ended_by is None and spent >= (allowed if n >= FEWEST else 3 * allowed):
            ended_by = "seconds"
    width = relative_width(samples)
    return {
        "latency_ns": samples,
        "warmup_ns": warmup,
        "facts": {
            "clock": "host",
            "ended_by": ended_by,
            "relative_width": width,
            "target": job["target"],
            "target_met": width is not None and width <= job["target"],
        },
    }


def _timed(
    run: Callable[[], Any], clock: Callable[[], int], sample: Callable[[], int] | None
) -> int:
    started = clock()
    run()
    return clock() - started if sample is None else sample()
