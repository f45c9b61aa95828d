"""A capture at the fraction against one of every launch, as text."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from layerline.core.errors import one_line

from ..report.show import percent

MOST = 20  # layers that are listed; the JSON has all


def show(console: Console, found: dict[str, Any]) -> None:
    """Print what was saved, the differences per metric, and the layers beyond the limit."""
    for line in lines(found):
        console.print(Text(one_line(line)), soft_wrap=True)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column("metric", overflow="fold")
    for heading in ("layers", "median", "p90", "worst"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("worst layer", overflow="fold")
    for metric, of in found["metrics"].items():
        worst = of["worst"] or {}
        cells = [metric, str(of["count"]), _percent(of["median"]), _percent(of["p90"])]
        cells += [_percent(worst.get("relative")), worst.get("layer", "")]
        table.add_row(*(Text(one_line(c)) for c in cells))
    if found["metrics"]:
        console.print(table)
    for x in found["beyond"][:MOST]:
        text = (
            f"{_percent(x['relative'])}  {x['metric']} of {x['layer']}: "
            f"{x['fraction']:g}, and {x['every']:g} where every launch was replayed"
        )
        console.print(Text(one_line(text)), soft_wrap=True)
    if len(found["beyond"]) > MOST:
        console.print(f"… and {len(found['beyond']) - MOST} more; -o writes all", soft_wrap=True)


def lines(found: dict[str, Any]) -> list[str]:
    """Sentences: what was saved, the differences over all, what was left out."""
    every = found["differences"]
    said = [
        f"{found['fraction']} against {found['every']}",
        f"replayed: {_percent(found['replayed_share'])} of the launches "
        f"({found['replayed']} of {found['launches']})",
        f"time: {_percent(found['profiled_ratio'])} from profiler start to stop, "
        f"{_percent(found['whole_ratio'])} with the start of the program",
        f"differences of layers: median {_percent(every['median'])}, p90 {_percent(every['p90'])}"
        f"{_worst(every)}; replayed in both: median {_percent(found['noise']['median'])}, "
        f"p90 {_percent(found['noise']['p90'])}",
        f"{len(found['beyond_layers'])} of {found['layers']} layers have a metric beyond "
        f"{percent(found['limit'])}",
    ]
    if found["zero_in_both"]:
        names = ", ".join(found["zero_in_both"])
        said.append(f"zero in both, so not in these numbers: {names}")
    return said


def _worst(of: dict[str, Any]) -> str:
    worst = of["worst"]
    if worst is None:
        return ""
    return f", worst {_percent(worst['relative'])} ({worst['metric']} of {worst['layer']})"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else percent(share)
