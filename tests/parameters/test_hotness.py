"""Hot, cold, sparse, never touched and frozen; by kind and block; and what the answer says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from parameter_runs import MODEL, index, log, table

from layerline.analysis.parameters import answer, history, hotness, ranks
from layerline.analysis.report.parameters import text
from layerline.core import documents, tables
from layerline.core.errors import InputError

# wte 40, ln 4, mlp 20, ln 4, mlp 20, frozen head 8.
COUNTS = [[40, 0, 20, 0, 1, 0], [40, 0, 18, 1, 1, 0]]


def ranked(path: Path, limit: float = 0.2) -> list[hotness.Hotness]:
    (run,) = history.of_table(path)
    return hotness.of(run, limit)


def test_each_parameter_has_the_state_that_its_counts_say(tmp_path: Path) -> None:
    found = ranked(table(tmp_path / "a.parquet", COUNTS))
    assert [p.state for p in found] == ["sparse", "never touched", "hot", "cold", "cold", "frozen"]
    assert [p.share for p in found] == [1.0, 0.0, 0.95, 0.125, 0.05, 0.0]
    assert [p.steps_changed for p in found] == [1.0, 0.0, 1.0, 0.5, 1.0, 0.0]
    assert found[1].why == "every update rounds away"
    assert found[0].why == "3 of 10 rows are touched in a step"
    assert "sparse (3 of 10 rows)" in text.cells(found[0])
    assert found[2].update == 0.25


@pytest.mark.parametrize(
    ("gradient", "why"),
    [
        (None, "it never has a gradient"),
        (0.0, "its gradient is 0"),
        (1e-9, "every update rounds away"),
    ],
)
def test_why_a_parameter_is_never_touched(gradient: float | None, why: str, tmp_path: Path) -> None:
    model = [("a.weight", "Linear", (2, 2), {"gradient_norm": gradient})]
    (one,) = ranked(table(tmp_path / "a.parquet", [[0], [0]], model))
    assert (one.state, one.why) == ("never touched", why)


def test_steps_that_were_skipped_do_not_make_a_parameter_cold(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", [[20], [0], [20]], [MODEL[2]])
    rows = tables.read_parquet(path, "parameters").to_pylist()
    rows[1]["stepped"] = False
    tables.write_parquet(path, tables.table("parameters", rows))
    (run,) = history.of_table(path)
    (one,) = hotness.of(run)
    assert (one.share, one.state) == (1.0, "hot")
    assert "1 more step was skipped" in " ".join(answer.sentences(run, [one]))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("LayerNorm", "layer norm"), ("LlamaRMSNorm", "layer norm"), ("T5LayerNorm", "layer norm"),
        ("BatchNorm2d", "other norm"), ("Embedding", "embedding"), ("Linear", "linear"),
        ("Conv1D", "linear"), ("Conv1d", "convolution"), ("Conv2d", "convolution"),
        ("BertSelfAttention", "BertSelfAttention"), (None, None),
    ],
)  # fmt: skip
def test_the_kind_of_a_layer_is_that_of_its_class(name: str | None, kind: str | None) -> None:
    assert hotness.layer_kind(name) == kind


def test_groups_weigh_parameters_by_their_elements(tmp_path: Path) -> None:
    found = ranked(table(tmp_path / "a.parquet", COUNTS))
    kinds = {g.name: g for g in hotness.by_kind(found)}
    assert kinds["linear weight"].share == pytest.approx((19 + 1 + 0) / (20 + 20 + 8))
    assert kinds["layer norm weight"].share == pytest.approx(0.5 / 8)
    assert [g.name for g in hotness.by_block(found)] == ["wte", "block 0", "block 1", "head"]
    assert next(iter(hotness.by_kind(found))).name == "layer norm weight"


def test_the_answer_says_whether_layer_norms_are_the_cold_ones(tmp_path: Path) -> None:
    def said(counts: list[int]) -> str:
        path = table(tmp_path / "a.parquet", [counts])
        (run,) = history.of_table(path)
        return " ".join(answer.sentences(run, hotness.of(run)))

    assert "2 of 5 trained parameters are cold" in said([40, 0, 20, 0, 20, 0])
    assert "All that is cold is layer norm: 2 of 2" in said([40, 0, 20, 0, 20, 0])
    assert "Layer norms are not cold: 0 of 2 layer-norm parameters" in said([40, 4, 20, 4, 0, 0])
    assert "Layer norms are colder than the rest: 2 of 2" in said([40, 0, 20, 0, 0, 0])
    assert "Layer norms are no colder than the rest: 1 of 2" in said([40, 0, 0, 4, 0, 0])
    assert "None of 5 trained parameters is cold" in said([40, 4, 20, 4, 20, 0])
    assert "1 frozen (requires no gradient): head.weight." in said([40, 4, 20, 4, 20, 0])


def test_the_answer_tells_weights_of_layer_norms_from_their_biases(tmp_path: Path) -> None:
    model = [("ln.weight", "LayerNorm", (4,), {}), ("ln.bias", "LayerNorm", (4,), {})]
    (run,) = history.of_table(table(tmp_path / "a.parquet", [[0, 4]], model))
    said = " ".join(answer.sentences(run, hotness.of(run)))
    assert "All that is cold is layer norm, its weights alone: 1 of 2" in said


def test_a_log_with_its_index_says_what_the_table_says(tmp_path: Path) -> None:
    about = documents.read(index(tmp_path / "x.parameters.index.json"), documents.Parameters)
    run = history.of_log(log(tmp_path / "x.parameter_changes.log", COUNTS), about)
    of_log, of_table = hotness.of(run), ranked(table(tmp_path / "a.parquet", COUNTS))
    for a, b in zip(of_log, of_table, strict=True):
        assert (a.share, a.steps_changed, a.kind) == (b.share, b.steps_changed, b.kind)


def test_a_log_alone_ranks_by_steps_and_says_that_sizes_are_unknown(tmp_path: Path) -> None:
    run = history.of_log(log(tmp_path / "a.log", [[3, 0, 0, 1], [3, 1, 0, 1]]))
    found = hotness.of(run)
    assert [p.share for p in found] == [None] * 4
    assert [p.steps_changed for p in found] == [1, 0.5, 0, 1]
    assert found[2].why == "no step names it"
    assert "their size is not" in run.notes[0]
    assert found[0].about.elements is None


@pytest.mark.parametrize(
    ("counts", "wrong"),
    [([0] * 6 + [1], "index ends at 5"), ([41] + [0] * 5, "changes 41 elements of wte.weight")],
)
def test_a_log_of_another_model_than_its_index_is_refused(
    counts: list[int], wrong: str, tmp_path: Path
) -> None:
    about = documents.read(index(tmp_path / "x.parameters.index.json"), documents.Parameters)
    with pytest.raises(InputError, match=wrong):
        history.of_log(log(tmp_path / "a.log", [counts]), about)


def test_runs_of_different_models_are_not_seen_together(tmp_path: Path) -> None:
    other = [*MODEL[:2], ("h.0.mlp.weight", "Conv1D", (4, 6), {}), *MODEL[3:]]
    (a,) = history.of_table(table(tmp_path / "a.parquet", COUNTS))
    (b,) = history.of_table(table(tmp_path / "b.parquet", COUNTS, other))
    history.one_model([a, a])
    with pytest.raises(InputError, match=r"b.parquet: .*h.0.mlp.weight is 4×6, not 4×5"):
        history.one_model([a, b])


def test_logs_without_index_that_cannot_be_of_one_model_are_refused(tmp_path: Path) -> None:
    a = history.of_log(log(tmp_path / "a.log", [[100, 200, 300, 400]]))
    like = history.of_log(log(tmp_path / "b.log", [[90, 0, 300, 390]]))
    unlike = history.of_log(log(tmp_path / "c.log", [[10, 2000, 30, 4]]))
    history.one_model([a, like])
    with pytest.raises(InputError, match="4 of 4 parameters change in quite other numbers"):
        history.one_model([a, unlike])


def test_shards_of_ranks_add_up_and_replicas_count_once(tmp_path: Path) -> None:
    model = [
        ("a.weight", "Linear", (8, 5), {"sharded": True, "elements": 20, "update_norm": 3.0}),
        ("n.weight", "LayerNorm", (4,), {}),
    ]
    runs = []
    for rank, counts in enumerate([[20, 4], [10, 4]]):
        if rank:
            model[0][3]["update_norm"] = 4.0  # type: ignore[index]
        path = table(tmp_path / f"r{rank}.parquet", [counts], model, rank=rank)
        runs += history.of_table(path)
    whole = ranks.together(runs)
    sharded, replica = hotness.of(whole)
    assert (sharded.changed, sharded.about.elements, sharded.share) == (30, 40, 0.75)
    assert whole.figures["update_norm"][0, 0] == pytest.approx(math.hypot(3, 4))
    assert (replica.changed, replica.about.elements) == (4, 4)
    assert not whole.notes


def test_shards_that_the_mesh_holds_twice_count_once(tmp_path: Path) -> None:
    # Two shards of 20 elements, each on two ranks.
    own = {"sharded": True, "elements": 20, "update_norm": 3.0}
    runs = []
    for rank, count in enumerate([20, 10, 20, 10]):
        path = tmp_path / f"r{rank}.parquet"
        runs += history.of_table(table(path, [[count]], [("a.weight", "Linear", (8, 5), own)]))
    (one,) = hotness.of(ranks.together(runs))
    assert (one.changed, one.about.elements) == (30, 40)


def test_stages_of_a_pipeline_stand_side_by_side(tmp_path: Path) -> None:
    runs = []
    for rank, part in enumerate((slice(0, 3), slice(3, 6))):
        counts = [of_step[part] for of_step in COUNTS]
        path = table(tmp_path / f"r{rank}.parquet", counts, MODEL[part], rank=rank)
        runs += history.of_table(path)
    found = hotness.of(ranks.together(runs), 0.2)
    assert [p.about.path for p in found] == [name for name, *_ in MODEL]
    assert [p.about.index for p in found] == list(range(6))
    assert [p.share for p in found] == [1.0, 0.0, 0.95, 0.125, 0.05, 0.0]


def test_replicas_that_have_come_apart_are_noted(tmp_path: Path) -> None:
    runs = []
    for rank, counts in enumerate([COUNTS, [[40, 0, 20, 0, 1, 0], [40, 0, 17, 1, 1, 0]]]):
        runs += history.of_table(table(tmp_path / f"r{rank}.parquet", counts, rank=rank))
    (note,) = ranks.together(runs).notes
    assert "rank 1 changed other elements of h.0.mlp.weight than rank 0" in note


def test_a_table_that_lacks_a_row_is_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", COUNTS)
    rows = tables.read_parquet(path, "parameters").to_pylist()
    tables.write_parquet(path, tables.table("parameters", rows[:-1]))
    with pytest.raises(InputError, match="not every step has every parameter once"):
        history.of_table(path)


def test_a_training_that_broke_is_said_to_be_broken_first(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", COUNTS)
    rows = tables.read_parquet(path, "parameters").to_pylist()
    rows[8]["update_norm"] = float("nan")
    tables.write_parquet(path, tables.table("parameters", rows))
    (run,) = history.of_table(path)
    first = next(answer.sentences(run, hotness.of(run)))
    assert first.startswith("step 1 made h.0.mlp.weight NaN or infinite: this training is broken")
