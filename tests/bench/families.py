"""Which models go the whole way: export, engine, profile, report. One row each and precision.

    python tests/bench/families.py [NAME ...] [--precision fp32,fp16] [--backend onnxruntime]
                                   [--what engine,eager,train] [--jobs 1] [--out FOLDER]

A NAME is a family of family_configs.py, a function of own_nets.py (both in tests/support/models) as
own:resnet50, or one of either with options of `layerline export` behind it, in quotes:
"t5 --part decoder", "bert --padded --batch 3", "gpt2 --phase decode --past 8". Without a name all
are run. Sizes are tiny and iterations few: what is told is whether a model goes through, whether
its engine's outputs are right, which of the sums over operations (checks i and ii) do not add up,
and the share of the time in modules; times say nothing, and check iii, over two runs, is left out.

Each runs in processes of its own with a TMPDIR of its own, `--jobs` of them at once; what it
printed is FOLDER/NAME.log, and the rows are FOLDER/families.jsonl, too.
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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[1] / "support/models"
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


KINDS = ("engine", "eager", "training")


@dataclass(frozen=True)
class Outcome:
    """How one went. `failed`: the command that ended otherwise than with 0; `said`: its error.
    `coverage`: the least share of time in modules of each of `KINDS`; `outputs`: whether the
    engine's are right; `sums`: which do not add up. None is not measured."""

    name: str
    precision: str
    failed: str | None = None
    said: str = ""
    coverage: dict[str, float] = field(default_factory=dict)
    outputs: bool | None = None
    sums: list[str] = field(default_factory=list)

    @property
    def row(self) -> str:
        shares = (self.coverage.get(side) for side in KINDS)
        cells = ["–" if s is None else f"{100 * s:.2f} %" for s in shares]
        result = "whole way" if self.failed is None else f"{self.failed} ended"
        outputs = {True: "right", False: "wrong", None: "–"}[self.outputs]
        said = (self.said, ", ".join(self.sums))
        return f"| {' | '.join([self.name, self.precision, result, *cells, outputs, *said])} |"


def model_of(name: str, folder: Path) -> str:
    """What --model is given."""
    kind, _, function = name.partition(":")
    if kind == "own":
        return f"{SUPPORT / 'own_nets.py'}:{function}"
    model = folder / name
    model.mkdir()
    (model / "config.json").write_text(json.dumps(CONFIGS[name]))
    return str(model)


def commands(name: str, folder: Path, asked: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """The command lines of the whole way."""
    family, *options = name.split()
    model, run = model_of(family, folder), str(folder / "run")
    sides = ("--precision", asked.precision, "--backend", asked.backend)
    decodes, sequence = "--phase" in options, ()
    config = {*CONFIGS.get(family, {})}
    spectrogram = "encoder" in options and "max_source_positions" in config
    if {"vocab_size", "text_config"} & config and not decodes and not spectrogram:
        sequence = ("--seq", "16")
    yield ("export", run, "--model", model, *sides, *sequence, *options)
    yield ("engines", run, *sides)
    yield ("profile", run, *sides, "--what", asked.what, "--iterations", "4", "--seconds", "2")
    yield ("report", run)


def outcomes(name: str, run: Path, precisions: list[str]) -> Iterator[Outcome]:
    """What the report says of each precision that has an engine."""
    summary = json.loads((run / "report" / "summary.json").read_text())
    for precision in precisions:
        engines = [e for e in summary["engines"].values() if e["precision"] == precision]
        found: dict[str, list[dict[str, Any]]] = {"engine": engines, "eager": [], "training": []}
        for key, side in summary["eager"].items():
            if side["precision"] == precision:
                found["eager" if key.endswith("inference") else "training"].append(side)
        wrong = [
            f"{kind} {check}"
            for kind, sides in found.items()
            for side in sides
            for check, sum_ in side["closure"].items()
            if check != "iii" and sum_["ok"] is False
        ]
        judged = [e["outputs"]["ok"] for e in engines if e["outputs"]]
        yield Outcome(
            name,
            precision,
            failed=None if engines else "engines: none",
            coverage={k: min(s["coverage"] for s in v) for k, v in found.items() if v},
            outputs=all(judged) if judged else None,
            sums=[*dict.fromkeys(wrong)],
        )


def whole_way(name: str, asked: argparse.Namespace, out: Path) -> list[Outcome]:
    """Run one; its files are removed again."""
    precisions = asked.precision.split(",")
    with (
        tempfile.TemporaryDirectory(prefix="layerline-family-") as folder,
        (out / f"{re.sub(r'[^0-9A-Za-z_]+', '-', name)}.log").open("w") as log,
    ):
        environment = {**os.environ, "TMPDIR": folder}
        failed, said = None, ""
        for command in commands(name, Path(folder), asked):
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
        if not (report / "summary.json").exists():
            return [Outcome(name, p, failed, said) for p in precisions]
        kept = out / "reports" / name.replace(" ", "_").replace(":", "-")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(report, kept)
        found = outcomes(name, report.parent, precisions)
        return [replace(o, failed=failed or o.failed, said=said) for o in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--precision", default="fp32", help="fp32, or joined with commas")
    parser.add_argument("--backend", default="onnxruntime", help="of layerline engines")
    parser.add_argument("--what", default="engine,eager,train", help="of layerline profile")
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--out", type=Path, help="logs and reports (default: a temporary folder)")
    options = parser.parse_args()
    out = options.out or Path(tempfile.mkdtemp(prefix="layerline-families-"))
    out.mkdir(parents=True, exist_ok=True)
    names = options.names or (*(f"own:{f}" for f in OWN), *CONFIGS, *VARIANTS)
    print(f"logs and reports: {out}\n")
    print("| model | precision | result | engine | eager | training | outputs | said | sums |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool, (out / "families.jsonl").open("a") as rows:
        for found in pool.map(lambda name: whole_way(name, options, out), names):
            for outcome in found:
                print(outcome.row, flush=True)
                print(json.dumps(asdict(outcome)), file=rows, flush=True)


if __name__ == "__main__":
    main()
