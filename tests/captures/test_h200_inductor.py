"""Packages of inductor as they ran on an H200: GPT-2 at 1x512 in fp16, two inferences under nsys.

tests/data/make_h200_inductor.py worked out which modules each kernel computes for (truth.csv), of
the model's structure, the kernels' names and order and ncu's counts; it imports nothing of
Layerline and reads nothing of inductor's provenance.
"""

from __future__ import annotations

import csv
import gzip
import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from captured import engine_files, engine_of
from paths import DATA

from layerline.analysis.captures import engine_ops
from layerline.analysis.model.comparison import Side
from layerline.core.files import write_json
from layerline.core.run import Run

HERE, NAME = DATA / "h200_inductor", "fp16.inductor"
MAX = DATA / "h200_inductor_max"  # the mode max-autotune: products are Triton's templates


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return unpacked(HERE, tmp_path_factory)


@pytest.fixture(scope="module")
def autotuned(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return unpacked(MAX, tmp_path_factory)


def unpacked(folder: Path, temporary: pytest.TempPathFactory) -> Run:
    """The run directory as the GPU machine left it, of one package."""
    run = Run(temporary.mktemp("inductor") / "run")
    for stage in ("captures", "engines"):
        run.file(stage).mkdir(parents=True)
    sql = gzip.decompress((folder / f"{NAME}.sql.gz").read_bytes()).decode()
    database = sqlite3.connect(run.file("captures", f"{NAME}.sqlite"))
    database.executescript(sql)
    database.close()
    for kind in ("trace.meta", "latency"):
        text = (folder / f"{NAME}.{kind}.json").read_bytes()
        run.file("captures", f"{NAME}.{kind}.json").write_bytes(text)
    layers = json.loads(gzip.decompress((folder / f"{NAME}.layers.json.gz").read_bytes()))
    write_json(run.file("engines", f"{NAME}.layers.json"), layers)
    record = {"source": "export/model.json", "runs_on": "cuda"}
    write_json(run.file("engines", f"{NAME}.build.json"), record)
    return run


@pytest.fixture(scope="module")
def rows(run: Run) -> list[dict[str, Any]]:
    return operations(run)


def operations(run: Run) -> list[dict[str, Any]]:
    table = engine_ops.read(engine_files(run, "fp16", "inductor")).ops
    return sorted(table.to_pylist(), key=lambda r: r["start_ns"])


@pytest.fixture(scope="module")
def side(run: Run) -> Side:
    (captured,) = engine_of(run, "fp16", "inductor").sides
    return captured.side


def truth(folder: Path = HERE) -> list[dict[str, str]]:
    with (folder / "truth.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("iteration", [0, 1])
def test_each_kernel_of_a_package_has_the_modules_that_it_computes_for(
    rows: list[dict[str, Any]], iteration: int
) -> None:
    kernels = [r for r in rows if r["kind"] == "kernel" and r["iteration"] == iteration]
    wanted = truth()
    assert [r["name"].partition("(")[0] for r in kernels] == [r["kernel"] for r in wanted]
    assert not apart(kernels, wanted)


def apart(kernels: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, str]]) -> Any:
    """Place of a kernel whose modules are others -> these, and those of the truth."""
    return {
        right["order"]: (kernel["modules"], right["modules"])
        for kernel, right in zip(kernels, wanted, strict=True)
        if right["modules"] and {*kernel["modules"]} != {*right["modules"].split("|")}
    }


def test_products_by_templates_of_triton_are_in_their_modules_and_count_as_fp16(
    autotuned: Run,
) -> None:
    kernels = [r for r in operations(autotuned) if r["kind"] == "kernel" and r["iteration"] == 1]
    wanted = truth(MAX)
    assert [r["name"].partition("(")[0] for r in kernels] == [r["kernel"] for r in wanted]
    assert sum(r["kernel"].startswith("triton_tem_") for r in wanted) == 48
    assert not apart(kernels, wanted)
    (captured,) = engine_of(autotuned, "fp16", "inductor").sides
    multiply = ("triton_tem_", "nvjet_", "cudnn_")
    rows = [r for r in operations(autotuned) if r["kind"] == "kernel"]
    of_products = sum(r["duration_ns"] for r in rows if r["name"].startswith(multiply))
    share = of_products / sum(r["duration_ns"] for r in rows)
    assert captured.side.precision_run == pytest.approx({"fp16": share, "unknown": 1 - share})
    assert captured.side.coverage == 1.0


def test_what_a_package_sets_is_of_the_attention_or_product_that_it_is_set_for(
    rows: list[dict[str, Any]],
) -> None:
    sets = [r["modules"] for r in rows if r["kind"] == "memset"]
    one = [*([f"transformer.h.{b}.attn"] for b in range(12)), ["lm_head"]]
    assert sets == [*one, *one]


def test_all_time_of_a_package_is_in_modules_and_adds_up(run: Run, side: Side) -> None:
    assert side.coverage == 1.0 and side.unresolved_ns == 0
    checks = {c.name: c for c in side.checks}
    assert checks["i"].ok and checks["i"].residual_ns == 0
    # The kernels and sets of both inferences, as the capture has them.
    with sqlite3.connect(run.file("captures", f"{NAME}.sqlite")) as database:
        raw = [
            database.execute(f"SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_{k}").fetchone()[0]
            for k in ("KERNEL", "MEMSET")
        ]
    database.close()
    assert dict(checks["i"].terms)["kernel in the raw capture"] == raw[0]
    assert dict(checks["i"].terms)["memset in the raw capture"] == raw[1]


def test_products_and_attention_of_a_package_ran_in_fp16(run: Run, side: Side) -> None:
    """cuDNN's attention, too, of which the captured graph tells the type. What is left are
    generated kernels, which multiply no matrices, by their names."""
    with sqlite3.connect(run.file("captures", f"{NAME}.sqlite")) as database:
        ((generated, every),) = database.execute(
            "SELECT sum((end - start) * (value LIKE 'triton%')), sum(end - start) "
            "FROM CUPTI_ACTIVITY_KIND_KERNEL JOIN StringIds ON id = shortName"
        )
    database.close()
    assert side.precision_run == pytest.approx(
        {"fp16": 1 - generated / every, "unknown": generated / every}
    )


def test_latency_of_a_package_is_that_of_its_operations_and_gaps(side: Side) -> None:
    checks = {c.name: c for c in side.checks}
    assert checks["ii"].ok and checks["iii"].ok
    terms = dict(checks["ii"].terms)
    assert terms["operations"] - terms["overlaps"] + terms["gaps"] == terms["span"]
    # The middle of 851,584 and 849,280 ns under nsys. Without it the host is late: what was queued
    # as a whole counts, and not the latency of 1.14 ms.
    third = dict(checks["iii"].terms)
    assert third["traced latency"] == 850_432
    assert 810_000 < -third["unprofiled latency"] < 820_000
