"""`layerline export`: arguments and messages; the work is in `stage`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..core.cli.options import FilePath, Finite, given, listed
from ..core.cli.progress import log
from ..core.errors import InputError
from ..core.run import open_run
from . import inference, opsets, overrides
from .models import onnx_precision
from .source import Request, builtin_names
from .stage import FILES, Options, Stage

DEFAULT = "fp32,fp16"
PAST = 512


@click.command()
@click.option("--run", "run_path", type=FilePath(), required=True, metavar="DIR")
@click.option(
    "--model",
    default="gpt2",
    show_default=True,
    help=f"{', '.join(builtin_names())}; a folder; a hub id; or your own code, own.py:build or "
    "package.module:function, which is executed (layerline init own.py writes one).",
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    default=(DEFAULT,),
    show_default=True,
    help="fp32, tf32 (fp32's file), fp16, bf16; again or with commas for several.",
)
@click.option("--batch", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--seq", type=click.IntRange(min=1), default=128, show_default=True)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option(
    "--opset",
    type=int,
    help="17, 18 or 20.  [default: what the backend computes as ONNX means it]",
)
@click.option(
    "--backend",
    help="What the engines will be built with, for --opset.  [default: the first that runs]",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Configuration.")
@click.option("--dynamic", multiple=True, metavar="batch,seq", help="Axes left open.")
@click.option("--revision", help="Of a hub model.")
@click.option(
    "--part",
    type=click.Choice(["whole", "encoder", "decoder"]),
    default="whole",
    show_default=True,
    help="Of an encoder-decoder: both in one graph, or one alone.",
)
@click.option(
    "--padded", is_flag=True, help="Sequences of differing lengths, with an attention mask."
)
@click.option(
    "--phase",
    type=click.Choice(["prefill", "decode"]),
    default="prefill",
    show_default=True,
    help="decode: one token with a cache of --past tokens.",
)
@click.option(
    "--past", type=click.IntRange(min=1), help="Of --phase decode.  [default: 512]", metavar="N"
)
@click.option(
    "--tolerance",
    type=Finite(min=0),
    default=Options.tolerance,
    show_default=True,
    help="Largest absolute difference of the fp32 file from eager fp32.",
)
@click.option(
    "--external-above",
    type=click.IntRange(min=0),
    default=Options.external_above,
    metavar="BYTES",
    help="Weights beyond this go to a .onnx.data file. [default: 2 GB]",
)
@click.option("-v", "--verbose", is_flag=True, help="All that torch and transformers say.")
def export(
    run_path: Path,
    precisions: tuple[str, ...],
    opset: int | None,
    backend: str | None,
    settings: tuple[str, ...],
    dynamic: tuple[str, ...],
    tolerance: float,
    external_above: int,
    verbose: bool,
    phase: str,
    past: int | None,
    **asked: Any,
) -> None:
    """A model to ONNX, every node named after the module it came from.

    Writes RUN/export: an ONNX file per precision, nodes.json, model.json, inputs.npz and
    parity.json (ONNX Runtime against eager fp32 on the same tokens). What is valid is kept.
    """
    if opset is not None:
        opsets.check_offered(opset)
    library = _library(backend)
    if past is not None and phase != "decode":
        raise click.UsageError("--past is of --phase decode")
    past = (past or PAST) if phase == "decode" else None
    if past is not None:
        if given("seq"):
            raise click.UsageError("--seq is of no use for --phase decode: a step is one token")
        asked["seq"] = 1
    axes = _axes(dynamic)
    request = Request(settings=overrides.split(settings), dynamic=axes, past=past, **asked)
    wanted = {onnx_precision(p) for p in listed(precisions) or listed([DEFAULT])}
    run = open_run(run_path, create=True)
    choices = (opset,) if opset is not None else opsets.computed_by(*library)
    stages = [Stage(run, request, Options(n, tolerance, external_above, verbose)) for n in choices]
    # An export that is there already is kept where the backend computes its opset.
    stage = next((s for s in stages if s.model_step().valid()), stages[0])
    ran = stage.export([p for p in FILES if p in wanted])
    if not ran:
        log(f"{run_path}: the export is up to date")


def _library(backend: str | None) -> tuple[str, str | None]:
    """The backend asked for, or the first that runs here, and its version of TensorRT."""
    here = (name for name in inference.BACKENDS if inference.unavailable(name) is None)
    name = inference.known(backend) if backend else next(here, "onnxruntime")
    return name, inference.tensorrt_version(name)


def _axes(texts: tuple[str, ...]) -> tuple[str, ...]:
    axes = listed(texts)
    for axis in axes:
        if axis not in ("batch", "seq"):
            raise InputError(f"--dynamic {axis}: no such axis", fix="choose from batch, seq")
    return tuple(axis for axis in ("batch", "seq") if axis in axes)
