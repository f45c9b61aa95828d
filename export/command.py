"""`layerline export`: arguments and messages; the work is in `stage`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from ..core.cli.options import Finite, examples, given, listed, run_argument
from ..core.cli.progress import log
from ..core.errors import InputError
from ..core.run import Run, open_run
from . import inference, opsets, overrides, own
from .models import onnx_precision
from .source import Request, builtin_names
from .stage import FILES, Options, Stage, earlier

DEFAULT = "fp32,fp16"
PAST = 512


@click.command(
    epilog=examples(
        "layerline export runs/gpt2                     # GPT-2 in fp32 and fp16",
        "layerline export runs/bert --model bert --precision fp16 --seq 256",
        "layerline export runs/own --model own.py:build --batch 8",
    )
)
@run_argument()
@click.option(
    "--model",
    default="gpt2",
    help=f"{', '.join(builtin_names())}; a Hugging Face folder; an id of its hub; or your own "
    "code, own.py:build or package.module:function, which is executed (`layerline init own.py` "
    "writes one).  [default: the run's, else gpt2]",
)
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    default=(DEFAULT,),
    show_default=True,
    help="fp32, tf32 (its file is that of fp32), fp16 or bf16; repeat it or join with commas.",
)
@click.option(
    "--batch",
    type=click.IntRange(min=1),
    help="Sequences at once.  [default: 1; of your own code its own]",
)
@click.option(
    "--seq",
    type=click.IntRange(min=1),
    help="Tokens of a sequence.  [default: 128; of your own code its own]",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Seed of random weights and of the tokens.",
)
@click.option(
    "--opset",
    type=int,
    help="ONNX opset: 17, 18 or 20.  [default: one that the backend computes as ONNX means it]",
)
@click.option(
    "--backend",
    help="What will build the engines; it decides the opset.  [default: the first that runs here]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Change one value of the model's configuration; repeatable.",
)
@click.option(
    "--dynamic",
    multiple=True,
    metavar="batch,seq",
    help="Leave these axes open in the ONNX file: batch, seq or both.",
)
@click.option("--revision", help="The revision of a model of the hub.")
@click.option(
    "--part",
    type=click.Choice(["whole", "encoder", "decoder"]),
    default="whole",
    show_default=True,
    help="Which part of an encoder-decoder to export: both in one graph, or one alone.",
)
@click.option(
    "--padded", is_flag=True, help="Use sequences of differing lengths, with an attention mask."
)
@click.option(
    "--phase",
    type=click.Choice(["prefill", "decode"]),
    default="prefill",
    show_default=True,
    help="prefill: all tokens at once; decode: one token, with a cache of --past tokens.",
)
@click.option(
    "--past",
    type=click.IntRange(min=1),
    help="Tokens in the cache of --phase decode.  [default: 512]",
    metavar="N",
)
@click.option(
    "--tolerance",
    type=Finite(min=0),
    default=Options.tolerance,
    show_default=True,
    help="The largest absolute difference allowed between the fp32 file and eager fp32.",
)
@click.option(
    "--external-above",
    type=click.IntRange(min=0),
    default=Options.external_above,
    metavar="BYTES",
    help="Weights larger than this are kept in a .onnx.data file.  [default: 2 GB]",
)
@click.option("-v", "--verbose", is_flag=True, help="Also show what torch and transformers print.")
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
    """Write a model as ONNX, each node named by its module.

    RUN/export then holds an ONNX file for each precision, nodes.json, model.json, inputs.npz and
    parity.json (how far ONNX Runtime is from eager fp32 on the same tokens). What is still valid
    is not made again. A RUN that has an export keeps its model and sizes where none are named.
    """
    if opset is not None:
        opsets.check_offered(opset)
    library = _library(backend)
    wanted = {onnx_precision(p) for p in listed(precisions) or listed([DEFAULT])}
    if not opsets.typed_by_file(*library):
        wanted.add("fp32")
    changed = overrides.split(settings)
    named = {k: v for k, v in asked.items() if given(k)}
    named |= {"dynamic": _axes(dynamic)} if dynamic else {}
    before = None if given("model") else earlier(Run(run_path))
    if before is None:
        code = own.target(asked["model"])
        usual: dict[str, Any] = own.usual(code) if code else {}
        was = Request(**usual)
    else:
        was, made = before
        tolerance = tolerance if given("tolerance") else made.tolerance
        external_above = external_above if given("external_above") else made.external_above
        log(f"{run_path}: {was.model}, as it was exported before")
    decodes = phase == "decode" if given("phase") else was.past is not None
    all_settings = {**was.settings, **changed}
    request = replace(was, settings=all_settings, **_phased(named, was, past, decodes=decodes))
    run = open_run(run_path, create=True)
    choices = (opset,) if opset is not None else opsets.computed_by(*library)
    stages = [Stage(run, request, Options(n, tolerance, external_above, verbose)) for n in choices]
    # An export that is there already is kept where the backend computes its opset.
    stage = next((s for s in stages if s.model_step().valid()), stages[0])
    ran = stage.export([p for p in FILES if p in wanted])
    if not ran:
        log(f"{run_path}: the export is up to date")


def _phased(
    named: dict[str, Any], was: Request, past: int | None, *, decodes: bool
) -> dict[str, Any]:
    """What is `named`, with seq and past of the phase. UsageError where one is of no use for it."""
    if decodes and "seq" in named:
        raise click.UsageError("--seq is of no use for --phase decode: a step is one token")
    if decodes:
        return {**named, "past": past or was.past or PAST, "seq": 1}
    if past is not None:
        raise click.UsageError("--past is of --phase decode")
    usual = {} if was.past is None else {"seq": Request.seq}  # a step's one token is no sequence
    return {**usual, **named, "past": None}


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
