"""Which models go the whole way: export, ONNX Runtime engine, profile, report. One row each.

    python tests/bench/families.py [NAME ...] [--precision fp32] [--out FOLDER]

A NAME is a family of tests/support/family_configs.py, a function of tests/support/own_nets.py as
own:resnet50, or one of either with options of `layerline export` behind it, in quotes:
"t5 --part decoder", "bert --padded --batch 3", "gpt2 --phase decode --seq 1 --past 8". Without a
name all are run. Sizes are tiny and iterations few: what is told is whether a model goes through,
and the share of the time in modules; times say nothing.

Each runs in processes of its own with a TMPDIR of its own; what it printed is FOLDER/NAME.log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SUPPORT = Path(__file__).parents[1] / "support"
sys.path.insert(0, str(SUPPORT))
from family_configs import CONFIGS  # noqa: E402

OWN = ("resnet50", "yolo", "vit", "unet", "diffusion", "mlp")
VARIANTS = (
    "t5 --part encoder", "t5 --part decoder", "whisper --part encoder", "whisper --part decoder",
    "bart --part encoder", "bart --part decoder", "bert --padded --batch 3",
    "llama --padded --batch 3", "t5 --padded --batch 3",
    *(f"{name} --phase decode --past 12"
      for name in ("gpt2", "llama", "mistral", "gemma2", "qwen3_moe", "bloom", "falcon")),
)  # fmt: skip
SECONDS = 900
LAYERLINE = (sys.executable, "-P", "-m", "layerline.core.cli.command")


@dataclass(frozen=True)
class Outcome:
    """How one went: the command that ended otherwise than with 0, and what it said; the least
    share of time in modules of each kind of side, None where there is none."""

    name: str
    failed: str | None
    said: str
    coverage: dict[str, float | None]
    seconds: float

    @property
    def row(self) -> str:
        shares = (self.coverage.get(side) for side in ("engine", "eager", "training"))
        cells = ["–" if s is None else f"{100 * s:.2f} %" for s in shares]
        result = "whole way" if self.failed is None else f"{self.failed} ended"
        return f"| {' | '.join([self.name, result, *cells, self.said, f'{self.seconds:.0f} s'])} |"


def model_of(name: str, folder: Path) -> str:
    """What --model is given."""
    kind, _, function = name.partition(":")
    if kind == "own":
        return f"{SUPPORT / 'own_nets.py'}:{function}"
    model = folder / name
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIGS[name]))
    return str(model)


def commands(name: str, folder: Path, precision: str) -> Iterator[tuple[str, ...]]:
    """The command lines of the whole way."""
    family, *options = name.split()
    model, run = model_of(family, folder), str(folder / "run")
    sides = ("--precision", precision, "--backend", "onnxruntime")
    decodes, sequence = "--phase" in options, ()
    config = {*CONFIGS.get(family, {})}
    spectrogram = "encoder" in options and "max_source_positions" in config
    if {"vocab_size", "text_config"} & config and not decodes and not spectrogram:
        sequence = ("--seq", "16")
    yield ("export", run, "--model", model, *sides, *sequence, *options)
    yield ("engines", run, *sides)
    yield ("profile", run, *sides, "--what", "engine,eager,train", "--iterations", "4",
           "--seconds", "2")  # fmt: skip
    yield ("report", run)


def covered(run: Path) -> dict[str, float | None]:
    """The least share of time in modules of engines, eager inference and training."""
    summary = json.loads((run / "report" / "summary.json").read_text())
    shares: dict[str, list[float]] = {"engine": [], "eager": [], "training": []}
    for side in summary["engines"].values():
        shares["engine"].append(side["coverage"])
    for key, side in summary["eager"].items():
        shares["eager" if key.endswith("inference") else "training"].append(side["coverage"])
    return {kind: min(found, default=None) for kind, found in shares.items()}


def whole_way(name: str, precision: str, out: Path) -> Outcome:
    """Run one; its files are removed again."""
    began, failed, said = time.monotonic(), None, ""
    coverage: dict[str, float | None] = {}
    with (
        tempfile.TemporaryDirectory(prefix="layerline-family-") as folder,
        (out / f"{re.sub(r'[^0-9A-Za-z_]+', '-', name)}.log").open("w") as log,
    ):
        environment = {**os.environ, "TMPDIR": folder}
        for command in commands(name, Path(folder), precision):
            print("$ layerline", *command, file=log, flush=True)
            try:
                done = subprocess.run(
                    [*LAYERLINE, *command], env=environment, text=True, timeout=SECONDS,
                    stdout=log, stderr=subprocess.PIPE, check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                failed, said = command[0], f"not over after {SECONDS} s"
                break
            print(done.stderr, file=log, flush=True)
            if done.returncode:
                lines = [x for x in done.stderr.splitlines() if x.strip()]
                failed = f"{command[0]} ({done.returncode})"
                said = next((x for x in lines if x.startswith("error")), lines[-1] if lines else "")
                break
        report = Path(folder) / "run" / "report"
        if (report / "summary.json").exists():
            coverage = covered(report.parent)
            kept = out / "reports" / name.replace(" ", "_").replace(":", "-")
            shutil.rmtree(kept, ignore_errors=True)
            shutil.copytree(report, kept)
    return Outcome(name, failed, said, coverage, time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--precision", default="fp32", help="fp32, or joined with commas")
    parser.add_argument("--out", type=Path, help="logs and reports (default: a temporary folder)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="layerline-families-"))
    out.mkdir(parents=True, exist_ok=True)
    print(f"logs and reports: {out}\n")
    print("| model | result | engine | eager | training | said | took |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in options.names or (*(f"own:{f}" for f in OWN), *CONFIGS, *VARIANTS):
        print(whole_way(name, options.precision, out).row, flush=True)


if __name__ == "__main__":
    main()
