"""The parallel workloads as `layerline train` asks for them: their options of a `Request`.

What a `Request` has no field for is in its settings (``--set layout=DP_TP --set tp=4``).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from ...core.cli.progress import log
from ...core.errors import InputError
from ..request import Request, choose_device, set_up
from ..training import Training
from . import layouts as gpt
from . import llama as meta
from . import sequence_parallel as exchange
from .options import Options, converted, known
from .report import Journal
from .step import ParallelTraining


def llama(request: Request) -> ParallelTraining:
    """Llama-2; --checkpoint is of every block, ``--set checkpoint_every=2`` of every second."""
    more = {"compile": request.compile, "checkpoint_every": int(request.checkpoint)}
    options = _options(meta.LlamaOptions, request, more)
    if options.global_batch is None:
        step = options.micro_batch * request.accumulate * request.ranks
        options = dataclasses.replace(options, global_batch=step)
    return _watched(meta.build(options, _device(request), request.rank, request.ranks), options)


def gpt_layouts(request: Request) -> ParallelTraining:
    """GPT in a layout. A step's batch is that of --batch, --accumulate and the ranks, if it is
    not set (``global_batch``)."""
    if request.checkpoint or request.compile:
        raise InputError("gpt-layouts is neither checkpointed nor compiled", fix="take llama")
    options = _options(gpt.LayoutOptions, request, {})
    if "global_batch" not in request.settings:
        options.check()
        known("layout", options.layout, gpt.LAYOUTS)
        step = options.micro_batch * request.accumulate * options.degrees(request.ranks)["dp"]
        options = dataclasses.replace(options, global_batch=step)
    return _watched(gpt.build(options, _device(request), request.rank, request.ranks), options)


def sequence_parallel(request: Request) -> Training:
    """The exchange; a step is an iteration."""
    precisions = {"fp32": "float32", "bf16": "bfloat16"}
    values = {
        "sequence": request.seq,
        "precision": precisions.get(request.precision, request.precision),
        "seed": request.seed,
        **request.settings,
    }
    options = converted(exchange.SequenceParallelOptions, values)
    return exchange.build(options, _device(request), request.rank, request.ranks)


def _watched(training: ParallelTraining, options: Options) -> ParallelTraining:
    """With reports in the log and checkpoints, from the newest of which it goes on."""
    journal = Journal(options, lambda report: log(report.line()))
    if (first := journal.resume(training)) and training.rank == 0:
        log(f"goes on after step {first}")
    training.watchers["reports and checkpoints"] = journal
    return training


def _device(request: Request) -> Any:
    set_up(request.precision, request.seed, request.threads, request.deterministic)
    return choose_device(request.device, request.local)


def _options(kind: type[Any], request: Request, more: dict[str, Any]) -> Any:
    values = {
        "text": request.text,
        "tokenizer": request.tokenizer,
        "cache": request.cache,
        "precision": request.precision,
        "seed": request.seed,
        "learning_rate": request.learning_rate,
        "fused": request.fused,
        "micro_batch": request.batch,
        "seq": request.seq,
        "model": request.model,
        **more,
        **request.settings,
    }
    return converted(kind, {name: value for name, value in values.items() if value is not None})
