"""Cut one iteration out of a training trace of an H200 run, and add it up without Layerline.

python make_h200_train.py RUN/captures h200_train

Leaves ``train.bf16.*`` and ``expected.json``: the device's nanoseconds of each phase, and of each
module in it. Forward and recomputation by the innermost range around the launch; backward by the
profiler's own arrows ("fwdbwd") from a forward operator to its node, never by sequence numbers.
What the engine itself launches beside a node (sums of gradients) is no module's.
"""

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

from make_h100_eager import DEVICE, HOST, excerpt

META = (
    "precision", "training", "device", "gpu", "torch", "tf32", "weights", "autocast", "attention",
    "workload", "model", "batch", "sequence", "accumulate", "optimizer", "optimizer_implementation",
    "optimizer_bytes", "modules", "gradient_checkpointing", "schema_version",
)  # fmt: skip
ENGINE = "autograd::engine::evaluate_function: "
MODULE, PHASE = "layerline/module/", "layerline/phase/"


def around(event, spans):
    """Names of the spans of the event's thread that hold its beginning, the outermost first."""
    at = event["ts"]
    held = [s for s in spans.get(event["tid"], ()) if s["ts"] <= at < s["ts"] + s["dur"]]
    return [s["name"] for s in sorted(held, key=lambda s: (s["ts"], -s["dur"]))]


def by_thread(events):
    found = {}
    for event in events:
        found.setdefault(event["tid"], []).append(event)
    return found


def module_of(event, ranges):
    inside = [name for name in around(event, ranges) if name.startswith(MODULE)]
    return inside[-1].removeprefix(MODULE) if inside else None


def expected(trace):
    """{"phases": {phase: ns}, "modules": {phase: {module: ns}}, "kernels": n}"""
    events = trace["traceEvents"]
    timed = [e for e in events if e.get("ph") == "X"]
    ranges = by_thread(e for e in timed if e["cat"] == "user_annotation")
    operators = by_thread(e for e in timed if e["cat"] == "cpu_op")
    launches = {
        e["args"]["correlation"]: e
        for e in timed
        if e["cat"] in HOST and "correlation" in e.get("args", {})
    }
    begins = {e["id"]: e for e in events if e["ph"] == "s"}
    arrows = by_thread(
        {**e, "from": begins[e["id"]]} for e in events if e["ph"] == "f" and e["id"] in begins
    )
    main = next(e["tid"] for e in timed if e["name"] == "layerline/iteration/0")
    phases, modules, kernels = Counter(), {}, 0
    for kernel in timed:
        if kernel["cat"] not in DEVICE:
            continue
        kernels += 1
        ns = round(kernel["dur"] * 1000)
        launch = launches[kernel["args"]["correlation"]]
        marks = [name for name in around(launch, ranges) if name.startswith(PHASE)]
        if marks:
            phase = marks[-1].removeprefix(PHASE)
        else:  # autograd's own thread, while the main one is in backward
            assert launch["tid"] != main
            phase = "backward"
        phases[phase] += ns
        if phase in ("forward", "recompute"):
            module = module_of(launch, ranges)
        elif phase == "backward":
            module = _forward_module(launch, operators, arrows, ranges)
        else:
            module = None
        if module is not None:
            modules.setdefault(phase, Counter())[module] += ns
    return {"phases": phases, "modules": modules, "kernels": kernels}


def _forward_module(launch, operators, arrows, ranges):
    """The module of the forward operator whose arrow ends where the engine runs the node around a
    launch."""
    inside = around(launch, operators)
    if not inside[0].startswith(ENGINE) or inside[1] == "aten::add_":  # a sum beside the node
        return None
    at = launch["ts"]
    for node in operators[launch["tid"]]:
        low, high = node["ts"], node["ts"] + node["dur"]
        if node["name"].startswith(ENGINE) and low <= at < high:
            for arrow in arrows.get(launch["tid"], ()):
                if low <= arrow["ts"] < high:
                    return module_of(arrow["from"], ranges)
    return None


def main(captures, to):
    to.mkdir(exist_ok=True)
    name = "train.bf16"
    packed = (captures / f"{name}.trace.json.gz").read_bytes()
    trace = excerpt(json.loads(gzip.decompress(packed)))
    made = json.dumps(trace, separators=(",", ":")).encode()
    (to / f"{name}.trace.json.gz").write_bytes(gzip.compress(made, 9, mtime=0))
    meta = json.loads((captures / f"{name}.meta.json").read_text())
    kept = {k: meta[k] for k in META if k in meta} | {"trace": f"{name}.trace.json.gz"}
    events = {phase: ns[:1] for phase, ns in meta["traced_phases_ns"].items()}
    kept |= {"iterations": 1, "traced_phases_ns": events}
    _write(to / f"{name}.meta.json", kept)
    latency = json.loads((captures / f"{name}.latency.json").read_text())
    keys = ("latency_ns", "phases_ns", "schema_version", "source", "precision", "training")
    _write(to / f"{name}.latency.json", {k: latency[k] for k in keys})
    _write(to / "expected.json", expected(trace))


def _write(path, document):
    path.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
