"""Faults planted into the files that engines are built from: each is caught, in its module.

    python tests/gpu/wrong_engines.py WORK [BACKEND] [JOBS]

BACKEND (tensorrt) builds fp32 at level 1; JOBS (4) is how many cases run at a time. The models are
those of the tests, 2 layers but wider; right ones are tried too, and none of them may be accused.
`LAYERLINE` names the command. A line for each case, "holds" or "FAILS", and with it the error of
the outputs and of the worst module, for which the limits of rounding leave room
(`core/accuracy/by_module.py`). Exit status 1 where one fails.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support/models"))
import planted_faults

LAYERLINE = os.environ.get("LAYERLINE", "layerline").split()
SIZES = {
    "vocab_size": 4096, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
    "num_attention_heads": 8, "max_position_embeddings": 512,
}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2, "architectures": ["LlamaForCausalLM"]},
    "bert": {"architectures": ["BertModel"]},
    "qwen3": {
        "num_key_value_heads": 2, "head_dim": 64, "architectures": ["Qwen3ForCausalLM"],
    },
}  # fmt: skip
RIGHT = [("llama", "fp32"), ("llama", "fp16"), ("bert", "fp16"), ("qwen3", "fp16")]
QUICK = ("--what", "engine", "--iterations", "6", "--seconds", "1", "--processes", "1")


def called(run: Path, command: str, *options: str) -> tuple[int, str]:
    """A command's exit code and the last line that it says. Each run has its own folder for
    temporary files, so that none waits for another's lock."""
    scratch = run.parent / f"{run.name}.tmp"
    scratch.mkdir(exist_ok=True)
    done = subprocess.run(
        [*LAYERLINE, "-q", command, "--run", str(run), *options],
        capture_output=True, text=True, env={**os.environ, "TMPDIR": str(scratch)}, check=False,
    )  # fmt: skip
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return done.returncode, said[-1][:300] if said else ""


def exported(work: Path, model: str, backend: str) -> Path:
    folder = work / f"config-{model}"
    folder.mkdir()
    config = {"model_type": model, **SIZES, **MODELS[model]}
    (folder / "config.json").write_text(json.dumps(config))
    run = work / f"run-{model}"
    code, said = called(
        run, "export", "--model", str(folder), "--batch", "1", "--seq", "64", "--opset", "17",
        "--precision", "fp32" if backend == "tensorrt" else "fp32,fp16",
    )  # fmt: skip
    if code:
        raise SystemExit(f"{model} is not exported: {said}")
    return run


def figures(run: Path, precision: str, backend: str) -> str:
    """What was found of the modules, and how far the outputs are off."""
    name = run / f"captures/{precision}.{backend}.accuracy"
    told = []
    if (path := Path(f"{name}.json")).exists() and (
        cosine := json.loads(path.read_text())["cosine"]
    ):
        told.append(f"outputs off by {math.sqrt(max(0.0, 2 * (1 - cosine))):.1e}")
    if (path := Path(f"{name}.modules.json")).exists():
        modules = json.loads(path.read_text())["modules"]
        known = [m["error_out"] for m in modules if m["error_out"] is not None]
        told.append(
            f"{len(known)} of {len(modules)} modules known, worst {max(known, default=0):.1e}"
        )
    return "; ".join(told)


def first_wrong(run: Path, precision: str, backend: str) -> list[str]:
    path = run / f"captures/{precision}.{backend}.accuracy.modules.json"
    found = json.loads(path.read_text())["modules"] if path.exists() else []
    return [m["module"] for m in found if m["first_wrong"]]


def tried(run: Path, backend: str, precision: str, module: str | None) -> tuple[bool, list[str]]:
    """Whether the engine is judged as it must be: wrong in `module`, or right (None)."""
    options = ("--precision", precision, "--backend", backend)
    # At level 1 TensorRT takes tf32 where fp16 is asked for.
    level = ("--optimization-level", "1") if (backend, precision) == ("tensorrt", "fp32") else ()
    code, said = called(run, "engines", *options, *level)
    if code:
        return module is not None and code == 2 and module in said, [f"engines {code}: {said}"]
    told = []
    code, said = called(run, "profile", *options, *QUICK)
    told.append(f"profile {code}: {said}")
    if code == 0:
        code, said = called(run, "accuracy", *options)
        told.append(f"accuracy {code}: {said}")
    wrong = first_wrong(run, precision, backend)
    told += [f"first wrong {wrong}", figures(run, precision, backend)]
    reported, said = called(run, "report")
    told.append(f"report {reported}: {said}")
    if module is None:
        # A small model may run in another precision than was asked for: that is no accusation.
        return not wrong and (reported == 0 or "but no kernel ran" in said), told
    return wrong == [module] and reported == 1, told


def case(work: Path, backend: str, number: int, of: tuple[Any, ...]) -> tuple[bool, str]:
    model, precision, plant, module = of
    name = f"{model} {precision} {plant.__name__ if plant else 'right'} {module or ''}"
    run = work / f"case-{number:02d}"
    shutil.copytree(work / f"run-{model}", run)
    if plant:
        source = "fp32" if backend == "tensorrt" else precision
        file = run / f"export/{source}.onnx"
        loaded = onnx.load(str(file))
        plant(loaded)
        onnx.save(loaded, str(file))
    began = time.monotonic()
    ok, told = tried(run, backend, precision, module)
    lines = [f"{'holds' if ok else 'FAILS'}: {name} ({time.monotonic() - began:.0f} s)", *told]
    return ok, "\n    ".join(lines)


def main(work: Path, backend: str, jobs: int) -> int:
    work.mkdir(parents=True, exist_ok=True)
    for model in MODELS:
        exported(work, model, backend)
    cases: Iterable[tuple[Any, ...]] = [
        *((m, p, None, None) for m, p in RIGHT), *planted_faults.CASES,
    ]  # fmt: skip
    with ThreadPoolExecutor(jobs) as pool:
        begun = [pool.submit(case, work, backend, *at) for at in enumerate(cases)]
        failed = 0
        for done in as_completed(begun):
            ok, text = done.result()
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
            failed += not ok
    sys.stdout.write(f"{failed} fail\n")
    return 1 if failed else 0


if __name__ == "__main__":
    given = sys.argv[1:]
    _, library, several = [*given, *["", "tensorrt", "4"][len(given) :]]
    sys.exit(main(Path(given[0]).resolve(), library, int(several)))
