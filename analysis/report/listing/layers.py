"""The `layers` table as text: a line per layer, and a summary.

Of ForeignNodes, regions that TensorRT compiled whole, a layer list and a profile have one time and
nothing of what runs inside; TensorRT's NVTX ranges name each of its fused operations, so that an
nsys capture splits them. See docs/engines/foreign-node.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.text import Text

from ....core.errors import one_line
from ....core.resolve.spelling import reformat_of
from ....core.stats import Estimate, Stat
from ....core.tables import RULES, UNRESOLVED
from ...attribution.resolution import ENOUGH, FITS
from ...formatting import UNKNOWN, percent
from ...model.layer import Times
from . import columns, grid

Row = dict[str, Any]
MAX_UNRESOLVED = 50
MAX_FEWER = 5
# TensorRT 10 and newer, RTX: ``__myl_FcAdd_myl0_6``, ``_gemm_mha_v2_myl0_5``.
_MYELIN = re.compile(r"_myl\d+_\d+\Z")
_LAYER_INFO = (
    "--layer-info layerinfo.json (trtexec --exportLayerInfo of an engine built with "
    "--profilingVerbosity=detailed)"
)


def _whole(row: Row) -> bool:
    """Whether a row is a ForeignNode of which nothing says what kernels it ran."""
    return _foreign(row) and reformat_of(row["layer"]) is None


def _undescribed(row: Row) -> bool:
    """Whether a row is a ForeignNode, a copy around one, or one of Myelin's own, that nothing but
    its name describes and that has no module: no nodes.json alone resolves it."""
    bare = row["kind"] is None and (row["rule"] or "unresolved") == "unresolved"
    return bare and (_foreign(row) or _made_up(row))


def _foreign(row: Row) -> bool:
    return "ForeignNode[" in (row["layer"] or "") and row["kernels"] is None


def _made_up(row: Row) -> bool:
    """Whether Myelin made up the name of a row, of which no kernels are known."""
    return _MYELIN.search(row["layer"] or "") is not None and row["kernels"] is None


def _myelin_hint(rows: Sequence[Row]) -> Iterator[str]:
    """What would tell the nodes of layers that carry no name of one."""
    rows_of = [r for r in rows if _made_up(r) and _undescribed(r)]
    if rows_of:
        total = _total(rows)
        share = f" ({percent(_total(rows_of) / total)} of the time)" if total else ""
        one = len(rows_of) == 1
        which, have = ("layer", "has a name") if one else ("layers", "have names")
        yield (
            f"{len(rows_of)} {which}{share} {have} that TensorRT made up: "
            f"{_LAYER_INFO} tells the nodes"
        )


def hint(rows: Sequence[Row]) -> str | None:
    """One sentence: what would tell more of the ForeignNodes; None where there are none."""
    foreign = [r for r in rows if _whole(r)]
    if not foreign:
        return None
    total = _total(rows)
    one = len(foreign) == 1
    text = "1 layer is a ForeignNode" if one else f"{len(foreign)} layers are ForeignNodes"
    if total:
        text += f" ({percent(_total(foreign) / total)} of the time)"
    text += ", compiled whole: "
    if any(map(_undescribed, foreign)):
        text += f"{_LAYER_INFO} tells its modules by the tensors around it; "
    where = "it" if one else "them"
    text += f"an nsys capture in place of this file splits {where} into operations and kernels"
    return text + "; see docs/engines/foreign-node.md"


def _total(rows: Sequence[Row]) -> int:
    return sum(r["total_ns"] or 0 for r in rows)


def show(
    console: Console,
    layers: pa.Table,
    times: Times,
    *,
    resolved: bool,
    by: str | None = None,
    explain: bool = False,
) -> None:
    """Print the table and its summary. `resolved`: whether nodes were given to resolve with; `by`:
    a row for each "module" or "kind"; `explain`: what the rules mean."""
    rows = layers.to_pylist()
    width = console.width
    grid.show(console, _columns(rows, resolved, width) if by is None else _grouped(rows, by, times))
    console.print()
    for line in summary(rows, times, resolved=resolved):
        console.print(Text(one_line(line)), soft_wrap=True)
    if explain:
        used = {row["rule"] or UNRESOLVED for row in rows}
        for rule in RULES:
            if rule in used:
                console.print(Text(f"rule {rule}: {_RULES[rule]}"), soft_wrap=True)


_RULES = {
    "name": "the layer's name holds the names of its nodes",
    "index": "the layer's name holds a number, and network.json says which node has it",
    "boundary": "the tensors around the layer enclose its nodes in the model's dataflow",
    "order": "layers of one kind are as many as the nodes of that kind, and both have one order",
    "elimination": "all its neighbours' nodes are known, and these are left between them",
    "carrier": "a copy, cast or reordering belongs to the module whose data it moves",
    "range": "the module's own range was open when it was launched",
    "sequence": "PyTorch's number leads from backward to the operator of forward",
    UNRESOLVED: "no rule says for sure which nodes it is, so it has no module: it is no guess",
}


def _columns(rows: list[Row], resolved: bool, width: int) -> list[grid.Column]:
    named = [
        grid.Column("module", [_modules(row["modules"]) for row in rows], False, True),
        grid.Column("layer", [row["layer"] for row in rows], False, True),
    ]
    spread = [Estimate(r["median_ns"], r["ci_low_ns"], r["ci_high_ns"]) for r in rows]
    figures = [
        columns.counts("calls", [r["calls"] for r in rows], spare=3),
        columns.counts("kernels", [r["kernels"] for r in rows], spare=4),
        columns.microseconds("median µs", [r["median_ns"] for r in rows]),
        columns.intervals(spread, width, spare=1),
        columns.shares(_shares(rows)),
    ]
    if not resolved:
        return [named[1], *figures]
    rule = grid.Column("rule", [row["rule"] or UNKNOWN for row in rows], False, spare=2)
    return [*named, rule, *figures]


def _grouped(rows: list[Row], by: str, times: Times) -> list[grid.Column]:
    """A row for each set of modules that layers have, or each kind of layer; the largest first.
    The layers of a row run whole in it, so that rows add up."""
    counted = set(map(id, _by_clock(rows)[0]))
    groups: dict[str, list[Row]] = {}
    for row in rows:
        name = _modules(row["modules"]) if by == "module" else row["kind"]
        groups.setdefault(name or UNKNOWN, []).append(row)
    sums = {name: _total([r for r in own if id(r) in counted]) for name, own in groups.items()}
    names, total = sorted(groups, key=lambda n: -sums[n]), sum(sums.values())
    means = []
    if times.iterations and not times.engines:
        in_one = [sums[name] / times.iterations for name in names]
        means = [columns.microseconds("mean µs", in_one)]
    return [
        grid.Column(by, names, False, True),
        grid.Column("layers", [f"{len(groups[name]):,}" for name in names]),
        columns.milliseconds([sums[name] for name in names]),
        *means,
        columns.shares([sums[name] / total if total else None for name in names]),
    ]


def _shares(rows: list[Row]) -> list[float | None]:
    """Of the time of all rows; None of times that do not make one figure with the others."""
    counted, _ = _by_clock(rows)
    total, shared = _total(counted), set(map(id, counted))
    return [
        None
        if row["total_ns"] is None or not total or id(row) not in shared
        else row["total_ns"] / total
        for row in rows
    ]


def _by_clock(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The rows whose times make one figure, and, where layers have kernels, the nodes without any:
    their time is the host's."""
    with_kernels = any(r["kernels"] is not None for r in rows)
    host = [with_kernels and r["kind"] == "node" and r["kernels"] is None for r in rows]
    return (
        [r for r, apart in zip(rows, host, strict=True) if not apart],
        [r for r, apart in zip(rows, host, strict=True) if apart],
    )


