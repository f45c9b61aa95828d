"""Language models on real text: what they learn, and that switches do not change it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from layerline.core.errors import InputError, ToolMissing  # noqa: E402
from layerline.workloads.checkpointing import blocks  # noqa: E402
from layerline.workloads.language import Masking  # noqa: E402
from layerline.workloads.loop import train  # noqa: E402
from layerline.workloads.request import Request, choose_device  # noqa: E402
from layerline.workloads.training import IGNORED  # noqa: E402


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder for tokens that all tests share."""
    return str(tmp_path_factory.mktemp("tokens"))


def asked(cache: str, workload: str = "gpt2", **more: Any) -> Request:
    values = {"model": "tiny", "batch": 4, "seq": 32, "device": "cpu", "threads": 1, **more}
    return Request(workload, cache, **values)


def losses(request: Request, steps: int) -> list[float]:
    return [float(s.loss) for s in train(request.build(), steps)]


def gradients(request: Request) -> dict[str, Any]:
    training = request.build()
    training.gradients(training.phase)
    return {n: p.grad for n, p in training.model.named_parameters()}


@pytest.mark.parametrize("workload", ["gpt2", "bert"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_loss_begins_at_chance_and_goes_down(cache: str, workload: str, precision: str) -> None:
    request = asked(cache, workload, precision=precision, learning_rate=3e-3, batch=8)
    found = losses(request, 30)
    assert found[0] == pytest.approx(math.log(512), abs=0.15)
    assert sum(found[-5:]) / 5 < found[0] - 0.4


def test_a_seed_gives_the_same_losses_and_another_seed_others(cache: str) -> None:
    request = asked(cache)
    assert losses(request, 4) == losses(request, 4)
    assert losses(request, 2) != losses(replace(request, seed=1), 2)


@pytest.mark.parametrize("workload", ["gpt2", "bert"])
def test_checkpointing_changes_no_gradient(cache: str, workload: str) -> None:
    request = asked(cache, workload)  # with dropout: its random numbers must come again
    plain, again = gradients(request), gradients(replace(request, checkpoint=True))
    assert plain.keys() == again.keys()
    for name, value in plain.items():
        assert torch.equal(value, again[name]), name


def test_micro_batches_make_the_gradient_of_one_batch(cache: str) -> None:
    settings = {"resid_pdrop": "0", "embd_pdrop": "0", "attn_pdrop": "0"}
    whole = gradients(asked(cache, batch=4, settings=settings))
    parts = gradients(asked(cache, batch=2, accumulate=2, settings=settings))
    for name, value in whole.items():
        assert torch.allclose(value, parts[name], atol=1e-6), name


def test_ranks_begin_alike_and_read_other_text(cache: str) -> None:
    one, other = (asked(cache, rank=r, ranks=2).build() for r in range(2))
    for p, q in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(p, q)
    assert not torch.equal(next(one.batches)["input_ids"], next(other.batches)["input_ids"])


def test_a_folder_with_weights_is_trained_from_them(cache: str, tmp_path: Path) -> None:
    first = asked(cache, settings={"n_layer": "1"}).build()
    list(train(first, 3))
    first.model.save_pretrained(tmp_path / "saved")
    second = asked(cache, model=str(tmp_path / "saved")).build()
    assert second.facts["initial_weights"] == "loaded"
    for p, q in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.equal(p, q)


def test_random_weights_are_those_of_transformers(cache: str) -> None:
    model = asked(cache).build().model
    assert torch.equal(model.transformer.ln_f.weight, torch.ones(64))
    assert torch.equal(model.transformer.h[0].mlp.c_fc.bias, torch.zeros(256))


def test_masking_hides_a_seventh_and_keeps_the_answers() -> None:
    ids = np.random.default_rng(0).integers(10, 500, (64, 128))
    made = Masking(mask=3, vocabulary=500, seed=0)(ids, 5)
    chosen = made["labels"] != IGNORED
    assert chosen.mean() == pytest.approx(0.15, abs=0.01)
    assert np.array_equal(made["labels"][chosen], ids[chosen])
    assert np.array_equal(made["input_ids"][~chosen], ids[~chosen])
    shown = made["input_ids"][chosen]
    assert (shown == 3).mean() == pytest.approx(0.8, abs=0.03)
    assert (shown == ids[chosen]).mean() == pytest.approx(0.1, abs=0.03)
    assert shown.min() >= 3 and shown.max() < 500
    assert np.array_equal(made["input_ids"], Masking(3, 500, 0)(ids, 5)["input_ids"])
    assert not np.array_equal(made["input_ids"], Masking(3, 500, 0)(ids, 6)["input_ids"])


def test_every_sequence_has_something_to_learn() -> None:
    made = Masking(mask=3, vocabulary=500, seed=0)(np.full((200, 2), 7), 0)
    assert (made["labels"] != IGNORED).any(axis=1).all()


def test_a_model_of_another_task_is_refused(cache: str) -> None:
    with pytest.raises(InputError, match="BertForMaskedLM is no model of gpt2"):
        asked(cache, model="bert-tiny").build()


def test_text_shorter_than_a_sequence_is_refused(cache: str, tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("too short")
    with pytest.raises(InputError, match="tokens, a sequence has 32"):
        asked(cache, text=str(tmp_path / "short.txt")).build()


def test_a_model_without_blocks_cannot_be_checkpointed() -> None:
    assert blocks(torch.nn.Linear(2, 2)) == []
    nested = torch.nn.ModuleList([torch.nn.ModuleList([torch.nn.Linear(2, 2)])])
    assert blocks(torch.nn.ModuleDict({"a": nested})) == ["a.0"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused() -> None:
    with pytest.raises(ToolMissing, match="no CUDA device"):
        choose_device("cuda")
    assert choose_device(None).type == "cpu"


def test_a_number_of_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ToolMissing, match="there is no cuda:2: PyTorch sees 2 GPUs"):
        choose_device("cuda:2")
