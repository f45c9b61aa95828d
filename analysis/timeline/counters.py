"""Hardware counters over the kernels they belong to, from the run's Nsight Compute captures.

ncu runs each kernel alone, several times over, at clocks of its own: its durations are never used.
What it counts (FLOP, bytes) is divided by the time that the kernel took in this timeline's capture,
and percentages are ncu's own. A kernel is found by its layer (eager: its range, in backward its
module), its name and which one of that name in the layer it is; ncu's first iteration stands for
the one that is shown. Launches without counters are counted too where a plan names them; where a
layer has another number of such kernels here than there, which is which is unknown.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core import kernel_names
from ...core.own_ranges import NO_LAYER, PHASE, PREFIX
from ..counters import launches
from ..counters.representatives import label
from ..counters.units import base_unit
from ..roofline import roofline
from .operations import Extra, Operations
from .tracks import About, Ints, Slices, Track, Values, apart, track_of

HOW = "from replayed, serialised kernels (ncu); its durations are never used"
_TENSOR = "pipe_tensor"
# The mean of the SMs: their maximum is of another moment for each, and may be beyond 100 %.
_PERCENT = ".avg.pct_of_peak_sustained_active"
FLOP, BYTES, TENSOR = "ncu.flop", "ncu.dram_bytes", "ncu.tensor_pipe_pct"
_MEASURED = "ncu.measured"
_COLUMNS = ["kind", "name", "layer", "range", "phase", "modules"]


_Key = tuple[str, str]  # layer, function


def read(table: pa.Table, ops: pa.Table, plan: Mapping[str, Any] | None = None) -> Extra:
    """What ncu measured of each row of `ops` (by start). `table`: the `counters` of one side;
    `plan`: the document whose launches they are, None for none."""
    values: list[About] = []
    places: dict[tuple[str, str, int], int] = {}  # layer, function, which one: into `values`
    count: Counter[_Key] = Counter()
    for source in pc.unique(table["source"]).to_pylist():
        part = table.filter(pc.equal(table["source"], source))
        numbers = _numbers(part)
        seen: Counter[_Key] = Counter()
        for number, key in _launches(part, plan):
            place = (*key, seen[key])
            seen[key] += 1
            if number in numbers and place not in places:
                places[place] = len(values)
                values.append(_about(numbers[number]))
        count |= seen
    return Extra(_codes(ops, places, count), values)


def _launches(part: pa.Table, plan: Mapping[str, Any] | None) -> list[tuple[int, _Key]]:
    """The launches of one iteration in their order. Of an eager capture the plan's, which has
    those without counters too; an engine's plan names layers without their occurrences."""
    planned = plan["launches"] if plan else []
    if any(x.get("place") for x in planned):
        rows = [(x["index"], label(x) or NO_LAYER, x["kernel"]) for x in planned]
    else:
        own = launches.of_table(part)
        rows = [(x.launch, x.layer, x.kernel) for x in own if not x.iteration]
    return [(n, (layer, kernel_names.function_name(kernel))) for n, layer, kernel in rows]


def _codes(ops: pa.Table, places: Mapping[tuple[str, str, int], int], count: Counter[_Key]) -> Ints:
    engine = any(layer != NO_LAYER and not layer.startswith(PREFIX) for layer, _ in count)
    kernels = {
        row: (_layer(r, engine), kernel_names.function_name(r["name"]))
        for row, r in enumerate(ops.select(_COLUMNS).to_pylist())
        if r["kind"] == "kernel"
    }
    here = Counter(kernels.values())
    seen: Counter[_Key] = Counter()
    code = np.full(len(ops), -1, np.int64)
    for row, key in kernels.items():
        if here[key] == count[key]:
            code[row] = places.get((*key, seen[key]), -1)
            seen[key] += 1
    return code


