"""What cannot be divided among the ranks is said in one line, before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from layerline.core.errors import InputError
from layerline.workloads.parallel import layouts, llama, sequence_parallel
from layerline.workloads.run import main

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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "error: the workload is one of llama, gpt-layouts, sequence-parallel"),
        (["llama", "--seq", "many"], "error: Expected `int | null`, got `str` - at `$.seq`"),
        (["llama", "--model", "8b"], "error: model 8b: not one of"),
        (["llama", "--text", "/no/such"], "error: /no/such: no such text"),
        (["sequence-parallel", "--capture", "1-x"], "error: --capture 1-x: neither a step nor"),
    ],
)
def test_bad_usage_is_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    if "--text" in arguments:
        arguments = [*arguments, "--cache", str(tmp_path), "--model", "tiny", "--device", "cpu"]
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert err.startswith(said)
    assert len(err.splitlines()) == 1
    assert not out
