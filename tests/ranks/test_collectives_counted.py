"""What is told of collectives and memory, held against PyTorch's own counts: CommDebugMode, the
sizes of what its operators are given, and a fake process group's plan."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import rank_job
import torch
import torch.distributed as dist
from counted_job import held
from joined import of_files
from paths import TESTS

from layerline.core.errors import InputError
from layerline.workloads.loop import train
from layerline.workloads.parallel import layouts, llama, memory

# What operators of c10d and _c10d_functional do.
OPERATIONS = {
    "allreduce_": "all-reduce", "all_reduce": "all-reduce",
    "_allgather_base_": "all-gather", "all_gather_into_tensor": "all-gather",
    "_reduce_scatter_base_": "reduce-scatter", "reduce_scatter_tensor": "reduce-scatter",
}  # fmt: skip
RANKS = 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "settings"),
    [
        ("llama", []),
        ("gpt-layouts", ["layout=DP_TP"]),
        ("gpt-layouts", ["layout=DP_TP_SP"]),
    ],
)
def test_collectives_are_those_that_torch_counts(
    workload: str, settings: list[str], tmp_path: Path
) -> None:
    text = rank_job.text(tmp_path / "text.txt")
    script = TESTS / "support/ranks/counted_job.py"
    job = rank_job.start(RANKS, script, tmp_path, workload, text, *settings)
    _, errors = job.communicate(timeout=240)
    assert job.returncode == 0, errors
    truth = json.loads((tmp_path / "counts").read_text())
    counted: Counter[str] = Counter()
    for operator, number in truth["counts"].items():
        counted[OPERATIONS[operator.rpartition(".")[2]]] += number
    sent: Counter[tuple[str, int]] = Counter()
    for operator, size in truth["sent"]:
        operation = OPERATIONS.get(operator)
        if operation is not None:
            # Of a reduce-scatter all that a rank gives; told is the part that it keeps.
            sent[operation, size // RANKS if operation == "reduce-scatter" else size] += 1
    found = of_files(sorted(tmp_path.glob("*.trace.json.gz")))
    for iteration in found.iterations:
        rows = [
            row
            for row in found.collectives.to_pylist()
            if (row["rank"], row["iteration"]) == (0, iteration)
        ]
        assert Counter(row["operation"] for row in rows) == counted
        sizes = Counter((row["operation"], row["bytes"]) for row in rows)
        for (operation, size), number in sent.items():
            if size > 4:  # of a number by itself the trace has no shape
                assert sizes[operation, size] == number
        if settings == ["layout=DP_TP_SP"]:
            undone = {"all-gather": "reduce-scatter", "reduce-scatter": "all-gather"}
            phases: dict[str, Counter[tuple[str, str]]] = {
                "forward": Counter(),
                "backward": Counter(),
            }
            for row in rows:
                if row["operation"] in undone and (row["module"] or "").startswith(
                    "transformer.h."
                ):
                    phases[row["phase"]][row["operation"], row["module"]] += 1
            ahead, back = phases.values()
            assert back == Counter({(undone[o], m): n for (o, m), n in ahead.items()})
            assert sum(back.values()) > 8  # of each of four blocks two of each operation
    if workload == "llama":
        # 4 bytes of each of 250,432 parameters, halved: values, gradients, two moments.
        assert truth["held"] == 4 * 4 * 250_432 // RANKS


@pytest.fixture
def fake_job() -> Iterator[int]:
    """The process group of the first of eight ranks, of which no other is there."""
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=8, store=FakeStore())
    yield 8
    dist.destroy_process_group()


@pytest.mark.parametrize("options", [{}, {"parallel": "hsdp", "shard": 2}])
def test_what_a_rank_is_said_to_take_is_what_a_fake_job_holds(
    options: dict[str, object], fake_job: int, tmp_path: Path
) -> None:
    text = rank_job.text(tmp_path / "text.txt")
    given = llama.LlamaOptions(model="tiny", seq=16, text=text, cache=tmp_path, **options)
    training = llama.build(given, torch.device("cpu"), 0, fake_job)
    list(train(training, 1))
    shards = given.degrees(fake_job).get("shard", 1)
    need = memory.Need.of(training.model, training.model.model.layers, shards)
    assert need.parameters == 250_432
    assert need.bytes == held(training)


@pytest.mark.usefixtures("fake_job")
def test_a_gpt_without_room_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda device: 1_000_000_000)
    options = layouts.LayoutOptions(layout="DP_TP")
    with pytest.raises(InputError, match=r"345m \(DP_TP\) takes 3\.\d GB .* --model tiny fits"):
        layouts.build(options, torch.device("cpu"), 0, 8)
