"""Logs of parameter changes, of layerline and of others: a line for each optimizer step.

The form is that of `profile.eager.parameters.log`. Quirks: ``iter 5:`` for ``5:``, commas between
the counts, lines of ``#`` comments, and a last line that was cut short when its writer was killed
(left out, with a note). Iterations go up. Where one does not, the run was resumed from a checkpoint
or two runs share the file; the two would count twice, so that is an error (see `lines`).

Table: `parameters`, a row for each parameter that a line names. A parameter that no line names has
no row: without its index file nobody knows that it exists.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from ....core import tables
from ....core.errors import InputError
from ....profile.eager.parameters.log import LINE, counts
from ..base import Artefact, Head
from ..bounded import open_text

KIND = "parameter-log"
DESCRIPTION = "log of parameter changes: unix time, step, index:count of each parameter"

MAX_BYTES = 4 << 30
MAX_COUNTS = 100_000_000
_LARGEST = 2**53  # of a count, a step or an index
_BEFORE = re.compile(r"(?:[ \t]*+(?:#[^\n]*+)?\r?\n)*+")


class Line(NamedTuple):
    """One step: when, which, and (index, elements changed)."""

    unix_time: float
    step: int
    counts: list[tuple[int, int]]


def sniff(head: Head) -> bool:
    """A first line of this form. One that is longer than the head is looked at in part."""
    text = head.text[_BEFORE.match(head.text).end() :]  # type: ignore[union-attr]
    first, end, _ = text.partition("\n")
    found = LINE.fullmatch(first if end else first.rpartition(" ")[0] or first)
    return found is not None and counts(found["counts"]) is not None


def read(path: Path) -> Artefact:
    """The log's table. InputError also where iterations go back."""
    return artefact(path, *lines(path))


def artefact(path: Path, steps: list[Line], notes: list[str]) -> Artefact:
    """The table of lines that were read."""
    named = [len(s.counts) for s in steps]
    columns = {
        "source": pa.array([path.name] * sum(named), pa.string()),
        "step": [s.step for s, n in zip(steps, named, strict=True) for _ in range(n)],
        "unix_time": [s.unix_time for s, n in zip(steps, named, strict=True) for _ in range(n)],
        "index": [index for s in steps for index, _ in s.counts],
        "changed": [count for s in steps for _, count in s.counts],
    }
    facts = {
        "steps": len(steps),
        "first_step": steps[0].step,
        "last_step": steps[-1].step,
        "parameters_named": len(set(columns["index"])),
    }
    return Artefact(KIND, {"parameters": tables.table("parameters", columns)}, facts, notes)


def lines(path: Path, *, resumed: bool = False) -> tuple[list[Line], list[str]]:
    """Every step in order, and notes.

    `resumed`: where iterations go back, the later ones stand in place of those that they repeat,
    and all that was after them is of the run that was given up; InputError otherwise.
    """
    steps: list[Line] = []
    notes: list[str] = []
    counted, given_up = 0, 0
    with open_text(path, MAX_BYTES) as file:
        for number, text in enumerate(file, 1):
            if not text.strip() or text.lstrip().startswith("#"):
                continue
            line = _line(text, number, path)
            if line is None:
                if text.endswith("\n"):
                    raise InputError(
                        f"line {number} is not `unixtime, iteration: index:count …`",
                        file=path,
                        fix="was something else written into it?",
                    )
                notes.append(f"line {number}, the last, is cut short and left out")
                break
            if steps and line.step <= steps[-1].step:
                if not resumed:
                    raise InputError(
                        f"line {number} is iteration {line.step} after {steps[-1].step}: the run "
                        "was resumed there, or two runs share the file",
                        file=path,
                        fix="--resumed takes the later of iterations that repeat; split the file "
                        "if it holds two runs",
                    )
                while steps and steps[-1].step >= line.step:
                    steps.pop()
                    given_up += 1
            steps.append(line)
            counted += len(line.counts)
            if counted > MAX_COUNTS:
                raise InputError(f"has over {MAX_COUNTS:,} counts", file=path, fix="split it")
    if not steps:
        raise InputError("has no complete line", file=path, fix="was the run cut short?")
    if given_up:
        notes.append(f"{given_up} iterations of a run that was resumed before them are left out")
    return steps, notes


def _line(text: str, number: int, path: Path) -> Line | None:
    """None where it is of another form."""
    # Of a last line without its end, the last count may lack digits.
    found = LINE.fullmatch(text) if text.endswith("\n") else None
    pairs = None if found is None else counts(found["counts"])
    if found is None or pairs is None:
        return None
    step = int(found["step"])
    if len(dict(pairs)) < len(pairs):
        twice = next(i for at, (i, _) in enumerate(pairs) if i in dict(pairs[:at]))
        raise InputError(f"line {number} has the index {twice} twice", file=path)
    if step > _LARGEST or any(max(pair) > _LARGEST for pair in pairs):
        raise InputError(f"line {number} has a number that is too large", file=path)
    return Line(float(found["time"]), step, pairs)
