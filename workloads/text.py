"""Text to train on: read, tokenised, packed into sequences, dealt to ranks.

    data = tokens(None, None, vocabulary=50257, cache=Path("runs/x/text"))
    batches = Sequences(data, length=1024, batch=2, rank=0, ranks=8, seed=0)
    next(batches)                     # (2, 1024) int64
    saved = batches.state()           # JSON; `restore(saved)` goes on from there

Text is a file or a folder of the user's, or what comes with PyTorch: the docstrings of `torch.nn`
and its functions, 1.6 million characters of English. Tokens are of a Hugging Face tokenizer
(``tokenizer.json``) or of a byte-level BPE that is trained on this very text, which needs no
download. They are written once, to a file in `cache` that is mapped into memory.
"""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..core.errors import InputError, ToolMissing
from ..core.files import read_json, replacing, sha256, sha256_of, write_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Ids = npt.NDArray[np.int64]

SUFFIXES = (".txt", ".text", ".md", ".rst")
PIECE = 1 << 20  # characters that are tokenised at a time
LEARN = 16 << 20  # characters that a tokenizer is trained on
# Padding is 0 for BERT and 1 for RoBERTa: neither number is a word of any text.
SPECIAL = ("<s>", "<pad>", "</s>", "<mask>")
FEWEST = len(SPECIAL) + 256  # a number for each byte
_END = ("<|endoftext|>", "<|end_of_text|>", "</s>", "[SEP]", "<eos>")
_MASK = ("[MASK]", "<mask>")
# Of torch: where its longer docstrings are.
_DOCUMENTED = ("nn", "optim", "linalg", "_torch_docs.py", "_tensor_docs.py", "functional.py")
_DOCSTRING = 200  # characters; shorter strings are rarely sentences


@dataclass(frozen=True)
class Tokens:
    """A text as numbers. `ids`: (tokens,) of an unsigned type, mapped from a file. `end` stands
    between documents; `mask`: the number that hides a token. None where the tokenizer has none."""

    ids: npt.NDArray[Any]
    key: str
    text: str
    tokenizer: str
    vocabulary: int
    end: int | None
    mask: int | None

    def facts(self) -> dict[str, Any]:
        """For a capture's meta file."""
        return {
            "text": self.text,
            "tokenizer": self.tokenizer,
            "tokenizer_vocabulary": self.vocabulary,
            "tokens": len(self.ids),
            "tokens_sha256": self.key,
        }


def tokens(text: Path | None, tokenizer: Path | None, vocabulary: int, cache: Path) -> Tokens:
    """The tokens of a text, from `cache` where they are there already.

    `text`: a file, a folder (its .txt, .md and .rst, by name), or None for what comes with PyTorch.
    `tokenizer`: a folder with a ``tokenizer.json``, such a file, or None for one that is trained on
    the text. `vocabulary`: how many numbers the model knows. Any number of processes may call this
    at once; one does the work. InputError for text that cannot be read, and for a tokenizer that
    is none or has numbers that the model does not know.
    """
    source = _Bundled() if text is None else _Files(text)
    given = None if tokenizer is None else tokenizer_file(tokenizer)
    if given is None and vocabulary < FEWEST:
        raise InputError(
            f"a vocabulary of {vocabulary}: bytes and the marks between them need {FEWEST}",
            fix="name a tokenizer that fits (--tokenizer), or a model with a larger vocabulary",
        )
    made_by = sha256(given) if given else f"trained {FEWEST} {LEARN}"
    key = sha256_of([source.key(), made_by, vocabulary])
    folder = cache / key[:16]
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if not (folder / "about.json").exists():
            _write(folder, source, given, vocabulary)
    finally:
        os.close(descriptor)
    return _load(folder, key)


