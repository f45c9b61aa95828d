"""`layerline sweep`: the run's engines at other batch sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ...core.cli.options import examples, listed, run_argument
from ...core.run import open_run
from ...engines import backend as backends
from ...engines.command import DEFAULT_PRECISIONS, given_precisions
from .. import steps
from . import measure

# Dimensions of engines are 32-bit (TensorRT), and no memory holds more.
LARGEST = 2**31 - 1


def _batches(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[int, ...]:
    batches = [b.strip() for value in values for b in value.split(",") if b.strip()]
    for batch in batches:
        if not batch.isdecimal() or not int(batch):
            raise click.BadParameter(f"{batch!r} is no batch size; give whole numbers from 1")
        if int(batch) > LARGEST:
            raise click.BadParameter(f"{batch} is more than any engine takes ({LARGEST})")
    if not batches:
        raise click.BadParameter("no batch size is given; name some, as in 1,4,8")
    return tuple(sorted({int(b) for b in batches}))


@click.command(
    epilog=examples(
        "layerline sweep runs/gpt2 --batches 1,2,4,8,16",
        "layerline report runs/gpt2 --open              # shows the sweep",
    )
)
@run_argument()
@click.option(
    "--batches",
    multiple=True,
    required=True,
    callback=_batches,
    metavar="N,N,…",
    help="Batch sizes; repeat it or join with commas.",
)
@click.option(
    "--precision",
    "wanted",
    multiple=True,
    callback=given_precisions,
    help="fp32, tf32, fp16 or bf16; repeat it or join with commas.  "
    "[default: those of the run's engines]",
)
@click.option(
    "--backend",
    "names",
    multiple=True,
    help="tensorrt, onnxruntime-cuda, onnxruntime or inductor; repeat it or join with commas.  "
    "[default: those of the run's engines]",
)
@steps.repeat_options("point", "15")
def sweep(
    run_path: Path,
    batches: tuple[int, ...],
    wanted: tuple[str, ...],
    names: tuple[str, ...],
    **limits: Any,
) -> None:
    """Measure latency and throughput at several batch sizes.

    For each batch size the model is exported, built and measured in RUN/sweep/batch-N, with the
    run's own sequence length, seed and build options. `layerline report` shows the results. What
    is still valid is not made again; a batch size that fails is listed with the reason.
    """
    run = open_run(run_path)
    measure.exported(run)  # a run without an export is refused before anything is looked for
    engines = []
    for precision, name in _engines(measure.built(run), wanted, listed(names)):
        backend = backends.load(name)
        backends.check_precision(backend, precision)
        engines.append(measure.asked(run, precision, backend))
    measure.sweep(run, batches, engines, limits)


def _engines(
    built: list[tuple[str, str]], wanted: tuple[str, ...], names: tuple[str, ...]
) -> list[tuple[str, str]]:
    """(precision, backend) to measure: what was asked for, filled up from the run's engines."""
    if wanted and names:
        return [(p, n) for n in names for p in wanted]
    kept = [e for e in built if (not wanted or e[0] in wanted) and (not names or e[1] in names)]
    if kept and {p for p, _ in kept} >= set(wanted) and {n for _, n in kept} >= set(names):
        return kept
    chosen = names or tuple(dict.fromkeys(n for _, n in built)) or (backends.choose(None).name,)
    return [(p, n) for n in chosen for p in wanted or DEFAULT_PRECISIONS]
