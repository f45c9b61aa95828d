"""Are layer-norm weights the cold ones? Of a small GPT-2 and a BERT of two layers, on real text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from layerline.analysis.parameters import answer, history, hotness
from layerline.core.tables import read_parquet
from layerline.profile.eager.parameters.plugin import ParameterChanges
from layerline.workloads.loop import train
from layerline.workloads.request import Request

pytestmark = pytest.mark.slow


def ranked(
    workload: str, weights: torch.dtype, folder: Path
) -> tuple[history.History, list[hotness.Hotness]]:
    request = Request(
        workload=workload,
        cache=str(folder / "text"),
        model="tiny",
        batch=2,
        seq=32,
        learning_rate=1e-3,
        device="cpu",
    )
    training = request.build()
    training.model.to(weights)
    list(train(training, 8, [ParameterChanges(folder)]))
    (run,) = history.of_table(folder / "train.fp32.parameters.parquet")
    return run, hotness.of(run)


@pytest.mark.parametrize("workload", ["gpt2", "bert"])
def test_in_float32_no_parameter_is_cold(workload: str, tmp_path: Path) -> None:
    _, parameters = ranked(workload, torch.float32, tmp_path)
    assert not [p.about.path for p in parameters if p.cold]


@pytest.mark.parametrize("workload", ["gpt2", "bert"])
def test_in_bfloat16_the_cold_ones_are_the_weights_of_layer_norms(
    workload: str, tmp_path: Path
) -> None:
    # They are 1, where neighbours are 2^-8 apart and more: a step of 0.001 rounds away.
    run, parameters = ranked(workload, torch.bfloat16, tmp_path)
    norms = {p.about.path for p in parameters if p.kind == "layer norm weight"}
    assert {p.about.path for p in parameters if p.cold} == norms
    assert {p.why for p in parameters if p.cold} == {"every update rounds away"}
    said = list(answer.sentences(run, parameters))
    assert said[1].startswith("All that is cold is layer norm, its weights alone")


def test_positions_that_no_sequence_reaches_have_no_gradient(tmp_path: Path) -> None:
    ranked("gpt2", torch.float32, tmp_path)
    table = read_parquet(tmp_path / "train.fp32.parameters.parquet", "parameters").to_pylist()
    rows = {r["rows_with_gradient"] for r in table if r["module"] == "transformer.wpe"}
    assert rows == {31}  # the last position predicts nothing
