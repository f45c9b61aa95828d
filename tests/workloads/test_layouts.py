"""Every layout of ranks trains, and learns what one rank learns.

The tolerance, relative to one rank: 1e-4 for losses and 1e-3 for gradient norms in float32, ten
times as much in bfloat16, over the first steps. Sums in another order are all that differs, which
AdamW makes larger where a gradient is rounding alone (the bias of a key).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import rank_job

pytestmark = pytest.mark.slow

STEPS = 4
TOLERANCE = {"fp32": {"losses": 1e-4, "norms": 1e-3}, "bf16": {"losses": 1e-3, "norms": 1e-2}}
# Ranks, then what differs from one rank's options.
LAYOUTS: list[tuple[int, dict[str, Any]]] = [
    (2, {}),
    (2, {"layout": "DP_TP"}),
    (2, {"layout": "DP_TP_SP"}),
    (2, {"layout": "DP_PP"}),
    (2, {"layout": "DP_PP", "schedule": "gpipe"}),
    (2, {"layout": "DP_PP", "schedule": "interleaved"}),
    (4, {"layout": "DP_TP"}),
    (4, {"layout": "DP_PP"}),
    (4, {"layout": "DP_TP_PP"}),
    (4, {"layout": "DP_TP_SP"}),
    (4, {"layout": "DP_TP_PP_SP", "schedule": "interleaved"}),
    (4, {"layout": "DP_TP_PP_SP", "precision": "bf16"}),
]
LLAMA: list[tuple[int, dict[str, Any]]] = [
    (2, {"parallel": "fsdp"}),
    (2, {"parallel": "fsdp", "checkpoint_every": 2}),
    (2, {"parallel": "ddp"}),
    (4, {"parallel": "fsdp", "precision": "bf16"}),
    (4, {"parallel": "hsdp", "shard": 2}),
    (4, {"parallel": "ddp", "checkpoint_every": 1}),
]
EXCHANGE = {"sequence": 24, "hidden": 32, "warmup": 1}


def named(workload: str, ranks: int, options: dict[str, Any]) -> str:
    return " ".join([workload, str(ranks), *map(str, options.values())])


def case(workload: str, ranks: int, options: dict[str, Any], place: Path) -> dict[str, Any]:
    common = {
        "model": "tiny", "seq": 16, "micro_batch": 2, "learning_rate": 0.005, "warmup": 2,
        "text": str(place / "text.txt"), "cache": str(place / "cache"),
        "global_batch": 8,
    }  # fmt: skip
    return {
        "name": named(workload, ranks, options),
        "workload": workload,
        "options": EXCHANGE if workload == "sequence-parallel" else {**common, **options},
        "steps": STEPS,
        "ranges": options == {"layout": "DP_PP"},
    }


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What jobs of 1, 2 and 4 ranks found."""
    place = tmp_path_factory.mktemp("jobs")
    rank_job.text(place / "text.txt")
    wanted = [("gpt-layouts", *row) for row in LAYOUTS] + [("llama", *row) for row in LLAMA]
    wanted += [(w, 1, {"precision": p}) for w in ("gpt-layouts", "llama") for p in TOLERANCE]
    wanted += [("sequence-parallel", ranks, {}) for ranks in (1, 2, 4)]
    answers: dict[str, Any] = {}
    for ranks in (1, 2, 4):
        cases = [case(w, n, options, place) for w, n, options in wanted if n == ranks]
        answers.update(rank_job.results(ranks, cases, place))
    return answers


def compare(found: dict[str, Any], workload: str, ranks: int, options: dict[str, Any]) -> None:
    precision = options.get("precision", "fp32")
    one = found[named(workload, 1, {"precision": precision})]
    many = found[named(workload, ranks, options)]
    assert len(many["losses"]) == len(many["norms"]) == STEPS
    for what, tolerance in TOLERANCE[precision].items():
        assert many[what] == pytest.approx(one[what], rel=tolerance)


