"""Labels of things that share a name."""

from __future__ import annotations

from layerline.core.labels import all_labelled


def test_only_what_shares_its_name_has_a_number() -> None:
    assert all_labelled(["a", "b", "a", "c", "a"]) == ["a #1", "b", "a #2", "c", "a #3"]
    assert all_labelled([]) == []
