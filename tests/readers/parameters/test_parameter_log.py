"""Logs of parameter changes: every spelling is read, and what would count wrongly is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.analysis.readers import registry
from layerline.analysis.readers.parameters import log
from layerline.core.errors import InputError
from layerline.profile.eager.parameters import log as parameter_log


def written(folder: Path, text: str) -> Path:
    path = folder / "parameter_changes.log"
    path.write_text(text)
    return path


def rows(path: Path) -> list[tuple[int, int, int]]:
    table = registry.read(path).main
    return [(r["step"], r["index"], r["changed"]) for r in table.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        "1700000000.5, 3: 0:12 7:1\n1700000001.5, 4: 7:2\n",
        "1700000000, iter 3: 0:12, 7:1\n1700000001, iter 4: 7:2\n",
        "# a comment\n\n1700000000,3:0:12;7:1\n1700000001,4:7:2;\n",
        "1700000000.5, 3: 0:12 7:1\r\n1700000001.5, 4: 7:2\r\n",
    ],
)
def test_every_spelling_is_known_by_its_content(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    assert registry.identify(path).KIND == "parameter-log"
    assert rows(path) == [(3, 0, 12), (3, 7, 1), (4, 7, 2)]


@pytest.mark.parametrize(
    "text",
    [
        "2024, 12:30:45\n",
        "1, 2: 3:4\n",
        "1700000000, 3: 1:2:3\n",
        "1700000000, 3 0:12\n",
        "a,b\n1,2\n",
    ],
)
def test_other_text_is_no_log(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="kind"):
        registry.identify(written(tmp_path, text))


steps = st.dictionaries(
    st.integers(0, 2**40), st.lists(st.integers(0, 2**45), max_size=6), min_size=1, max_size=5
)


@given(steps=steps, time=st.floats(1e9, 4e9))
def test_what_is_written_is_read(
    steps: dict[int, list[int]], time: float, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = "".join(parameter_log.line(time, n, counts) for n, counts in sorted(steps.items()))
    read, notes = log.lines(written(tmp_path_factory.mktemp("log"), text))
    assert [(s.step, dict(s.counts)) for s in read] == [
        (n, {i: c for i, c in enumerate(counts) if c}) for n, counts in sorted(steps.items())
    ]
    assert read[0].unix_time == pytest.approx(time, abs=1e-6)
    assert not notes


def test_a_step_that_changed_nothing_is_a_step(tmp_path: Path) -> None:
    artefact = registry.read(written(tmp_path, "1700000000, 0:\n1700000001, 1: 0:1\n"))
    assert artefact.facts["steps"] == 2
    assert len(artefact.main) == 1


RESUMED = "".join(
    f"1700000{at:03}, {n}: 0:{count}\n"
    for at, (n, count) in enumerate([(1, 10), (2, 20), (3, 30), (4, 40), (3, 31), (4, 41), (5, 51)])
)


def test_a_resumed_log_is_an_error_that_names_the_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="line 5 is iteration 3 after 4: the run was resumed"):
        registry.read(written(tmp_path, RESUMED))


def test_the_later_of_repeated_iterations_count_where_that_is_asked_for(tmp_path: Path) -> None:
    read, notes = log.lines(written(tmp_path, RESUMED), resumed=True)
    assert [(s.step, dict(s.counts)[0]) for s in read] == [
        (1, 10),
        (2, 20),
        (3, 31),
        (4, 41),
        (5, 51),
    ]
    assert notes == ["2 iterations of a run that was resumed before them are left out"]


@pytest.mark.parametrize("cut", range(1, 14))
def test_a_last_line_that_was_cut_short_is_left_out_and_said_so(cut: int, tmp_path: Path) -> None:
    text = "1700000000, 0: 0:123\n1700000001, 1: 0:456\n"
    artefact = registry.read(written(tmp_path, text[:-cut]))
    assert artefact.facts["last_step"] == 0
    assert "line 2, the last, is cut short" in artefact.notes[0]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("loss is nan", "line 2 is not"),
        ("1700000001, 1: 0:1 0:2", "index 0 twice"),
        ("1700000001, 1: 0:99999999999999999999", "too large"),
        ("1700000001, 1: 0:-3", "line 2 is not"),
    ],
)
def test_a_line_of_another_form_is_named(line: str, wrong: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=wrong):
        registry.read(written(tmp_path, f"1700000000, 0: 0:1\n{line}\n1700000002, 2: 0:1\n"))
