"""Cut one iteration out of profiler traces of an H100 run, without hosts, paths, process ids.

python make_h100_eager.py RUN/captures h100_eager
"""

import gzip
import json
import sys
from pathlib import Path

ARGS = (
    "External id",
    "correlation",
    "stream",
    "device",
    "Sequence number",
    "Fwd thread id",
    "Ev Idx",
)
HEAD = ("schemaVersion", "displayTimeUnit", "baseTimeNanoseconds")
HOST = ("cpu_op", "user_annotation", "cuda_runtime", "cuda_driver")
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def excerpt(trace: dict) -> dict:
    """Iteration 0: host events in its range, what they launched, arrows to backward."""
    timed = [e for e in trace["traceEvents"] if e.get("ph") == "X"]
    step = next(e for e in timed if e["name"] == "layerline/iteration/0")
    low, high = step["ts"], step["ts"] + step["dur"]
    process = step["pid"]
    threads = {step["tid"]: 1}
    host = [e for e in timed if e.get("cat") in HOST and low <= e["ts"] < high]
    launched = {e["args"].get("correlation") for e in host} - {None}
    device = [e for e in timed if e.get("cat") in DEVICE and e["args"]["correlation"] in launched]
    arrows = [e for e in trace["traceEvents"] if e.get("cat") == "fwdbwd" and low <= e["ts"] < high]
    kept = []
    for e in [*host, *device, *arrows]:
        new = {k: e[k] for k in ("ph", "cat", "name", "id", "bp", "dur") if k in e}
        new["ts"] = round(e["ts"] - low + 1000, 3)
        on_host = e["pid"] == process
        new["pid"] = 1 if on_host else 0
        new["tid"] = threads.setdefault(e["tid"], len(threads) + 1) if on_host else e["tid"]
        if "args" in e:
            new["args"] = {k: e["args"][k] for k in ARGS if k in e["args"]}
        kept.append(new)
    return {k: trace[k] for k in HEAD if k in trace} | {"traceEvents": kept}


def main(captures: Path, to: Path) -> None:
    """Write an excerpt of each trace."""
    to.mkdir(exist_ok=True)
    for name in ("eager.fp32", "train.fp32", "train.fp16"):
        source = captures / f"{name}.trace.json.gz"
        made = json.dumps(excerpt(json.loads(gzip.decompress(source.read_bytes()))))
        (to / source.name).write_bytes(gzip.compress(made.encode(), 9, mtime=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
