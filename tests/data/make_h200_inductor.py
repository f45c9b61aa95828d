"""Makes tests/data/h200_inductor: two inferences of a package, and what each kernel computes for.

    python tests/data/make_h200_inductor.py RUN [FOLDER]

RUN is a run directory from an H200 after `layerline scrub` (docs/results/measure.sh, inductor):
GPT-2 at 1x512 in fp16 with inductor. FOLDER h200_inductor_max is of the mode max-autotune, whose
products are Triton's templates; nothing was counted of it. Kept of the nsys export: the first two
inferences' kernels, sets and ranges, the calls that launched them, the strings that these use, what
the GPU is.

The modules are worked out here, in truth.csv, with nothing of Layerline and without what inductor
says of its kernels: from GPT-2's structure, the order of the kernels of one inference, their names
and ncu's counts of them.

- Products and attention run in the order of the model: four products and one attention a block.
- A kernel of a norm is of the next norm of the model, and adds what was added to the residual
  stream before it, as far back as it reads tensors of its own: ncu counts the bytes, 786,432 for
  each tensor of 512x768 in fp16. Each add is of the block that it is in; the first, of the two
  embeddings, of the model, and a kernel that does it looks the embeddings up, too. Where nothing
  was counted, the modules of these kernels are left open.
- A mask is made once by the model and converted by the attention of each block. The kernels that
  do it run before the attention of blocks 0, 5 and 9, so each serves the blocks up to the next;
  five buffers are made right before the first.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from make_h100_engines import HERE, ITERATIONS, Capture, facts, launched, pack, write

NAME = "fp16.inductor"
BLOCKS, TENSOR = 12, 512 * 768 * 2
PRODUCTS = [
    *(f"transformer.h.{b}.{p}" for b in range(BLOCKS)
      for p in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")),
    "lm_head",
]  # fmt: skip
NORMS = [
    *(f"transformer.h.{b}.{n}" for b in range(BLOCKS) for n in ("ln_1", "ln_2")),
    "transformer.ln_f",
]
EMBEDDINGS = ("transformer.wte", "transformer.wpe")
# What is added to the residual stream, in order, and the first two terms of it.
ADDS = ["transformer", *(f"transformer.h.{b}" for b in range(BLOCKS) for _ in range(2))]


def tensors_read(path: Path) -> dict[str, int]:
    """Generated kernel -> how many tensors of 512x768 it reads: bytes of DRAM, caches emptied
    before it, in ncu's unit of 1e6 bytes."""
    with path.open(newline="") as file:
        units, *rows = csv.DictReader(file)
    assert units["dram__bytes.sum"] == "Mbyte"
    of_kernel = {}
    for row in rows:
        count = float(row["dram__bytes.sum"]) * 1e6 / TENSOR
        if "layer_norm" in row["Kernel Name"]:
            assert abs(count - round(count)) < 0.02, row["Kernel Name"]
            of_kernel[row["Kernel Name"]] = round(count)
    return of_kernel


def truth(kernels: Sequence[str], read: dict[str, int]) -> Iterator[tuple[list[str], str]]:
    """The modules of each kernel of one inference, and how that is known."""
    products, norms = iter(PRODUCTS), iter(enumerate(NORMS))
    masks = [i for i, name in enumerate(kernels) if "_where_" in name]
    attentions = [i for i, name in enumerate(kernels) if "_sdpa_" in name]
    block = last = ""
    for i, name in enumerate(kernels):
        if name.startswith(("nvjet_", "triton_tem_")):
            last = next(products)
            block = last.rpartition(".h.")[2].partition(".")[0]
            yield [last], "the next product of the model"
        elif "_sdpa_" in name:
            yield [f"transformer.h.{block}.attn"], "attention, after the block's c_attn"
        elif "_tanh_" in name:
            yield [f"transformer.h.{block}.mlp.act"], "the GELU, after the block's c_fc"
        elif "_mm_t_" in name:
            yield ["lm_head"], "pads lm_head's weight, before its product"
        elif "_cumsum_" in name:
            yield ["transformer"], "positions, before anything else"
        elif "_where_" in name:
            until = next((m for m in masks if m > i), len(kernels))
            served = [b for b, at in enumerate(attentions) if i < at < until]
            modules = ["transformer", *(f"transformer.h.{b}.attn" for b in served)]
            yield modules, f"the mask of blocks {served[0]} to {served[-1]}"
        else:
            number, norm = next(norms)
            if name not in read:
                yield [], "the next norm; what it adds was not counted"
                continue
            added = ADDS[: number + 1][1 - read[name] :]
            whole = len(added) == number + 1
            assert whole == ("embedding" in name), name
            modules = [*(EMBEDDINGS if whole else ()), *dict.fromkeys(added), norm]
            yield modules, f"the next norm; reads {read[name]} tensors: adds {len(added)}"
    assert next(products, None) is None and next(norms, None) is None


def main(run: Path, folder: str = "h200_inductor") -> None:
    """Make the folder's files anew."""
    out = HERE / folder
    out.mkdir(exist_ok=True)
    capture = Capture(run / f"captures/{NAME}.sqlite")
    around = [
        r
        for r in capture.rows("NVTX_EVENTS")
        if r["end"] is not None and re.match(r"layerline/iteration/\d+$", capture.text(r))
    ][:ITERATIONS]
    lowest, highest = around[0]["start"], around[-1]["end"]
    kept, calls = launched(capture, lowest, highest)
    kept["CUPTI_ACTIVITY_KIND_RUNTIME"] = calls
    kept["NVTX_EVENTS"] = [
        r
        for r in capture.rows("NVTX_EVENTS")
        if r["end"] is not None and lowest <= r["start"] <= r["end"] <= highest
    ]
    kept["TARGET_INFO_GPU"] = capture.rows("TARGET_INFO_GPU")[:1]
    write(capture, kept, out / f"{NAME}.sql.gz")
    for kind in ("trace.meta", "latency"):
        document = json.loads((run / f"captures/{NAME}.{kind}.json").read_text())
        (out / f"{NAME}.{kind}.json").write_text(json.dumps(slim(kind, document), indent=1) + "\n")
    layers = json.loads((run / f"engines/{NAME}.layers.json").read_text())
    pack(layers, out / f"{NAME}.layers.json.gz")
    started = {r["correlationId"]: r["start"] for r in calls}
    names = [
        capture.strings[r["shortName"]]
        for r in kept["CUPTI_ACTIVITY_KIND_KERNEL"]
        if started[r["correlationId"]] <= around[0]["end"]
    ]
    counted = run / f"captures/{NAME}.ncu.csv"
    read = tensors_read(counted) if counted.exists() else {}
    with (out / "truth.csv").open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(("order", "kernel", "modules", "how"))
        for i, (name, row) in enumerate(zip(names, truth(names, read), strict=True)):
            table.writerow((i, name, "|".join(row[0]), row[1]))


def slim(kind: str, document: dict[str, Any]) -> dict[str, Any]:
    """What analysis uses of the two inferences, or of the latencies."""
    if kind == "trace.meta":
        return facts(document)
    own = ("schema_version", "source", "precision", "backend", "engine", "latency_ns", "queued_ns")
    told = {k: document["facts"][k] for k in ("clock", "queued", "cuda_graph")}
    return {**{k: document[k] for k in own if k in document}, "facts": told}


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
