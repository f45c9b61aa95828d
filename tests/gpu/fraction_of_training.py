"""What would a capture at the fraction say, where a capture of every launch says the truth?

usage: python3 -P tests/gpu/fraction_of_training.py RUN PRECISION

RUN has `train.PRECISION.sqlite` (nsys) and a capture of every launch of the training step
(`layerline ncu --what train --every --metrics smsp__inst_executed.sum --metrics dram__bytes.sum`).
The plan is made from the first; each launch that it leaves out is given the value that the second
has of its representative. Told per metric: launches, modules and the whole step, against the values
that the launches have themselves. Needs no GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections import defaultdict
from pathlib import Path

from layerline.analysis.counters import representatives
from layerline.analysis.readers import registry
from layerline.core.replay import plan
from layerline.profile.ncu import eager_launches


def apart(a: float, b: float) -> float:
    return abs(a - b) / max(a, b) if a or b else 0.0


def main(run: Path, precision: str) -> None:
    captures, stem = run / "captures", f"train.{precision}"
    about = json.loads((captures / f"{stem}.nsys.meta.json").read_text())
    launches = eager_launches.of_nsys(captures / f"{stem}.sqlite", about.get("modules") or {})
    chosen = plan.plan(launches).chosen
    told = plan.document(launches, {"r": {x.index: x.index for x in chosen}}, chosen)
    every = registry.read(captures / f"{stem}.ncu-every.ncu.csv")
    table = representatives.of_file(every, captures / f"{stem}.ncu-every.ncu.plan.json")
    values: dict[str, dict[int, float]] = defaultdict(dict)
    for row in table.select(["metric", "launch", "value"]).to_pylist():
        if row["value"] is not None:
            values[row["metric"]][row["launch"]] = row["value"]
    sys.stdout.write(
        f"replayed: {len(chosen)} of {len(launches)} launches, {told['keys']} kinds of work\n"
    )
    for metric in ("smsp__inst_executed.sum", "dram__bytes.sum"):
        of = values[metric]
        given, layers = [], defaultdict(lambda: [0.0, 0.0])
        for x in told["launches"]:
            ours, truth = of[x["representative"]], of[x["index"]]
            layer = layers[representatives.label(x)]
            layer[0] += ours
            layer[1] += truth
            if x["representative"] != x["index"]:
                given.append(apart(ours, truth))
        by_layer = sorted((apart(*v), str(k)) for k, v in layers.items())
        whole = [sum(v[i] for v in layers.values()) for i in (0, 1)]
        sys.stdout.write(
            f"{metric}: {len(given)} launches given another's, apart by "
            f"{statistics.median(given):.2%} in the median, {max(given):.1%} at worst; "
            f"{len(by_layer)} modules and phases by "
            f"{statistics.median(d for d, _ in by_layer):.3%}, "
            f"{by_layer[-1][0]:.2%} at worst ({by_layer[-1][1]}); the step by {apart(*whole):.2%}\n"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
