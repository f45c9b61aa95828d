"""The precision asked for against the precision that ran, by share of kernel time.

Kernels tell it by their names (`compute_precisions`); those that multiply nothing, or whose names
do not tell, are "unknown" and prove neither. What follows from the shares:

| asked for | an error | a warning |
| --- | --- | --- |
| fp32 | any TF32 or half kernel | |
| tf32 | | no TF32 kernel |
| fp16, bf16 | no kernel of that type | |

Errors are for backends that claim to support the precision: an "fp16" engine without half kernels
is one. Where the builder took other types for a part of the layers, that is a note with shares:
the fastest kernel of a small layer may well be another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ...core import tables
from ..costs.iterations import by_iteration, iterations_of, stat
from ..costs.kernel_precisions import compute_precisions
from ..formatting import filled, percent
from ..model.comparison import Check, Wording

CHECK = "precision"
UNKNOWN = "unknown"
# Backends whose engines are claimed to run in the precision that they were built for.
CLAIMING = ("tensorrt", "tensorrt-rtx", "onnxruntime-cuda", "inductor")
_ORDER = ("fp8", "int8", "fp16", "bf16", "tf32", "fp32", "fp64")


@dataclass(frozen=True)
class KernelTime:
    """Nanoseconds of kernels per compute precision, the median over iterations, and their sum over
    all iterations as a share of all kernel time. "unknown" where names do not tell."""

    ns: Mapping[str, int]
    share: Mapping[str, float]

    @property
    def known(self) -> dict[str, float]:
        """Shares of the precisions that names tell."""
        return {p: s for p, s in self.share.items() if p != UNKNOWN}


def kernel_time(ops: pa.Table, listed: Mapping[str, str] | None = None) -> KernelTime | None:
    """How kernel time is shared among compute precisions; null where there are no kernels.

    `ops`: rows of one source, precision and phase. `listed`: what layers compute in by the engine's
    layers list, where that tells what a name leaves open.
    """
    ops = ops.select(["kind", "name", "layer", "iteration", "duration_ns"])
    kernels, iteration = iterations_of(tables.of_kinds(ops, ["kernel"], "duration_ns"))
    precisions = compute_precisions(kernels, listed or {})
    code, names = tables.codes(pc.fill_null(precisions, UNKNOWN))
    _, matrix = by_iteration(code, len(names), iteration, kernels["duration_ns"].to_numpy())
    everything = int(matrix.sum())
    if not everything:
        return None
    times = dict(zip(names, matrix, strict=True))
    ordered = sorted(names, key=lambda p: (_ORDER.index(p) if p in _ORDER else len(_ORDER), p))
    medians = {p: stat(times[p]) for p in ordered}
    return KernelTime(
        {p: s.median for p, s in medians.items() if s is not None},
        {p: int(times[p].sum()) / everything for p in ordered},
    )


def check(asked: str, ran: KernelTime | None, *, claims: bool, label: str) -> Check | None:
    """The check of one side, or null where there are no kernels to look at.

    `claims`: whether this side's software claims to run the precision; then a wrong one is an
    error (`ok` false), else `ok` is null and the text says what ran.
    """
    if ran is None:
        return None
    known = ran.known
    shares = ", ".join(f"{percent(s)} {p}" for p, s in sorted(known.items(), key=lambda i: -i[1]))
    if not known:
        text = "Not checked: no kernel's name tells what it multiplies in."
        return _closure(ran, None, text)
    wrong = _wrong(asked, known)
    if wrong is not None:
        text = f"{label} was asked for {asked}, but {wrong}: {shares} of kernel time."
        return _closure(ran, False if claims and asked != "tf32" else None, text)
    if known.keys() - {asked}:
        text = f"Kernels that multiply ran in more than {asked}: {shares} of kernel time."
        return _closure(ran, True, text)
    wording = Wording(_AS_ASKED, [asked, known[asked], asked])
    return _closure(ran, True, filled(wording.form, wording.figures), wording)


_AS_ASKED = "Every kernel whose name tells what it multiplies in ran {}: {} {} of time."


def _wrong(asked: str, known: Mapping[str, float]) -> str | None:
    if asked == "fp32":
        lower = [p for p in known if p not in ("fp32", "fp64")]
        return f"kernels ran {' and '.join(lower)}" if lower else None
    return None if asked in known else f"no kernel ran {asked}"


def _closure(ran: KernelTime, ok: bool | None, text: str, wording: Wording | None = None) -> Check:
    terms = [(f"{p} kernels", ns) for p, ns in ran.ns.items()]
    return Check(CHECK, terms, None, None, None, ok, text, wording)


def precision_run(layers: pa.Table | None) -> dict[str, float]:
    """Compute precision to its share of the time of the layers that compute.

    A layer without one computes nothing (movement, integers) and has no part in this; where the
    engine does not even tell what goes in, it is "unknown". Empty where nothing is known.
    """
    if layers is None:
        return {}
    time: dict[str, int] = {}
    columns = [layers[c].to_pylist() for c in ("compute_precision", "precision_in", "total_ns")]
    for precision, given, total in zip(*columns, strict=True):
        name = precision or ("unknown" if given is None else None)
        if total and name:
            time[name] = time.get(name, 0) + total
    if set(time) <= {"unknown"}:
        return {}
    everything = sum(time.values())
    ordered = sorted(time.items(), key=lambda item: -item[1])
    return {p: t / everything for p, t in ordered}