def _layer(op: Mapping[str, Any], engine: bool) -> str:
    """As `representatives.label`: the layer, the own range, else of backward the module, else the
    phase (gradient sums, the optimizer)."""
    if engine:
        return op["layer"] or NO_LAYER
    own, phase = op["range"], op["phase"]
    modules: list[str] = op["modules"] or []
    if own and own.startswith(PREFIX):
        return str(own)
    if phase == "backward" and len(modules) == 1:
        return f"{PHASE}backward/{modules[0]}"
    return f"{PHASE}{phase}" if phase and not modules else own or NO_LAYER


def _numbers(part: pa.Table) -> dict[int, dict[str, Any]]:
    """Metrics by launch, in base units."""
    numbers: dict[int, dict[str, Any]] = defaultdict(dict)
    columns = ["launch", "metric", "unit", "value", "representative_of"]
    for row in part.select(columns).to_pylist():
        of = numbers[row["launch"]]
        of["of"] = row["representative_of"]
        if row["value"] is not None:
            of[row["metric"]] = row["value"] * base_unit(row["unit"])[0]
    return numbers


def _about(numbers: Mapping[str, Any]) -> About:
    of = numbers.get("of")
    about: dict[str, Any] = {
        _MEASURED: "itself" if of is None else f"launch {of} stands for it (the same work)",
        "ncu.representative": of is not None,
        "ncu.how": HOW,
    }
    done = roofline.work({k: v for k, v in numbers.items() if k != "of"})
    parts = [*done.tensor.values(), done.fp32, done.fp16]
    # FLOP are known where those of every kind are: one that was not measured may be all there is.
    if all(p is not None for p in parts):
        about[FLOP] = float(sum(p or 0 for p in parts))
    if done.bytes is not None:
        about[BYTES] = float(done.bytes)
    pipes = [v for k, v in numbers.items() if _TENSOR in k and k.endswith(_PERCENT)]
    if pipes:
        about[TENSOR] = float(max(pipes))
    return about


def track(ops: Operations, extra: Extra) -> Track | None:
    """The counters as tracks under one; None where nothing was measured."""
    measured = extra.code >= 0
    if not measured.any():
        return None
    wanted = (
        (FLOP, "FLOP/s", 1e9, "FLOP counted by ncu over the kernel's time in this timeline"),
        (BYTES, "DRAM bytes/s", 1e9, "DRAM bytes counted by ncu over the kernel's time here"),
        (TENSOR, "tensor pipe, % of peak while active", None, "ncu's own percentage"),
    )
    below = []
    for key, unit, scale, what in wanted:
        each: list[Any] = [v.get(key, np.nan) for v in extra.values]
        known = np.asarray([*each, np.nan], np.float64)[extra.code]
        if np.isnan(known).all():
            continue
        if scale is not None:
            known = known / np.maximum(ops.slices.end - ops.slices.start, 1) * scale
        note = f"{what}; {HOW}. 0 where no measured kernel runs."
        below.append(Track(unit, note, values=_steps(ops, known, unit)))
    kernels = pc.equal(ops.table["kind"], "kernel").to_numpy()
    lacking = np.flatnonzero(kernels & ~measured)
    if len(lacking):
        same, name = np.zeros(len(ops), np.int64), "not measured"
        about = {"is": "ncu did not measure this kernel: the counters above say nothing here"}
        slices = Slices(ops.slices.start, ops.slices.end, same, [name], same, [about])
        below.append(track_of(name, "", slices, lacking, apart))
    note = f"{measured.sum()} of {kernels.sum()} kernels have counters; {HOW}"
    return Track("counters (ncu)", note, below=below)


def _steps(ops: Operations, value: Any, unit: str) -> Values:
    """A value over each kernel that has one, back to 0 at its end. Kernels that overlap (several
    streams) are cut where the next one starts."""
    rows = np.flatnonzero(~np.isnan(value))
    start, end = ops.slices.start[rows], ops.slices.end[rows]
    until = np.minimum(end, np.append(start[1:], np.iinfo(np.int64).max))
    time = np.column_stack([start, until]).ravel()
    height = np.column_stack([value[rows], np.zeros(len(rows))]).ravel()
    # Where one kernel ends as the next starts only the next one's value is kept.
    kept = np.append(time[1:] != time[:-1], True)
    return Values(time[kept], height[kept], unit)