@pytest.mark.parametrize(("ranks", "options"), LAYOUTS, ids=lambda v: str(v))
def test_gpt_learns_the_same_in_every_layout(
    found: dict[str, Any], ranks: int, options: dict[str, Any]
) -> None:
    compare(found, "gpt-layouts", ranks, options)


@pytest.mark.parametrize(("ranks", "options"), LLAMA, ids=lambda v: str(v))
def test_llama_learns_the_same_however_it_is_sharded(
    found: dict[str, Any], ranks: int, options: dict[str, Any]
) -> None:
    compare(found, "llama", ranks, options)


def test_loss_goes_down(found: dict[str, Any]) -> None:
    for workload in ("gpt-layouts", "llama"):
        losses = found[named(workload, 1, {"precision": "fp32"})]["losses"]
        assert losses[-1] < losses[0] - 0.3


def test_modules_keep_the_names_of_the_whole_model(found: dict[str, Any]) -> None:
    one = found[named("gpt-layouts", 1, {"precision": "fp32"})]["parameters"]
    first = found[named("gpt-layouts", 2, {"layout": "DP_PP"})]["parameters"]
    interleaved = {"layout": "DP_PP", "schedule": "interleaved"}
    both = found[named("gpt-layouts", 2, interleaved)]["parameters"]
    assert set(first) < set(one)
    assert {n.split(".")[2] for n in first if ".h." in n} == {"0", "1"}
    assert {n.split(".")[2] for n in both if ".h." in n} == {"0", "2"}  # two stages of rank 0
    ddp = found[named("llama", 2, {"parallel": "ddp"})]["parameters"]
    assert ddp == found[named("llama", 1, {"precision": "fp32"})]["parameters"]
    assert "model.layers.3.self_attn.q_proj.weight" in ddp


def test_1f1b_says_which_stage_and_micro_batch_runs(found: dict[str, Any]) -> None:
    # 4 micro-batches, 2 stages: the first is one forward ahead of the last.
    first, last = found[named("gpt-layouts", 2, {"layout": "DP_PP"})]["ranges"]
    steady = [name for n in range(2) for name in (f"PP:0B{n}", f"PP:0F{n + 2}")]
    assert first == ["PP:0F0", "PP:0F1", *steady, "PP:0B2", "PP:0B3"]
    assert last == [f"PP:1{action}{n}" for n in range(4) for action in "FB"]


def test_a_pipeline_has_phases_too(found: dict[str, Any]) -> None:
    phases = found[named("gpt-layouts", 2, {"layout": "DP_PP"})]["phases"]
    assert phases[0] == "data"
    assert phases[-1] == "optimizer"
    assert phases.count("forward") == phases.count("backward") == 4
    assert "loss" not in phases  # of rank 0, which has the first stage


def test_the_exchange_computes_both_products(found: dict[str, Any]) -> None:
    one, two, four = (found[named("sequence-parallel", n, {})] for n in (1, 2, 4))
    rows = [value for row in one["output"] for value in row]
    assert len(one["output"]) == 24
    assert max(map(abs, rows)) > 0.5
    for several in (two, four):
        assert [v for row in several["output"] for v in row] == pytest.approx(rows, abs=1e-5)
    timing = four["timing"]
    seconds = timing["seconds"]
    assert set(seconds) == {
        "all_gather", "matmul_1", "matmul_2", "reduce_scatter", "iteration", "loop",
    }  # fmt: skip
    assert len(seconds["iteration"]) == 3
    assert seconds["loop"] >= sum(seconds["iteration"])
    assert timing["elements_per_second"] == pytest.approx(24 * 32 * 3 / seconds["loop"])
    # Two products of 24 x 32 by 32 x 8 a rank.
    assert timing["flop_per_second"] == pytest.approx(2 * 2 * 24 * 32 * 8 * 3 / seconds["loop"])
