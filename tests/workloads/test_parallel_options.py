"""What cannot be divided among the ranks is said in one line, before anything is started."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from layerline.core.errors import InputError
from layerline.workloads.parallel import layouts, llama, memory, sequence_parallel

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("ranks", "changed", "said"),
    [
        (4, {"layout": "DP_TP", "tp": 3}, "16 heads cannot be divided among 3 TP ranks"),
        (4, {"layout": "DP_TP", "tp": 2, "dp": 4}, "the degrees pp 1 x dp 4 x tp 2 need 8 ranks"),
        (3, {"layout": "DP_TP"}, "the degrees pp 1 x dp 1 x tp 2 need 2 ranks, there are 3"),
        (2, {"layout": "DP", "tp": 2}, "--tp 2: layout DP has no TP"),
        (2, {"layout": "DP_TP", "pp": 0}, "--pp 0: at least 1"),
        (2, {"micro_batch": 0}, "--micro-batch 0: at least 1"),
        (2, {"seq": 1}, "--seq 1: at least 2"),
        (2, {"layout": "TP"}, "layout TP: not one of DP, DP_TP"),
        (2, {"model": "1t"}, "model 1t: not one of tiny, 345m"),
        (2, {"schedule": "zigzag"}, "schedule zigzag: not one of 1f1b"),
        (2, {"precision": "fp16"}, "precision fp16: not one of fp32, tf32, bf16"),
        (4, {"layout": "DP", "global_batch": 18}, "a global batch of 18 is no multiple of 4 data"),
        (2, {"layout": "DP_PP", "global_batch": 4}, "1 micro-batches a step are fewer than 2"),
        (
            2,
            {"layout": "DP_PP", "schedule": "interleaved", "global_batch": 20},
            "5 micro-batches a step are no multiple of 2 rounds of 2 ranks",
        ),
        (2, {"layout": "DP_PP", "pp": 30, "micro_batch": 1, "global_batch": 64}, "24 blocks are"),
        (2, {"layout": "DP_TP_SP", "seq": 33}, "a sequence of 33 cannot be divided among 2 TP"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(ranks: int, changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError) as error:
        layouts.build(layouts.LayoutOptions(**changed), CPU, 0, ranks)
    assert said in error.value.line()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model": "8b"}, "model 8b: not one of tiny, 7b, 13b, 70b"),
        ({"parallel": "zero"}, "parallel zero: not one of fsdp, hsdp, ddp"),
        ({"parallel": "hsdp", "shard": 3}, "4 ranks cannot be groups of 3"),
        ({"shard": 2}, "--shard 2 is for hsdp, and parallel is fsdp"),
        ({"global_batch": 6}, "a global batch of 6 is no multiple of 4 data-parallel ranks"),
        ({"model": "tiny"}, "4 ranks cannot find each other; start with torchrun"),
    ],
)
def test_a_llama_that_cannot_be_is_refused(
    changed: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(InputError) as error:
        llama.build(llama.LlamaOptions(**changed), CPU, 0, 4)
    assert said in error.value.line()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden": 30}, "--hidden 30 cannot be divided among 4 ranks"),
        ({"sequence": 0}, "--sequence 0 cannot be divided among 4 ranks"),
        ({"precision": "fp16"}, "precision fp16: not one of float32, bfloat16"),
    ],
)
def test_an_exchange_that_cannot_be_is_refused(changed: dict[str, Any], said: str) -> None:
    options = sequence_parallel.SequenceParallelOptions(**changed)
    with pytest.raises(InputError) as error:
        sequence_parallel.build(options, CPU, 0, 4)
    assert said in error.value.line()


def test_a_model_without_room_is_refused_with_what_has_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 16_000_000_000)
    with pytest.raises(InputError) as error:
        llama.build(llama.LlamaOptions(model="13b"), CPU, 0, 4)
    # 13,015,864,320 parameters of 16 bytes by 4 ranks, and 2 x 32000 x 5120 of 8 for a moment.
    assert error.value.line() == (
        "llama 13b (fsdp over 4 ranks) takes 54.7 GB of each rank for weights, gradients and "
        "AdamW's moments alone, and there are 16.0 GB; --model tiny fits; so does --set layers=9; "
        "16 ranks with as much each hold it"
    )
    with pytest.raises(InputError) as error:
        llama.build(llama.LlamaOptions(model="7b", parallel="ddp"), CPU, 0, 1)
    assert "takes 107.8 GB" in error.value.line()
    assert "ranks with as much" not in error.value.line()


@pytest.mark.parametrize(
    ("layout", "said"), [("DP_TP_SP", "gather a sequence"), ("DP_PP", "send from stage to stage")]
)
def test_what_gloo_cannot_do_on_a_shared_gpu_is_refused(
    layout: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layouts, "backend", lambda device: "gloo")
    options = layouts.LayoutOptions(layout=layout, model="tiny")
    with pytest.raises(InputError, match=said):
        layouts.build(options, torch.device("cuda"), 0, 2)
