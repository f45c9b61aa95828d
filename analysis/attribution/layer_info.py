"""Layer information beside a file with times: one engine, two tools, joined by name.

``trtexec --exportProfile`` has the times of layers and nothing else; ``--exportLayerInfo`` has
their tensors, kinds, precisions and ONNX nodes, and no time. Both list an engine's layers by the
same names in execution order. Layers of one name are told apart by which run of that name they
are, and only where both files have as many of them; nothing is joined by its place in a list.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ...core.errors import InputError
from ...core.resolve import RawLayer
from ..readers import registry
from ..readers.base import Artefact
from ..readers.tensorrt import layers as layers_
from ..readers.tensorrt import profile
from . import resolution

Row = dict[str, Any]
PRECISIONS = ("precision_in", "precision_out", "tactic")
_OF_INFO = ("kind", "nodes", *PRECISIONS)
_NAMES_IN_NOTE = 5
_LONG = 100  # characters of a name


@dataclass(frozen=True)
class LayerInfo:
    """The layers of one engine in execution order: rows of the `layers` table without times, and,
    in step, what the resolver is given of each."""

    source: str
    rows: list[Row]
    raw: list[RawLayer]
    notes: list[str]

    @cached_property
    def counts(self) -> Counter[str]:
        """How many layers have each name."""
        return Counter(layer.name for layer in self.raw)

    def matches(self, names: Sequence[str]) -> list[int | None]:
        """For each of an engine's layers as another tool names them, in execution order, which of
        these it is; None where the two have different numbers of that name."""
        ran, seen = Counter(names), Counter[str]()
        matches = []
        for name in names:
            sure = ran[name] == self.counts[name]
            matches.append(self._place[name, seen[name]] if sure else None)
            seen[name] += 1
        return matches

    @cached_property
    def _place(self) -> dict[tuple[str, int], int]:
        """Index of a layer by its name and its occurrence."""
        return {(layer.name, layer.occurrence): i for i, layer in enumerate(self.raw)}


def load(path: Path) -> LayerInfo:
    """Read layer information of one engine; InputError where it is of something else."""
    artefact = registry.read(path)
    if artefact.facts.get("lists_layers"):
        artefact = layers_.information(path)
    fix = "give --layer-info what trtexec --exportLayerInfo wrote"
    if artefact.kind == profile.KIND:
        what = "is a file of times, not layer information"
        raise InputError(what, file=path, fix=f"name it as CAPTURE, and {fix}")
    if artefact.kind != layers_.KIND:
        what = f"is of kind {artefact.kind}, not TensorRT layer information"
        raise InputError(what, file=path, fix=fix)
    if artefact.facts["engines"] > 1:
        raise InputError(
            f"describes {artefact.facts['engines']} engines",
            file=path,
            fix="give the layer information of the one engine that was timed",
        )
    rows = artefact.tables["layers"].to_pylist()
    raw = [layer for _, layer in resolution.raw_layers(rows, artefact)]
    return LayerInfo(path.name, rows, raw, artefact.notes)


def joined(
    artefact: Artefact, info: LayerInfo
) -> tuple[list[Row], list[tuple[str | None, RawLayer]], list[str]]:
    """The `layers` rows of a TensorRT profile with what `info` knows, in step with them the engine
    and what the resolver is given of each, and notes on the join.

    In the engine's order, as `info` has it. Layers that only one of the two files has are rows
    too: without times where the profile lacks them, and named in a note. Raises InputError
    where `artefact` is no such profile, or the two have no layer in common.
    """
    if artefact.kind == layers_.KIND:
        raise InputError(
            "is layer information itself",
            fix="name the file with times (trtexec --exportProfile) as CAPTURE",
        )
    if artefact.kind != profile.KIND:
        raise InputError(
            f"is of kind {artefact.kind}, which --layer-info says nothing about",
            fix="leave out --layer-info",
        )
    if "layers" not in artefact.tables:
        raise resolution.nameless(artefact)
    rows = artefact.tables["layers"].to_pylist()
    merged: list[Row] = []
    raw: list[tuple[str | None, RawLayer]] = []
    notes: list[str] = []
    for engine in dict.fromkeys(r["engine"] for r in rows):
        own, own_raw, own_notes = _merged([r for r in rows if r["engine"] == engine], info)
        merged += [{**row, "engine": engine} for row in own]
        raw += [(engine, layer) for layer in own_raw]
        notes += own_notes
    return merged, raw, [*dict.fromkeys(notes), *info.notes]


def _merged(rows: list[Row], info: LayerInfo) -> tuple[list[Row], list[RawLayer], list[str]]:
    """One engine's rows, what the resolver is given of each, and notes."""
    ran = Counter(r["layer"] for r in rows)
    if not ran.keys() & info.counts.keys():
        raise InputError(
            f"has no layer in common with {info.source}",
            fix="give the layer information of the engine that was timed",
        )
    uneven = [n for n in ran if n in info.counts and ran[n] != info.counts[n]]
    placed: list[tuple[tuple[int, int], Row, RawLayer]] = []
    matches = info.matches([r["layer"] for r in rows])
    seen: Counter[str] = Counter()
    last = -1  # a layer that `info` lacks ran after the one before it
    for number, (row, i) in enumerate(zip(rows, matches, strict=True), 1):
        name = row["layer"]
        if i is None:
            placed.append(((last, number), row, RawLayer(name=name, occurrence=seen[name])))
        else:
            placed.append(((i, 0), {**row, **{k: info.rows[i][k] for k in _OF_INFO}}, info.raw[i]))
            last = i
        seen[name] += 1
    joined = set(matches)
    placed += [
        ((i, 0), info.rows[i], layer)
        for i, layer in enumerate(info.raw)
        if i not in joined and layer.name not in uneven
    ]
    placed.sort(key=lambda p: p[0])
    source = rows[0]["source"]
    notes = [
        *_named(f"not in {info.source}", (n for n in ran if n not in info.counts)),
        *_named(f"without a time in {source}", (n for n in info.counts if n not in ran)),
        *_named(
            f"not as often in {source} as in {info.source}, so which is which is not known", uneven
        ),
    ]
    return [row for _, row, _ in placed], [layer for _, _, layer in placed], notes


def _named(what: str, names: Iterable[str]) -> list[str]:
    """A note that names the layers of which something is so."""
    every = list(names)
    if not every:
        return []
    first = [n if len(n) <= _LONG else f"{n[: _LONG - 1]}…" for n in every[:_NAMES_IN_NOTE]]
    rest = len(every) - len(first)
    more = f" and {rest} more (all with -o)" if rest else ""
    count = "1 name of layers is" if len(every) == 1 else f"{len(every)} names of layers are"
    return [f"{count} {what}: {', '.join(first)}{more}"]
