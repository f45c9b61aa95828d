"""Tensors of a second engine, where an engine of all of them cannot be built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from layerline.core.accuracy.limits import default
from layerline.core.errors import InputError, LayerlineError
from layerline.core.run import Run
from layerline.profile.accuracy import locate, values
from layerline.profile.accuracy.tensors import Eager, Placed

ONE = np.ones((2, 2))
TENSORS = [f"t{n}" for n in range(8)]


class Source:
    """A row of modules m0, m1, …, each of which reads the tensor before its own. `without`: engines
    with one of these as an output cannot be built; `file`: what the built-from file gives."""

    parts = False
    ends = ("t7",)

    def __init__(self, without: Iterable[str] = (), file: Mapping[str, Any] | None = None) -> None:
        self.without, self.file, self.asked = set(without), file or {}, list[list[str]]()
        self.placed = [
            Placed(Eager(f"m{n}", "Linear", [], ONE), [f"t{n - 1}"] if n else [], {}, t)
            for n, t in enumerate(TENSORS)
        ]

    def same_engine(self, names: Iterable[str]) -> Mapping[str, Any]:
        return {}

    def second_engine(self, names: Iterable[str]) -> Mapping[str, Any]:
        self.asked.append(list(names))
        if self.without & set(names):
            raise InputError("no implementation")
        return dict.fromkeys(names, ONE)

    def before(self, names: Iterable[str]) -> Mapping[str, Any]:
        return self.file

    def alone(self, tensor: str, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {}


@pytest.fixture
def subject(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.setattr(locate, "model", lambda _: SimpleNamespace(random_weights=False))
    monkeypatch.setattr(locate, "arrays", lambda _: {"t7": ONE})
    backend = SimpleNamespace(name="tensorrt", suffix=".engine")
    return SimpleNamespace(
        run=None, precision="fp16", backend=backend, capture=lambda suffix: tmp_path / suffix
    )


def measured(of: Any, source: Source) -> Any:
    return locate._measured(of, source, default("fp16"), whole=False)


def test_one_tensor_without_an_implementation_leaves_the_others_known(subject: Any) -> None:
    source = Source(without=["t6"])
    found = measured(subject, source)
    assert source.asked == [TENSORS, TENSORS[:4], TENSORS[4:], TENSORS[4:6], TENSORS[6:]]
    known = [m.tensor for m in found.modules if m.error_out is not None]
    assert known == TENSORS[:6]
    assert (
        found.remarks[0] == "an engine with 8 tensors as outputs cannot be built: no implementation"
    )


def test_it_is_given_up_after_a_few_engines(subject: Any) -> None:
    source = Source(without=TENSORS)
    found = measured(subject, source)
    assert len(source.asked) == locate.MOST_FAILURES
    assert all(m.error_out is None for m in found.modules)


def test_of_an_engine_without_known_tensors_the_file_tells_the_first_wrong_module(
    subject: Any,
) -> None:
    """Kind: BERT in half precision on TensorRT 8.6, which has no kernel for the marked graph."""
    file = {t: ONE if n < 3 else 2 * ONE for n, t in enumerate(TENSORS)}
    found = measured(subject, Source(without=TENSORS, file=file))
    first = [m for m in found.modules if m.first_wrong]
    assert [(m.module, m.export, m.error_out) for m in first] == [("m3", 1.0, None)]
    assert first[0].how == "not known of the engine, but of what it was built from"


def test_a_right_file_of_an_engine_without_known_tensors_accuses_nobody(subject: Any) -> None:
    found = measured(subject, Source(without=TENSORS, file=dict.fromkeys(TENSORS, ONE)))
    assert not any(m.first_wrong for m in found.modules)


def test_what_the_quick_level_cannot_build_is_built_at_the_level_of_the_engine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    levels: list[Any] = []

    def build(run: Run, precision: str, options: Mapping[str, Any]) -> None:
        levels.append(options["optimization_level"])
        if options["optimization_level"] == "1":
            raise LayerlineError("no implementation")

    backend = SimpleNamespace(
        suffix=".engine",
        build=build,
        source=lambda run, precision: run.file("export", "fp32.onnx"),
        engine=lambda run, precision: run.file("engines", "fp16.engine"),
    )
    of = SimpleNamespace(
        run=Run(tmp_path / "run"),
        precision="fp16",
        backend=backend,
        record={"options": {"optimization_level": 4}},
    )
    nodes = tmp_path / "nodes.json"
    nodes.write_text("{}")
    monkeypatch.setattr(values, "nodes_path", lambda run, precision: nodes)
    monkeypatch.setattr(values, "_outputs", lambda *_: {"t0": ONE})
    made = values._built(of, lambda file: {"ids"}, {"ids": ONE}, tmp_path / "second")  # type: ignore[arg-type]
    assert list(made) == ["t0"]
    assert levels == ["1", 4]
