"""Charts of metrics over a capture, as files for a paper: PDF, SVG or PNG by their suffix."""

from __future__ import annotations

import itertools
import textwrap
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...core.errors import InputError, ToolMissing, one_line
from ...core.files import replacing
from .capture import Capture
from .meanings import spelled
from .series import Series

SUFFIXES = (".pdf", ".svg", ".png")
STYLE = {
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "text.parse_math": False,  # a dollar sign in a name is one
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
    "svg.hashsalt": "layerline",
}
# Okabe and Ito's colours, which the colour-blind can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_PHASES = {"forward": "#0072B2", "backward": "#D55E00", "optimizer": "#009E73", "loss": "#999999"}
_MIB = 1 << 20


def plot(one: Series, capture: Capture, path: Path) -> None:
    """One metric over the capture's kernel time. ToolMissing without matplotlib."""
    spelling = spelled(one.metric)
    title = f"{one.metric}\n({spelling})" if spelling else one.metric
    _draw([one], capture, path, title)


def overlay(several: Sequence[Series], capture: Capture, path: Path) -> None:
    """Several metrics on one logarithmic axis, in base units. Zeros are not drawn, and counted."""
    if len(several) < 2:
        raise InputError(
            "an overlay needs at least two metrics",
            fix="name more with --metric (`layerline metrics list` shows all)",
        )
    units = {s.unit for s in several}
    shared = units.pop() if len(units) == 1 else None
    title = f"{len(several)} metrics" + (f" in {shared}" if shared else ", each in its unit")
    _draw(several, capture, path, title)


def _draw(several: Sequence[Series], capture: Capture, path: Path, title: str) -> None:
    """One metric on a linear axis, or several on a logarithmic one."""
    check(path)
    library, figure_of = matplotlib()
    with library.rc_context(STYLE):
        figure = figure_of(figsize=(6.3, 3.0), layout="constrained")
        axes = figure.add_subplot()
        edges, across = _edges(several[0])
        notes: list[str] = []
        alone = len(several) == 1
        for series, colour in zip(several, itertools.cycle(COLOURS), strict=False):
            notes += _line(axes, series, edges, colour, alone=alone)
        if not alone:
            axes.set_yscale("log")
        units = list(dict.fromkeys(s.unit or "no unit" for s in several))
        axes.set_ylabel(units[0] if len(units) == 1 else "value in its unit (see legend)")
        axes.set_xlabel(across)
        axes.set_xlim(edges[0], edges[-1])
        device = capture.device
        if "byte" in units and device is not None and device.l2_bytes is not None:
            label = f"L2 of {device.name}: {device.l2_bytes / _MIB:g} MiB"
            style = {"color": "#555555", "linestyle": "--", "linewidth": 0.8}
            axes.axhline(device.l2_bytes, **style, label=label)
        _mark_phases(axes, several[0], capture.phases, edges)
        axes.set_title(title, loc="left")
        if entries := len(axes.get_legend_handles_labels()[0]):
            # Of the axes, not of the figure: there it would lie on the line about the source.
            axes.legend(loc="upper left", bbox_to_anchor=(0, -0.19), fontsize=7)
            figure.set_size_inches(6.3, 3.0 + 0.15 * entries)
        figure.supxlabel(_source(several, capture, notes), fontsize=6, x=0.01, ha="left")
        save(figure, path)


def save(figure: Any, path: Path) -> None:
    """Write a figure, whole or not at all, the same bytes each time."""
    metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(path.suffix)
    with replacing(path) as temporary, warnings.catch_warnings():
        # A box stands for a letter that the font lacks, of a file's name or a layer's.
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        figure.savefig(temporary, dpi=200, metadata=metadata)


def check(path: Path) -> None:
    """InputError for a suffix that is none of `SUFFIXES`; before the work is done."""
    if path.suffix not in SUFFIXES:
        raise InputError(
            f"cannot be drawn as {path.suffix or 'a file without suffix'}",
            file=path,
            fix=f"use {', '.join(SUFFIXES)}",
        )


def matplotlib() -> tuple[Any, Any]:
    """The library and its figures. ToolMissing where it is not installed."""
    try:
        import matplotlib as library
        from matplotlib.figure import Figure
    except ImportError as e:
        raise ToolMissing(
            f"charts need matplotlib ({e})", fix="pip install 'layerline[plots]'"
        ) from None
    return library, Figure


def _edges(one: Series) -> tuple[Any, str]:
    """Where kernels begin and end on the x axis, and its label."""
    if len(one.value) and np.isfinite(one.cumulative_time_ns).all():
        return (
            np.concatenate([[0.0], one.cumulative_time_ns]) / 1e3,
            "kernel time, summed (us; kernels replayed one by one under ncu)",
        )
    return np.arange(len(one.value) + 1), "kernel, in order of launch"


def _line(axes: Any, series: Series, edges: Any, colour: str, *, alone: bool) -> list[str]:
    """Draw one metric; gives what is not drawn of it."""
    values = series.value
    notes: list[str] = []
    if not alone:
        if zeros := int((values <= 0).sum()):
            notes.append(f"{zeros} of {len(values)} values of {series.metric} are 0: not drawn")
        values = np.where(values > 0, values, np.nan)
    if missing := len(series.value) - series.known:
        notes.append(f"{missing} kernels have no {series.metric}")
    label = None if alone else f"{series.metric} ({series.unit or 'no unit'})"
    axes.stairs(values, edges, color=colour, linewidth=1.0, label=label, baseline=None)
    if alone:
        axes.stairs(np.nan_to_num(values), edges, color=colour, alpha=0.15, fill=True)
        axes.set_ylim(bottom=min(0.0, float(np.nan_to_num(values).min(initial=0.0))))
    return notes


def _mark_phases(axes: Any, one: Series, phases: Mapping[int, str], edges: Any) -> None:
    """Shade runs of kernels in one phase, each phase named once."""
    named: set[str] = set()
    end = 0
    for phase, run in itertools.groupby(phases.get(int(i)) for i in one.kernel_id):
        begin, end = end, end + len(list(run))
        if phase is not None:
            label, colour = None if phase in named else phase, _PHASES.get(phase, "#999999")
            axes.axvspan(
                edges[begin], edges[end], color=colour, alpha=0.10, linewidth=0, label=label
            )
            named.add(phase)


def _source(several: Sequence[Series], capture: Capture, notes: Sequence[str]) -> str:
    device = capture.device.name if capture.device else "device not named"
    n = len(several[0].value)
    rows = "ranges, each replayed as one" if capture.ranges else "kernel launches"
    first = f"{device}; {one_line(capture.name)}; n = {n} {rows}"
    if capture.partly:
        first += f" ({capture.partly.partition(';')[0]})"
    return "\n".join(textwrap.wrap("; ".join([first, *notes]), 120))
