"""Layers of two engines of one model: what did the same work stands together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis.comparison.layer_lists import together
from layerline.core.cli.command import cli
from layerline.core.tables import SCHEMAS


def row(layer: str, us: float | None = None, **more: Any) -> dict[str, Any]:
    blank: dict[str, Any] = dict.fromkeys(SCHEMAS["layers"].names)
    ns = None if us is None else us * 1000
    return {**blank, "layer": layer, "median_ns": ns, "total_ns": ns, "calls": 1, **more}


def test_layers_that_share_nodes_stand_together_however_they_are_fused() -> None:
    fp16 = [row("a + b", 10), row("c", 5), row("d || e", 7), row("only", 1)]
    int8 = [row("a", 3), row("b + c", 4), row("d", 1), row("e", 1), row("c_quant", 2)]
    found = [(t.a, t.b, t.a_ns, t.b_ns) for t in together(fp16, int8)]
    assert found == [
        (("a + b", "c"), ("a", "b + c"), 15_000, 7_000),
        (("d || e",), ("d", "e"), 7_000, 2_000),
        ((), ("c_quant",), 0, 2_000),
        (("only",), (), 1_000, 0),
    ]


def test_the_nodes_that_a_tool_tells_go_before_names() -> None:
    found = together([row("x", 2, nodes=["n"])], [row("y", 3, nodes=["n"])])
    assert [(t.a, t.b) for t in found] == [(("x",), ("y",))]


def test_a_reformat_is_no_part_of_the_layer_that_it_is_for() -> None:
    reformat = "Reformatting CopyNode for Input Tensor 0 to a + b"
    found = together([row("a + b", 10), row(reformat, 1)], [row("a", 6), row("b", 3)])
    assert [(t.a, t.b) for t in found] == [(("a + b",), ("a", "b")), ((reformat,), ())]


def test_other_precisions_and_tactics_are_said_of_the_same_layer() -> None:
    a = row("a", precision_in="fp16", tactic="t1")
    b = row("a", precision_in="int8", tactic="t2")
    [found] = together([a], [b])
    assert found.changes == (("reads", "fp16", "int8"), ("tactic", "t1", "t2"))
    assert found.more_ns is None and found.differs
    assert not together([a], [a])[0].differs


def test_an_unknown_time_is_not_counted_as_none() -> None:
    [found] = together([row("a + b", 3)], [row("a", 1), row("b")])
    assert (found.a_ns, found.b_ns, found.more_ns) == (3_000, None, None)


NAMES = st.lists(st.lists(st.sampled_from("abcdefg"), min_size=1, max_size=3, unique=True))


@given(NAMES, NAMES)
def test_every_layer_stands_in_one_line_and_times_add_up(
    a: list[list[str]], b: list[list[str]]
) -> None:
    rows = [[row(" + ".join(n), i + 1) for i, n in enumerate(side)] for side in (a, b)]
    found = together(*rows)
    for side, own in zip(("a", "b"), rows, strict=True):
        labels = [n for t in found for n in getattr(t, side)]
        assert len(labels) == len(set(labels)) == len(own)
        assert sum(getattr(t, f"{side}_ns") for t in found) == sum(r["median_ns"] for r in own)


def test_two_profiles_are_compared_by_the_command(tmp_path: Path) -> None:
    paths = []
    for name, layers in (("a", {"x + y": 2.0, "z": 1.0}), ("b", {"x": 0.5, "y": 0.5, "z": 1.0})):
        records = [
            {"name": n, "timeMs": 10 * ms, "averageMs": ms, "medianMs": ms, "percentage": 1}
            for n, ms in layers.items()
        ]
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_text(json.dumps([{"count": 10}, *records]))
    told = CliRunner().invoke(cli, ["compare", *map(str, paths)])
    assert told.exit_code == 0
    assert "1 layer in A, 2 layers in B" in told.stdout and "1 the same" in told.stdout
    document = json.loads(CliRunner().invoke(cli, ["compare", *map(str, paths), "--json"]).stdout)
    assert document["layers"][0]["a"] == ["x + y"]
    assert (document["layers"][0]["a_ns"], document["layers"][0]["b_ns"]) == (2e6, 1e6)
    refused = CliRunner().invoke(cli, ["compare", *map(str, paths), "--fail-above", "5"])
    assert refused.exit_code != 0