class Sequences(Iterator[Ids]):
    """Batches (batch, length) int64 of consecutive tokens, without end.

    The text is cut into sequences of `length`; what is left over at its end is not used. A step's
    batches of all ranks together are the next ``ranks * batch`` sequences, whatever the number of
    ranks, and the text begins again when it is through. With a `seed` the sequences of each pass
    are in an order of its own. InputError where the text is shorter than one sequence.
    """

    def __init__(
        self,
        tokens: Tokens,
        length: int,
        batch: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        seed: int | None = None,
    ) -> None:
        self.count = len(tokens.ids) // length
        if not self.count:
            raise InputError(
                f"{tokens.text}: {len(tokens.ids)} tokens, a sequence has {length}",
                fix="give more text (--text) or a shorter sequence (--seq)",
            )
        self._tokens, self._length, self._batch, self._seed = tokens, length, batch, seed
        self._rank, self._ranks = rank, ranks
        self._position = 0  # sequences of all ranks
        self._order: tuple[int, Ids] | None = None

    @property
    def first(self) -> int:
        """The number of this rank's next sequence, counted over all ranks and passes."""
        return self._position + self._rank * self._batch

    def __next__(self) -> Ids:
        first = self.first
        self._position += self._ranks * self._batch
        return np.stack([self._sequence(first + at) for at in range(self._batch)])

    def _sequence(self, number: int) -> Ids:
        turn, at = divmod(number, self.count)
        if self._seed is not None:
            if self._order is None or self._order[0] != turn:
                generator = np.random.default_rng([self._seed, turn])
                self._order = turn, generator.permutation(self.count)
            at = int(self._order[1][at])
        begin = at * self._length
        return self._tokens.ids[begin : begin + self._length].astype(np.int64)

    def state(self) -> dict[str, Any]:
        """Where it stands, for JSON: another number of ranks can go on from there."""
        return {
            "sequences": self._position,
            "length": self._length,
            "seed": self._seed,
            "tokens_sha256": self._tokens.key,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken. InputError for the state of another text or length."""
        mine = self.state()
        for name in ("tokens_sha256", "length", "seed"):
            if state.get(name) != mine[name]:
                raise InputError(
                    f"the position is one of {name} {state.get(name)}, this text has {mine[name]}",
                    fix="go on with the same text, tokenizer, length and seed",
                )
        self._position = int(state["sequences"])


def files_of(text: Path) -> list[Path]:
    """A text file, or the text files of a folder, by name. InputError where there is none."""
    if not text.is_dir():
        if not text.is_file():
            raise InputError("no such text", file=text, fix="name a file or a folder (--text)")
        return [text]
    found = sorted(p for p in text.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
    if not found:
        raise InputError(f"no file here is {', '.join(SUFFIXES)}", file=text)
    return found


def tokenizer_file(path: Path) -> Path:
    """The ``tokenizer.json`` of a folder, or the file itself. InputError where there is none."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        raise InputError(
            "there is no tokenizer.json", file=path, fix="name a Hugging Face tokenizer's folder"
        )
    return file


class _Bundled:
    """The docstrings of PyTorch, a document each, in the order of their files."""

    name = "docstrings of torch"

    def __init__(self) -> None:
        spec = importlib.util.find_spec("torch")
        if spec is None or not spec.submodule_search_locations:
            raise ToolMissing("PyTorch is not installed", fix="pip install 'layerline[model]'")
        root = Path(next(iter(spec.submodule_search_locations)))
        places = [root / name for name in _DOCUMENTED]
        self._files = [f for p in places for f in ([p] if p.is_file() else sorted(p.rglob("*.py")))]

    def key(self) -> str:
        return _hash(self._files)

    def documents(self) -> Iterator[Iterator[str]]:
        for path in self._files:
            for node in ast.walk(ast.parse(path.read_bytes())):
                value = node.value if isinstance(node, ast.Constant) else None
                if isinstance(value, str) and len(value) >= _DOCSTRING:
                    yield iter([value])


