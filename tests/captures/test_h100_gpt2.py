"""GPT-2 in fp16 as TensorRT ran it on an H100: one ForeignNode, 172 kernels, and their counters."""

from __future__ import annotations

import gzip
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import fraction
import paths
import pytest

from layerline.analysis.captures.counters import counters_of_run
from layerline.analysis.commands.layers import read_layers
from layerline.core import nodes
from layerline.core.run import open_run

DATA = paths.DATA / "h100_gpt2"
TOKENS, WIDTH, VOCABULARY = 512, 768, 50257


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "captures"
    folder.mkdir()
    for packed in DATA.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    for plain in DATA.glob("*.json"):
        (folder / plain.name).write_bytes(plain.read_bytes())
    return folder


@pytest.fixture(scope="module")
def layers(captures: Path) -> list[dict[str, Any]]:
    graph = nodes.load(captures / "nodes.json")
    found, *_ = read_layers(captures / "fp16.tensorrt.sqlite", graph, None)
    return list(found.to_pylist())


@pytest.fixture(scope="module")
def kernels(captures: Path) -> list[tuple[str, int]]:
    """Names and durations in the order that they ran, straight from the file."""
    with sqlite3.connect(captures / "fp16.tensorrt.sqlite") as file:
        query = """select s.value, k.end - k.start from CUPTI_ACTIVITY_KIND_KERNEL k
                   join StringIds s on s.id = k.shortName order by k.start"""
        found = file.execute(query).fetchall()
    file.close()
    return found


def test_every_kernel_inside_the_foreign_node_has_its_module(
    layers: list[dict[str, Any]], kernels: list[tuple[str, int]]
) -> None:
    assert len(layers) == len(kernels) == 172
    assert sum(r["kernels"] for r in layers) == 172
    rules = Counter(r["rule"] for r in layers)
    # Twelve softmaxes between their tensors; twelve products whose kernels apply the GELU.
    assert rules == {"name": 146, "boundary": 24, "carrier": 2}
    assert all(r["modules"] for r in layers)


def test_what_myelin_put_behind_the_last_product_is_the_last_modules(
    layers: list[dict[str, Any]], kernels: list[tuple[str, int]], captures: Path
) -> None:
    head = [r for r in layers if r["modules"] == ["lm_head"]]
    # The product over a padded vocabulary, cutting it to 50257, and the reformat of the output.
    assert {r["rule"] for r in head} == {"name", "carrier"} and len(head) == 3
    with sqlite3.connect(captures / "fp16.tensorrt.sqlite") as file:
        ((cleared,),) = file.execute("select end - start from CUPTI_ACTIVITY_KIND_MEMSET")
    file.close()
    assert sum(r["total_ns"] for r in head) == cleared + sum(ns for _, ns in kernels[-3:])


def test_blocks_of_one_model_cost_alike(layers: list[dict[str, Any]]) -> None:
    cost: Counter[str] = Counter()
    for r in layers:
        (module, *others) = r["modules"]
        if module.startswith("transformer.h.") and not others:
            cost[module.split(".")[2]] += r["total_ns"]
    assert len(cost) == 12
    typical = sorted(cost.values())[6]
    assert all(abs(ns - typical) < 0.2 * typical for block, ns in cost.items() if block != "0")


def test_a_fifth_of_the_launches_tells_what_all_of_them_do(captures: Path) -> None:
    values = fraction.of_captures(
        captures / "fp16.tensorrt.ncu.csv", captures / "fp16.tensorrt.ncu-every.ncu.csv"
    )
    given = values.groupby("launch")["given"].any()
    layers = fraction.layers(values)
    assert ((~given).sum(), len(given), values["layer"].nunique()) == (34, 172, 172)
    assert layers["apart"].median() < 0.02
    # What both measured differs as much: it is the noise of replaying.
    noise, others = (layers[layers["given"] == g]["apart"].median() for g in (False, True))
    assert noise > 0.5 * others
    assert layers.loc["sm__ops_path_tensor_src_fp16.sum", "apart"].max() == 0


def test_counted_products_are_those_of_the_model(captures: Path) -> None:
    read = counters_of_run(open_run(captures.parent, create=True))
    assert read is not None
    work = {
        r["layer"]: r["value"]
        for r in read.to_pylist()
        if r["metric"] == "sm__ops_path_tensor_src_fp16.sum"
    }
    assert len(work) == 172  # every launch, representatives' included
    # The vocabulary is padded to 394 tiles of 128.
    padded = 394 * 128
    assert 0 < padded - VOCABULARY < 256
    assert work["lm_head/MatMul_matrix_multiply"] == 2 * TOKENS * WIDTH * padded
    up = [v for k, v in work.items() if "_mlp_c_fc/Gemm" in k]
    assert up == [2 * TOKENS * WIDTH * 4 * WIDTH] * 12
