"""`--set key=value`: typed by the configuration, refused with what to do."""

from __future__ import annotations

from typing import Any

import pytest

from layerline.core.errors import InputError
from layerline.export.overrides import split, typed

KNOWN: dict[str, Any] = {
    "n_layer": 2,
    "dropout": 0.1,
    "scale_attn_by_inverse_layer_idx": False,
    "activation": "gelu",
    "n_inner": None,
    "architectures": ["A"],
    "rope": {"theta": 1.0},
}
SYNONYMS = {"num_hidden_layers": "n_layer"}


def one(text: str) -> dict[str, Any]:
    return typed(split([text]), KNOWN, SYNONYMS)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("n_layer=12", {"n_layer": 12}),
        ("num_hidden_layers=3", {"n_layer": 3}),
        ("dropout=0", {"dropout": 0.0}),
        ("scale_attn_by_inverse_layer_idx=true", {"scale_attn_by_inverse_layer_idx": True}),
        ("scale_attn_by_inverse_layer_idx=0", {"scale_attn_by_inverse_layer_idx": False}),
        ("activation=relu=x", {"activation": "relu=x"}),
        ("n_inner=64", {"n_inner": 64}),
        ("n_inner=null", {"n_inner": None}),
        ('architectures=["B"]', {"architectures": ["B"]}),
        ('rope={"theta": 2}', {"rope": {"theta": 2}}),
        ("attn_implementation=eager", {}),
    ],
)
def test_values_get_the_type_the_configuration_has(text: str, value: dict[str, Any]) -> None:
    found = one(text)
    assert found == value
    assert [type(v) for v in found.values()] == [type(v) for v in value.values()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("n_layers=2", "did you mean n_layer"),
        ("n_layer=2.5", "not a whole number"),
        ("n_layer=true", "not a whole number"),
        ("dropout=high", "not a number"),
        ("scale_attn_by_inverse_layer_idx=2", "not true or false"),
        ("architectures=B", "not a JSON list"),
        ("rope=[1]", "not a JSON object"),
        ("n_layer", "not key=value"),
        ("=3", "not key=value"),
    ],
)
def test_what_cannot_be_set_is_refused_with_a_hint(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        one(text)


def test_a_key_given_twice_with_two_values_is_refused() -> None:
    with pytest.raises(InputError, match="given twice"):
        split(["n_layer=1", "n_layer=2"])
    assert split(["n_layer=1", "n_layer=1"]) == {"n_layer": "1"}