class _Files:
    """A text file of the user's, or all those of a folder."""

    def __init__(self, path: Path) -> None:
        self.name, self._files = str(path), files_of(path)

    def key(self) -> str:
        return _hash(self._files)

    def documents(self) -> Iterator[Iterator[str]]:
        return (self._pieces(path) for path in self._files)

    def _pieces(self, path: Path) -> Iterator[str]:
        """A file in pieces that end with a line, where lines are shorter than a piece."""
        rest = ""
        try:
            with path.open(encoding="utf-8", newline="") as lines:
                while more := lines.read(PIECE):
                    head, line, rest = (rest + more).rpartition("\n")
                    if len(rest) > PIECE:
                        head, rest = head + line + rest, ""
                        line = ""
                    if head or line:
                        yield head + line
        except UnicodeDecodeError as e:
            raise InputError(
                f"is not UTF-8 text ({e.reason})", file=path, fix="convert it"
            ) from None
        if rest:
            yield rest


def _hash(files: list[Path]) -> str:
    return hashlib.sha256("".join(sha256(path) for path in files).encode()).hexdigest()


def _write(folder: Path, source: _Bundled | _Files, given: Path | None, vocabulary: int) -> None:
    """Leave tokens.bin, tokenizer.json and, last, about.json."""
    tokenizer = _loaded(given) if given else _trained(source, vocabulary)
    names: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    words = tokenizer.get_vocab(with_added_tokens=False).values()
    _check_fits(max(words, default=0), vocabulary, given)
    end = next((names[n] for n in _END if n in names and names[n] < vocabulary), None)
    mask = next((names[n] for n in _MASK if n in names and names[n] < vocabulary), None)
    dtype = np.dtype("<u2" if vocabulary <= 1 << 16 else "<u4")
    with replacing(folder / "tokens.bin") as temporary, temporary.open("wb") as out:
        for ids in _encoded(tokenizer, source, end):
            if ids:
                _check_fits(max(ids), vocabulary, given)
            out.write(np.asarray(ids, dtype).tobytes())
    with replacing(folder / "tokenizer.json") as temporary:
        tokenizer.save(str(temporary))
    about = {
        "text": source.name,
        "tokenizer": str(given) if given else "byte-level BPE, trained on the text",
        "vocabulary": len(names),
        "end": end,
        "mask": mask,
        "dtype": dtype.str,
    }
    write_json(folder / "about.json", about)


def _encoded(
    tokenizer: Tokenizer, source: _Bundled | _Files, end: int | None
) -> Iterator[list[int]]:
    for document in source.documents():
        for piece in document:
            yield tokenizer.encode(piece, add_special_tokens=False).ids
        if end is not None:
            yield [end]


def _check_fits(largest: int, vocabulary: int, given: Path | None) -> None:
    if largest >= vocabulary:
        raise InputError(
            f"has tokens up to {largest}, the model's vocabulary ends at {vocabulary - 1}",
            file=given,
            fix="use the tokenizer of this model, or none",
        )


def _loaded(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as e:  # noqa: BLE001 - the library raises Exception itself
        raise InputError(f"is no tokenizer ({e})", file=path) from None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _trained(source: _Bundled | _Files, vocabulary: int) -> Tokenizer:
    """A byte-level BPE of at most `vocabulary` tokens: any text at all can be written with it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_beginning(source), trainer)
    return tokenizer


def _beginning(source: _Bundled | _Files) -> Iterator[str]:
    read = 0
    for document in source.documents():
        for piece in document:
            yield piece
            read += len(piece)
            if read >= LEARN:
                return


def _load(folder: Path, key: str) -> Tokens:
    about = read_json(folder / "about.json")
    ids: npt.NDArray[Any] = np.zeros(0, about["dtype"])
    if (folder / "tokens.bin").stat().st_size:  # an empty file cannot be mapped
        ids = np.memmap(folder / "tokens.bin", about["dtype"], mode="r")
    return Tokens(
        ids=ids,
        key=key,
        text=about["text"],
        tokenizer=about["tokenizer"],
        vocabulary=about["vocabulary"],
        end=about["end"],
        mask=about["mask"],
    )
