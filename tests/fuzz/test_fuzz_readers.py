"""Every reader against mutated files: an Artefact or a LayerlineError, nothing else, no hang."""

from __future__ import annotations

import json
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from reader_seeds import OPERATIONS, SEEDS, TOKENS, mutate

from layerline.analysis.readers import base, registry
from layerline.core.errors import LayerlineError

HANG_SECONDS = 60  # far beyond any honest reading of a few kilobytes

mutations = st.lists(
    st.tuples(
        st.sampled_from(OPERATIONS),
        st.integers(0, 1 << 20),
        st.integers(0, 64),
        st.sampled_from(TOKENS) | st.binary(max_size=8),
    ),
    max_size=8,
)


@contextmanager
def hang_guard() -> Iterator[None]:
    def give_up(*_: Any) -> None:
        raise AssertionError(f"still reading after {HANG_SECONDS} s")

    signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HANG_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def check(artefact: base.Artefact) -> None:
    """An artefact is what its docstring says, down to every string."""
    for table in artefact.tables.values():
        table.validate(full=True)
    json.dumps(artefact.facts, allow_nan=False).encode()
    for note in artefact.notes:
        note.encode()


def attempt(name: str, path: Path) -> None:
    reader = registry.load(name)
    with hang_guard():
        try:
            check(reader.read(path))
        except LayerlineError as e:
            assert "\n" not in e.line()
            e.line().encode()
        try:
            head = base.read_head(path)
        except LayerlineError:
            return
        for name in registry.READERS:
            assert registry.load(name).sniff(head) in (True, False)
        try:
            registry.read(path)
        except LayerlineError as e:
            assert "\n" not in e.line()


def write_mutated(name: str, seed: int, changes: list[Any], folder: Path) -> Path:
    path = SEEDS[name][seed % len(SEEDS[name])](folder)
    target = path
    if path.is_dir():
        files = sorted(path.iterdir())
        target = files[seed % len(files)]
    target.write_bytes(mutate(target.read_bytes(), changes))
    return path


def test_every_reader_has_a_seed() -> None:
    assert set(SEEDS) == set(registry.READERS)


@pytest.mark.parametrize("name", registry.READERS)
def test_every_seed_is_of_its_kind(name: str, tmp_path: Path) -> None:
    if name == "ncu.report":
        pytest.importorskip("ncu_report")
    for number, write in enumerate(SEEDS[name]):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = write(folder)
        assert registry.identify(path).KIND == registry.load(name).KIND
        check(registry.read(path))


# A report goes to NVIDIA's native library, whose crashes would end the tests: not mutated here.
@pytest.mark.parametrize("name", [n for n in registry.READERS if n != "ncu.report"])
@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(seed=st.integers(0, 11), changes=mutations)
def test_mutated_files(name: str, seed: int, changes: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        attempt(name, write_mutated(name, seed, changes, Path(folder)))


@settings(deadline=None, max_examples=60, database=None)
@given(data=st.binary(max_size=200))
def test_any_bytes_at_all(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a"
        path.write_bytes(data)
        with hang_guard():
            try:
                check(registry.read(path))
            except LayerlineError as e:
                assert "\n" not in e.line()
