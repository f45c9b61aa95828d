"""Facts of a side: the machine in words, and the inputs that its step was given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec import convert
from msgspec.structs import replace

from layerline.analysis.captures.settings import _inputs_hash, _trained, machine
from layerline.analysis.rundir.record import title
from layerline.core.documents import Eager, Machine, Model
from layerline.core.run import open_run

STATE = {
    "cpu": "Example CPU",
    "cpus": 16,
    "cpus_usable": 8,
    "memory_bytes": 128 * 2**30,
    "system": "Linux",
    "kernel": "6.8.0",
    "governor": None,
}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (STATE, "Example CPU, 16 CPUs, 128 GiB, Linux 6.8.0"),
        ({"cpu": "X"}, "X"),
        ({**STATE, "machine": "as recorded"}, "as recorded"),
        ({}, None),
    ],
)
def test_the_machine_is_told_by_its_state_before_the_measurement(
    state: dict[str, Any], said: str | None
) -> None:
    recorded = convert({"before": state, "after": {"cpu": "Y"}}, Machine)
    assert machine(recorded)["machine"] == said


def test_a_machine_that_was_not_recorded_is_unknown() -> None:
    assert set(machine(None).values()) == {None}


def test_inputs_are_known_by_the_hash_of_the_tokens_that_the_step_was_given() -> None:
    tokens = {"export/inputs.npz": {"sha256": "0123456789abcdef"}}
    assert _inputs_hash({"inputs": tokens}) == "0123456789ab"
    assert _inputs_hash({"inputs": {}, "outputs": tokens}) == "0123456789ab"
    assert _inputs_hash({"inputs": {"export/model.json": {"sha256": "1"}}}) is None
    assert _inputs_hash({}) is None


def test_the_model_of_a_training_is_known_by_what_it_is_and_not_by_where_it_lies() -> None:
    tiny = Eager(model="tiny", workload="gpt2", config={"n_layer": 2}, parameters=10)
    assert _trained(tiny) == _trained(replace(tiny, batch=2, compiled=True)) is not None
    others = (
        replace(tiny, config={"n_layer": 3}),
        replace(tiny, workload="bert"),
        replace(tiny, parameters=11),
    )
    assert len({_trained(m) for m in (tiny, *others)}) == 4
    far, near = (Eager(model=m, workload=m, parameters=3) for m in ("/far/own.py:f", "own.py:f"))
    assert _trained(far) == _trained(near)
    assert _trained(Eager()) is None


def test_own_code_is_called_alike_wherever_it_lies_exported_or_trained(tmp_path: Path) -> None:
    run = open_run(tmp_path / "run", create=True)
    for name in ("/far/away/net.py:build", "net.py:build"):
        trained = Eager(model=name, workload=name, batch=2, sequence=64)
        assert title(None, [trained], run) == "net.py:build, 2×64"
        assert title(Model(model=name, batch=2), [], run) == "net.py:build, batch 2"
    assert title(Model(model="org/name", batch=1, seq=8), [], run) == "org/name, 1×8"
    assert title(Model(model="/far/away/bert/", batch=1, seq=8), [], run) == "bert, 1×8"
