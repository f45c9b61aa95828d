"""What differs between the sides: every known difference, and what nobody recorded."""

from __future__ import annotations

from typing import Any

from layerline.analysis.comparison.comparability import FACTS, differences
from layerline.analysis.model.side import SideFacts

SAME: dict[str, Any] = {
    "precision": "fp32",
    "compute": "fp32",
    "tf32": False,
    "device": "cpu",
    "gpu": "none",
    "cpu": "X",
    "cpus": 4,
    "threads": 4,
    "train_mode": False,
    "dropout": [],
    "gradients": False,
    "attention": "sdpa",
    "autocast": False,
    "weights": "fp32",
    "batch": 1,
    "sequence": 128,
    "inputs": "tokens",
    "model": "abc",
    "machine": "m",
    "driver": "1",
    "governor": "performance",
    "mhz": 3000.0,
    "clocks": 1500,
    "layerline": "1",
    "random_weights": False,
    "load": 0.1,
}


def pair(**eager: Any) -> list[dict[str, Any]]:
    return differences(
        [
            SideFacts("e", "ort fp32", "engine", SAME),
            SideFacts("p", "eager fp32", "eager", {**SAME, **eager}),
        ]
    )


def test_equal_sides_have_no_difference() -> None:
    assert set(FACTS) <= set(SAME)
    assert pair() == []


def test_each_fact_that_differs_is_listed_with_both_values_and_the_sides_it_bends() -> None:
    for name in FACTS:
        other = 9999 if isinstance(SAME[name], (int, float)) else "another"
        found = [d for d in pair(**{name: other}) if d.what == FACTS[name].what]
        assert len(found) == 1, name
        assert found[0].engine != found[0].eager
        assert found[0].sides == ["e", "p"] and found[0].effect


def test_tf32_and_dropout_in_words() -> None:
    tf32, dropout = pair(tf32=True, dropout=[0.1])
    assert (tf32.engine, tf32.eager) == ("off", "on")
    assert (dropout.engine, dropout.eager) == ("none", "0.1")


def test_what_one_side_did_not_record_is_unknown_and_not_equal() -> None:
    (found,) = pair(governor=None)
    assert (found.engine, found.eager) == ("performance", "unknown")
    assert found.effect.startswith("Not recorded on one side")


def test_what_neither_side_recorded_is_listed_once() -> None:
    facts = {k: v for k, v in SAME.items() if k not in ("driver", "clocks")}
    sides = [SideFacts("e", "", "engine", facts), SideFacts("p", "", "eager", facts)]
    (found,) = differences(sides)
    assert found.what == "not recorded: driver, GPU clocks"


def test_frequencies_read_at_two_moments_may_differ_a_little() -> None:
    assert pair(mhz=3100.0) == []
    assert [d.what for d in pair(mhz=2000.0)] == ["CPU frequency (MHz)"]


def test_an_engine_that_ran_another_precision_than_asked_for() -> None:
    half = {**SAME, "precision": "fp16", "compute": "fp32"}
    found = differences([SideFacts("e", "", "engine", half), SideFacts("p", "", "eager", SAME)])
    (ran,) = [d for d in found if d.what == "precision asked for and run"]
    assert ran.engine == "asked for fp16, computed in fp32" and ran.sides == ["e"]
    assert [d.what for d in found if d.eager == "fp32"] == ["precision asked for"]


def test_engines_with_the_same_value_share_an_entry() -> None:
    other = {**SAME, "threads": 8}
    found = differences(
        [
            SideFacts("e1", "", "engine", other),
            SideFacts("e2", "", "engine", other),
            SideFacts("p", "", "eager", SAME),
        ]
    )
    assert [(d.what, d.sides) for d in found] == [("threads", ["e1", "p", "e2"])]


def test_random_weights_and_a_busy_machine() -> None:
    weights, busy = pair(random_weights=True, load=3.5)
    assert "proves little" in weights.effect.replace("\n", " ") and weights.sides == ["p"]
    assert busy.eager == "load 3.5 on 4 CPUs" and busy.engine == "–"


def test_a_throttled_gpu_is_told_with_its_reason() -> None:
    (found,) = pair(throttled={"software power cap": 0.25})
    assert (found.what, found.eager) == ("GPU slowed down", "software power cap 25.0 %")
    assert found.sides == ["p"]


def _side(key: str, kind: str, precision: str, **facts: Any) -> SideFacts:
    return SideFacts(key, key, kind, {**SAME, "precision": precision, "compute": None, **facts})


def test_an_engine_is_held_against_eager_of_its_own_precision_as_its_ratio_is() -> None:
    engines = [_side(f"e{p}", "engine", f"fp{p}", weights=f"fp{p}") for p in (32, 16)]
    eagers = [_side(f"p{p}", "eager", f"fp{p}", weights=f"fp{p}") for p in (32, 16)]
    unknown = "not recorded: precision computed in"
    assert [d.what for d in differences([*engines, *eagers])] == [unknown]
    # Without eager fp16 its engine is compared with fp32: then both differences count.
    found = differences([*engines, eagers[0]])
    assert [(d.what, d.sides) for d in found][:-1] == [
        ("precision asked for", ["e16", "p32"]),
        ("precision of the weights", ["e16", "p32"]),
    ]
    # And without fp32 with whatever there is.
    assert [d.sides for d in differences([engines[0], eagers[1]])] == [["e32", "p16"]] * 3
