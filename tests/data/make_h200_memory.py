"""Makes tests/data/h200_memory: the memory of a tiny GPT-2's steps on a GPU, recorded and cut down.

    python tests/data/make_h200_memory.py record FOLDER [oom]     # on a GPU
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python ... record FOLDER
    python tests/data/make_h200_memory.py keep FOLDER NAME        # tiny, expandable, oom

Recorded with torch 2.11 on an H200: two layers, 128 wide, vocabulary 1024, batch 4, length 128,
AdamW, fp32, steps 1 and 2 of three. `oom`: the process may have 300 MB, and the loss of the second
step asks for 4 GiB. Kept are all events and blocks, of each stack the innermost four lines of
Python outside of torch, and the folders of none.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import pickle
import re
import sys
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "h200_memory"
NAMES = ("train.fp32.memory.pickle", "train.fp32.memory.json")
LINES = 4
_FOLDER = re.compile(r".*/(?=(?:layerline|transformers|torch)/)|.*/(?=[^/]+$)")


def record(folder: Path, greedy: bool) -> None:
    """Train three steps with the plug-in."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from layerline.profile.eager.memory.plugin import Memory
    from layerline.workloads.loop import train
    from layerline.workloads.training import Training

    device = torch.device("cuda", 0)
    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_embd=128, n_head=4, vocab_size=1024, n_positions=128)
    model = GPT2LMHeadModel(config).to(device).train()
    calls = []

    def batches() -> Any:
        while True:
            yield {"input_ids": torch.randint(0, 1024, (4, 128), device=device)}

    def loss(out: Any, batch: Any) -> Any:
        calls.append(1)
        if greedy and len(calls) > 1:
            torch.empty(1 << 30, device=device)
        logits, wanted = out.logits[:, :-1].flatten(0, 1), batch["input_ids"][:, 1:].flatten()
        return torch.nn.functional.cross_entropy(logits.float(), wanted)

    if greedy:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(3e8 / total)
    training = Training(
        model, torch.optim.AdamW(model.parameters()), batches(), loss, device, "fp32"
    )
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(torch.OutOfMemoryError):
        for _ in train(training, 3, [Memory(*(folder / name for name in NAMES))]):
            pass


def keep(folder: Path, out: Path) -> None:
    """Write the two files, cut down."""
    value = pickle.loads((folder / NAMES[0]).read_bytes())
    document = json.loads((folder / NAMES[1]).read_text())
    short: dict[str, list[dict[str, Any]]] = {}
    for held in [*value["device_traces"][0], *(b for s in value["segments"] for b in s["blocks"])]:
        lines = [
            {**frame, "filename": _FOLDER.sub("", frame["filename"], count=1)}
            for frame in held.get("frames") or []
            if "packages/torch/" not in frame["filename"]
        ][:LINES]
        held["frames"] = short.setdefault(json.dumps(lines), lines)
    value = {k: value[k] for k in ("segments", "device_traces", "allocator_settings")}
    out.mkdir(parents=True, exist_ok=True)
    written = (pickle.dumps(value, 4), json.dumps(document).encode())
    for name, data in zip(NAMES, written, strict=True):
        (out / f"{name}.gz").write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]), "oom" in sys.argv[3:])
    else:
        keep(Path(sys.argv[2]), OUT / sys.argv[3])
