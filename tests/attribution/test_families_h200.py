"""Kernels of twelve model families against tables worked out by hand.

tests/data/h200_families: TensorRT 8.6 fp16 captures of an H200, three inferences each. truth.csv
has every kernel above 1 % of the last inference with the modules that ran in it, worked out from
the dataflow, the shapes of the products and counted FLOP, apart from Layerline's resolver.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

import paths
import pytest

from layerline.analysis.attribution.nsys import operations, resolutions
from layerline.analysis.attribution.tensorrt_ranges import runs
from layerline.analysis.readers.nsys import sqlite
from layerline.analysis.readers.nsys.attribution import attribute
from layerline.analysis.readers.nsys.load import load
from layerline.core import nodes
from layerline.core.resolve import load_network

DATA = paths.DATA / "h200_families"


def unpacked(family: str, folder: Path) -> Path:
    for packed in (DATA / family).glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


def kernels(folder: Path) -> list[dict[str, Any]]:
    """The kernels of the last inference, by their start."""
    with sqlite.source(folder / "fp16.tensorrt.sqlite") as source:
        attribution = attribute(load(source, described=True))
        capture = runs(attribution, None)
        graph = nodes.load(folder / "nodes.json")
        network = load_network(folder / "fp16.tensorrt.network.json")
        resolved = resolutions(capture, graph, network, attribution.capture)
        rows = operations(attribution, capture, resolved, source.path, "fp16").to_pylist()
    last = max(r["iteration"] for r in rows if r["iteration"] is not None)
    own = [r for r in rows if r["iteration"] == last and r["kind"] == "kernel"]
    return sorted(own, key=lambda r: r["start_ns"])


@pytest.mark.parametrize("family", sorted(p.name for p in DATA.iterdir() if p.is_dir()))
def test_kernels_of_a_family_have_the_modules_that_ran_in_them(family: str, tmp_path: Path) -> None:
    rows = kernels(unpacked(family, tmp_path))
    with (DATA / family / "truth.csv").open(newline="") as file:
        truth = {int(r["order"]): r for r in csv.DictReader(file)}
    assert len(truth) >= 28
    for order, row in truth.items():
        kernel = rows[order]
        assert int(row["duration_ns"]) == kernel["duration_ns"]  # it is the same kernel
        right, given = {*row["true_modules"].split("|")}, {*kernel["modules"]}
        assert given == right, f"{family} {order}"
    total = sum(r["duration_ns"] for r in rows)
    told = sum(r["duration_ns"] for r in rows if r["modules"])
    assert told / total >= 0.995
