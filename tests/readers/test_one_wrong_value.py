"""One wrong value in a known form: the value and its place are named, or it is unknown. Never a
traceback, and never "of no known kind" where a key tells the kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import json_mutations
import pytest
import reader_seeds

from layerline.analysis.readers import registry
from layerline.core.errors import LayerlineError

# Readers, and which of their seeds are one JSON document.
JSON = {
    "tensorrt.layers": (0,),
    "tensorrt.profile": (0, 1, 2, 3),
    "onnxruntime.profile": (0,),
    "torch.trace": (0, 2),
    "memory.snapshot": (2,),
}
SEEDS = [(kind, n) for kind, seeds in JSON.items() for n in seeds]
# Without its only record, or one list of times among none, a file has no key of its kind left.
NAMELESS = {("tensorrt.profile", 1), ("tensorrt.profile", 2), ("tensorrt.profile", 3)}


@pytest.mark.parametrize(("kind", "seed"), SEEDS)
def test_every_value_of_another_type_is_named_or_unknown(
    tmp_path: Path, kind: str, seed: int
) -> None:
    path = reader_seeds.SEEDS[kind][seed](tmp_path)
    document = json.loads(path.read_text())
    for place in json_mutations.places(document):
        for what, value in json_mutations.VALUES.items():
            path.write_text(json_mutations.changed(document, place, value))
            try:
                for table in registry.read(path).tables.values():
                    table.validate(full=True)
            except LayerlineError as e:
                line = e.line()
                assert "\n" not in line
                if what != "gone" and (kind, seed) not in NAMELESS and len(place) > 1:
                    assert "no known kind" not in line, (place, what)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ([{"count": "ten"}, {"name": "a", "timeMs": 1}], 'record 0: count is "ten", no number'),
        ([{"count": -2}, {"name": "a", "timeMs": 1}], "record 0: count is -2, no number"),
        ([{"count": 1}, {"name": 7, "timeMs": 1}], "record 1: name is 7, no text"),
        ([{"count": 1}, {"name": "a", "timeMs": [1]}], 'timeMs of layer "a" is [1], no number'),
        ({"Layers": 5, "Bindings": []}, "Layers is 5, no list"),
        ({"Layers": [{"Name": None}], "Bindings": []}, "Layers[0]: Name is null, no text"),
        ({"segments": [{"segment_type": "small", "blocks": 5}]}, "blocks is 5, no list"),
        ({"segments": [3], "device_traces": []}, "segments[0] is 3, no object"),
    ],
)
def test_an_error_says_the_value_the_place_and_what_to_do(
    tmp_path: Path, document: Any, told: str
) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(document))
    with pytest.raises(LayerlineError) as caught:
        registry.read(path)
    assert told in caught.value.line() and "again" in caught.value.fix