def summary(rows: list[Row], times: Times, *, resolved: bool) -> Iterator[str]:
    """Sentences: how many layers and how much time in an iteration; counts per rule; the
    unresolved by name."""
    everything, (rows, host) = rows, _by_clock(rows)
    total = _total(rows)
    timed = total > 0
    text = f"{len(everything)} layers"
    if timed:
        text += f", {_time(total, times)}" + (" in kernels" if host else "")
    unknown = sum(r["total_ns"] is None for r in everything)
    if unknown:
        text += f", the time of {unknown} unknown"
    yield text
    if host:
        yield _host_time(host, times)
    if timed and (times.iterations or 0) > 1:
        n = times.iterations
        yield (
            f"medians and intervals are per iteration (n {n}{_fewer(rows, times)}); calls, kernels "
            f"and shares are over all {n} together"
        )
    if timed and times.engines:
        yield (
            "medians and intervals are per enqueue of the layer's own engine; calls, kernels and "
            "shares are over all engines together"
        )
    foreign = hint(rows)
    if not resolved:
        if foreign is not None:
            yield foreign
        yield "no module was looked for; name the model's nodes with --nodes nodes.json"
        return
    parts, ids = [], set(map(id, rows))

    def counted(some: list[Row]) -> list[Row]:
        return [r for r in some if id(r) in ids]

    for rule in RULES:
        by_rule = [r for r in everything if (r["rule"] or "unresolved") == rule]
        if by_rule:
            share = f" ({percent(_total(counted(by_rule)) / total)})" if timed else ""
            parts.append(f"{rule} {len(by_rule)}{share}")
    yield "by rule: " + ", ".join(parts)
    missing = [r for r in everything if (r["rule"] or "unresolved") == "unresolved"]
    homeless = [r for r in everything if not r["modules"] and r["rule"] not in (None, "unresolved")]
    if timed:
        known = 1 - _total(counted([*missing, *homeless])) / total
        # A ForeignNode that nothing describes is no fault of nodes.json: the hint is of it.
        beyond = _total([r for r in missing if _undescribed(r)] + counted(homeless)) / total
        question = "" if known + beyond >= ENOUGH else f"; {FITS}"
        yield f"resolved to modules: {percent(known)} of the time{question}"
    else:
        known_layers = len(everything) - len(missing) - len(homeless)
        yield f"resolved to modules: {known_layers} of {len(everything)} layers"
    if homeless:
        share = f" ({percent(_total(counted(homeless)) / total)} of the time)" if timed else ""
        what = "1 layer resolves" if len(homeless) == 1 else f"{len(homeless)} layers resolve"
        yield f"{what}{share} to nodes that name no module"
    if foreign is not None:
        yield foreign
    yield from _myelin_hint(rows)
    for row in missing[:MAX_UNRESOLVED]:
        has_share = timed and row["total_ns"] and id(row) in ids
        share = f" ({percent(row['total_ns'] / total)})" if has_share else ""
        yield f"unresolved: {row['layer']}{share}"
    if len(missing) > MAX_UNRESOLVED:
        yield f"unresolved: and {len(missing) - MAX_UNRESOLVED} more (all with -o)"


