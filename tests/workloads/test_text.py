"""Text, tokens, sequences: what each rank trains on, and where a run goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerline.core.errors import InputError
from layerline.workloads.text import FEWEST, Sequences, Tokens, tokens


def numbers(count: int) -> Tokens:
    return Tokens(np.arange(count, dtype=np.uint16), "k", "numbers", "none", 1 << 16, None, None)


def decoded(cache: Path, data: Tokens) -> str:
    from tokenizers import Tokenizer

    path = cache / data.key[:16] / "tokenizer.json"
    text: str = Tokenizer.from_file(str(path)).decode(data.ids.tolist(), skip_special_tokens=False)
    return text


def test_text_of_torch_is_long_english_and_the_same_each_time(tmp_path: Path) -> None:
    first = tokens(None, None, 8192, tmp_path / "a")
    assert len(first.ids) > 200_000
    assert first.ids.max() < 8192
    assert "the input tensor" in decoded(tmp_path / "a", first)
    again = tokens(None, None, 8192, tmp_path / "b")
    assert np.array_equal(first.ids, again.ids)
    assert first.key == again.key


def test_any_bytes_survive_a_tokenizer_that_knows_bytes_only(tmp_path: Path) -> None:
    written = "naïve ☃\ttext\r\n" * 40
    (tmp_path / "a.txt").write_bytes(written.encode())
    data = tokens(tmp_path / "a.txt", None, FEWEST, tmp_path / "cache")
    assert decoded(tmp_path / "cache", data) == written + "</s>"
    assert data.ids.dtype == np.uint16


def test_documents_of_a_folder_follow_by_name_with_an_end_between(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.md").write_text("two")
    (folder / "a.txt").write_text("one")
    (folder / "deep" / "c.rst").write_text("three")
    (folder / "image.png").write_bytes(b"\x89PNG\xff")
    data = tokens(folder, None, 300, tmp_path / "cache")
    assert decoded(tmp_path / "cache", data) == "one</s>two</s>three</s>"


def test_a_long_file_is_read_in_pieces_without_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("layerline.workloads.text.PIECE", 50)
    text = "a short line\n" * 20 + "one long line " * 30 + "\nand the rest, without an end"
    (tmp_path / "a.txt").write_text(text)
    data = tokens(tmp_path / "a.txt", None, 300, tmp_path / "cache")
    assert decoded(tmp_path / "cache", data) == text + "</s>"


def test_tokens_are_made_once_and_again_for_another_text(tmp_path: Path) -> None:
    text, cache = tmp_path / "a.txt", tmp_path / "cache"
    text.write_text("some words " * 50)
    tokens(text, None, 300, cache)
    file = next(cache.glob("*/tokens.bin"))
    made = file.stat().st_mtime_ns
    tokens(text, None, 300, cache)
    assert file.stat().st_mtime_ns == made
    text.write_text("other words " * 50)
    assert "other" in decoded(cache, tokens(text, None, 300, cache))


def word_tokenizer(folder: Path, words: list[str]) -> Path:
    from tokenizers import Tokenizer, models, pre_tokenizers

    folder.mkdir()
    table = {word: at for at, word in enumerate(["[UNK]", "[MASK]", "[SEP]", *words])}
    tokenizer = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_a_tokenizer_of_the_users_is_used(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("dog bites man dog flies")
    folder = word_tokenizer(tmp_path / "tok", ["man", "bites", "dog"])
    data = tokens(tmp_path / "a.txt", folder, 6, tmp_path / "cache")
    assert data.ids.tolist() == [5, 4, 3, 5, 0, 2]
    assert (data.mask, data.end, data.vocabulary) == (1, 2, 6)


def test_a_tokenizer_with_more_words_than_the_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("man")
    folder = word_tokenizer(tmp_path / "tok", ["man", "bites", "dog"])
    with pytest.raises(InputError, match="tokens up to 5, the model's vocabulary ends at 4"):
        tokens(tmp_path / "a.txt", folder, 5, tmp_path / "cache")


@pytest.mark.parametrize(
    ("made", "message"),
    [
        ({}, "no such text"),
        ({"text": b"\xff\xfe\x00"}, "not UTF-8"),
        ({"text/picture.png": b"x"}, "no file here"),
        ({"text": b"words", "tok/other.json": b"{}"}, "no tokenizer.json"),
        ({"text": b"words", "tok/tokenizer.json": b"{}"}, "is no tokenizer"),
    ],
)
def test_unusable_input_is_named(tmp_path: Path, made: dict[str, bytes], message: str) -> None:
    for name, content in made.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    tokenizer = tmp_path / "tok" if (tmp_path / "tok").exists() else None
    with pytest.raises(InputError, match=message):
        tokens(tmp_path / "text", tokenizer, 300, tmp_path / "cache")


def test_a_vocabulary_without_room_for_bytes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="a vocabulary of 100"):
        tokens(None, None, 100, tmp_path)


def test_text_shorter_than_a_sequence_is_refused() -> None:
    with pytest.raises(InputError, match="numbers: 9 tokens, a sequence has 10"):
        Sequences(numbers(9), 10, 1)


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 40), st.booleans())
def test_ranks_together_read_what_one_rank_reads(
    ranks: int, batch: int, count: int, shuffled: bool
) -> None:
    data, seed = numbers(5 * count + 3), 7 if shuffled else None
    alone = Sequences(data, 5, batch * ranks, seed=seed)
    many = [Sequences(data, 5, batch, rank=r, ranks=ranks, seed=seed) for r in range(ranks)]
    for _ in range(4):
        assert np.array_equal(next(alone), np.concatenate([next(one) for one in many]))


@given(st.integers(1, 30), st.integers(0, 3))
def test_each_pass_reads_every_sequence_once(count: int, seed: int) -> None:
    read = Sequences(numbers(4 * count), 4, count, seed=seed)
    for _ in range(3):
        assert sorted(next(read)[:, 0].tolist()) == list(range(0, 4 * count, 4))


def test_a_saved_position_goes_on_with_other_ranks() -> None:
    one = Sequences(numbers(400), 4, 6, seed=1)
    next(one)
    saved = json.loads(json.dumps(one.state()))
    halves = [Sequences(numbers(400), 4, 3, rank=r, ranks=2, seed=1) for r in range(2)]
    for half in halves:
        half.restore(saved)
    assert np.array_equal(next(one), np.concatenate([next(half) for half in halves]))


def test_a_position_in_another_text_is_refused() -> None:
    saved = Sequences(numbers(400), 4, 6).state()
    with pytest.raises(InputError, match="position is one of length 4"):
        Sequences(numbers(400), 8, 6).restore(saved)
