"""The launches of one inference of a package of inductor, by its capture under nsys.

Under ncu the package opens no range, so a launch has its layer from here, and its `place`,
``inference/CALL//MODULE``, stands for the shapes. A generated kernel is the same work wherever it
is called with one grid; a library's kernel, of an extern call, where the call's module is the same
but for the number of its block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...core import torch_ranges
from ...core.own_ranges import PREFIX
from ...core.replay.plan import Launch
from ...engines.inductor_places import call_of, places
from ...engines.inductor_provenance import is_extern
from .launches import Range, first_iteration, launch_of, open_at


def of_nsys(path: Path, layers: Sequence[Mapping[str, Any]]) -> list[Launch]:
    """The kernels of the first captured inference, as launched. `layers`: those of layers.json.
    InputError where the file holds no iteration."""
    kernels, ranges = first_iteration(path)
    calls = _outermost([r for r in ranges if not r.text.startswith(PREFIX)])
    names = [torch_ranges.split(r.text)[0] for r in calls]
    of_call = dict(zip(calls, places(names, [str(x["name"]) for x in layers]), strict=True))
    launches = []
    for i, (kernel, stack) in enumerate(
        zip(kernels, open_at(calls, [(k[2], k[3]) for k in kernels]), strict=True)
    ):
        number = of_call[stack[-1]] if stack else None
        layer = None if number is None else layers[number]
        launches.append(launch_of(i, kernel, **_whose(i, layer)))
    return launches


def _outermost(ranges: list[Range]) -> list[Range]:
    """Those that are in no other of their thread, by start."""
    found: list[Range] = []
    ends: dict[int, int] = {}
    for r in sorted(ranges, key=lambda r: (r.start, -r.end)):
        if r.start >= ends.get(r.thread, r.start):
            found.append(r)
            ends[r.thread] = r.end
    return found


def _whose(index: int, layer: Mapping[str, Any] | None) -> dict[str, Any]:
    """`layer` and `place` of a launch."""
    if layer is None:
        return {"layer": None, "place": f"#{index}"}
    name = str(layer["name"])
    call, modules = name.rpartition(":")[0], layer["modules"]
    if not is_extern(call):
        return {"layer": name, "place": f"inference/{call}//"}
    alone = modules[0] if modules and len(modules) == 1 else None
    place = f"#{index}" if alone is None else f"inference/{call_of(call)}//{alone}"
    return {"layer": name, "place": place}