def _host_time(host: list[Row], times: Times) -> str:
    ns, n = _total(host), times.iterations
    whole = _mean(ns, n) if n is not None and n > 1 else f"{_ms(ns)} ms"
    what = "1 layer has" if len(host) == 1 else f"{len(host)} layers have"
    return (
        f"{what} no kernels: the time is the host's, {whole}, and is not in the figure above nor "
        "in shares (–)"
    )


def _fewer(rows: list[Row], times: Times) -> str:
    """Which medians are over fewer reports than there were iterations, as far as calls tell."""
    n = times.iterations
    if not times.own_reports or n is None:
        return ""
    calls = [(r["layer"], r["calls"]) for r in rows if r["median_ns"] is not None]
    parts = [f"{name} n {c:,}" for name, c in calls if c is not None and c != n]
    if any(c is None for _, c in calls):
        parts.append("not known where calls are –")
    if len(parts) > MAX_FEWER:
        parts = [*parts[:MAX_FEWER], f"and {len(parts) - MAX_FEWER} more, n being their calls"]
    return "".join(f"; {text}" for text in parts)


def _time(total_ns: int, times: Times) -> str:
    """The time of all layers in one iteration, and in all of them."""
    whole, n, one = f"{_ms(total_ns)} ms", times.iterations, times.total
    if times.engines:
        return f"{whole} in all; per enqueue: " + "; ".join(
            f"engine {i} " + ("unknown" if one is None else f"{_ms(one.median)} ms {_of(one)})")
            for i, one in enumerate(times.engines, 1)
        )
    if n is None:
        return f"{whole} in all (of how many iterations is not known)"
    if n == 1:
        return f"{whole} in the one iteration"
    if one is None:
        return _mean(total_ns, n)
    return f"{_ms(one.median)} ms per iteration {_of(one)}; {whole} in all)"


def _mean(ns: int, iterations: int) -> str:
    return f"{_ms(ns / iterations)} ms per iteration (mean of {iterations}; {_ms(ns)} ms in all)"


def _of(one: Stat) -> str:
    """Of how many iterations a median is, and its interval; the bracket stays open."""
    if one.low is None or one.high is None:
        return f"(median of {one.n}"
    return f"(median of {one.n}, 95 % interval {_ms(one.low)} … {_ms(one.high)}"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:,.3f}"


def _modules(modules: list[str] | None) -> str:
    if modules is None:
        return UNKNOWN
    return ", ".join(m or "(the model)" for m in modules) or "none"
