"""How hot parameters are, as a chart for a paper: by parameter, and by kind of layer."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path

from ....core.errors import one_line
from ...metrics.plots import COLOURS, STYLE, check, matplotlib, save
from ...parameters.history import History
from ...parameters.hotness import Hotness, by_kind

_SHOWN = 12  # kinds; the others are one


def plot(runs: Sequence[tuple[History, Sequence[Hotness]]], path: Path) -> None:
    """Each run as a row: on the left its parameters in the model's order, on the right kinds of
    layers, the coldest first. ToolMissing without matplotlib."""
    check(path)
    library, figure_of = matplotlib()
    kinds = dict.fromkeys(g.name for _, parameters in runs for g in by_kind(parameters))
    colours = dict(zip(kinds, itertools.cycle(COLOURS), strict=False))
    with library.rc_context(STYLE):
        figure = figure_of(figsize=(7.2, 0.5 + 3.2 * len(runs)), layout="constrained")
        grid = figure.subplots(len(runs), 2, squeeze=False, width_ratios=(3, 2), sharex="col")
        for (history, parameters), (left, right) in zip(runs, grid, strict=True):
            shares = any(p.share is not None for p in parameters)
            what = "elements changed in a step (%)" if shares else "steps that changed it (%)"
            for kind in kinds:
                mine = [p for p in parameters if p.kind == kind]
                left.scatter(
                    [p.about.index for p in mine], [100 * p.heat for p in mine],
                    s=6, color=colours[kind], linewidths=0,
                )  # fmt: skip
            left.set_ylim(-4, 104)
            left.set_ylabel(what)
            left.set_title(one_line(history.source), loc="left")
            groups = by_kind(parameters)[:_SHOWN]
            heat = [100 * sum(m.heat for m in g.members) / len(g.members) for g in groups]
            names = [f"{g.name} ({len(g.members)})" for g in groups]
            right.barh(names, heat, color=[colours[g.name] for g in groups])
            right.set_xlim(0, 100)
            right.invert_yaxis()
            right.tick_params(axis="y", labelsize=6)
        grid[-1][0].set_xlabel("parameter, in the model's order")
        grid[-1][1].set_xlabel("mean of the kind (%)")
        steps = ", ".join(f"{int(h.stepped.sum())}" for h, _ in runs)
        count = ", ".join(str(len(p)) for _, p in runs)
        source = f"n = {count} parameters over {steps} optimizer steps; a change is one of any bit"
        figure.supxlabel("\n".join(textwrap.wrap(source, 120)), fontsize=6, x=0.01, ha="left")
        save(figure, path)
