"""A table for a terminal of any width, and the same for other programs.

On a terminal figures are never cut (one without its last digits is another number), names lose
their middle, and columns that can be spared go where the width lacks. For a file or another
program nothing is cut, and a tab ends each column: ``cut -s -f2`` and ``awk -F'\\t'`` take them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from ...formatting import fitted, visible

BETWEEN = 2  # blanks between columns
LEAST = 20  # characters of a name, whatever the width


@dataclass(frozen=True)
class Column:
    """`plain`: the cells for other programs, with their heading, where they are written otherwise
    (empty: no column there). `spare`: the columns with the highest go first where the width lacks;
    0: never."""

    head: str
    cells: Sequence[str]
    figure: bool = True
    name: bool = False
    spare: int = 0
    plain: Sequence[tuple[str, Sequence[str]]] | None = None

    @property
    def width(self) -> int:
        """Of its widest cell; of names the least that they are cut to, or their own."""
        own = max(map(cell_len, (self.head, *self.cells)))
        return min(own, LEAST) if self.name else own


def show(console: Console, columns: Sequence[Column]) -> None:
    """Print a table: fitted to a terminal, else for other programs."""
    columns = [_visible(c) for c in columns]
    if not console.is_terminal:
        console.file.writelines(f"{line}\n" for line in _piped(columns))  # rich expands tabs
        return
    kept = _kept(columns, console.width)
    for at, line in enumerate(_fitted(kept, console.width)):
        console.print(Text(line, style="" if at else "bold"), soft_wrap=True)
    gone = [c.head for c in columns if c not in kept]
    if gone:
        console.print(Text(f"left out for the width: {', '.join(gone)}"), soft_wrap=True)


def _visible(column: Column) -> Column:
    if column.figure:
        return column
    return Column(column.head, [visible(c) for c in column.cells], False, column.name, column.spare)


def _kept(columns: Sequence[Column], width: int) -> list[Column]:
    kept = list(columns)
    while sum(c.width for c in kept) + BETWEEN * (len(kept) - 1) > width:
        spared = max((c for c in kept if c.spare), key=lambda c: c.spare, default=None)
        if spared is None:
            break
        kept.remove(spared)
    return kept


def _fitted(columns: Sequence[Column], width: int) -> Iterator[str]:
    widths = [c.width for c in columns]
    room = width - sum(widths) - BETWEEN * (len(columns) - 1)
    full = [max(map(cell_len, (c.head, *c.cells))) for c in columns]
    names = sorted((i for i, c in enumerate(columns) if c.name), key=full.__getitem__)
    room += sum(widths[i] for i in names)
    for left, i in zip(range(len(names), 0, -1), names, strict=True):
        widths[i] = max(widths[i], min(full[i], room // left))
        room -= widths[i]
    cut = [
        [c.head, *(told_apart(c.cells, w) if c.name else c.cells)]
        for c, w in zip(columns, widths, strict=True)
    ]
    for row in zip(*cut, strict=True):
        cells = [
            cell.rjust(w) if c.figure else cell.ljust(w)
            for c, cell, w in zip(columns, row, widths, strict=True)
        ]
        yield (" " * BETWEEN).join(cells).rstrip()


def told_apart(names: Sequence[str], width: int) -> list[str]:
    """Names without their middle; those that would then be written alike without what they have in
    common, too."""
    alike: dict[str, set[str]] = {}
    for name in names:
        alike.setdefault(fitted(name, width), set()).add(name)
    shown = []
    for name in names:
        text = fitted(name, width)
        same = len(_common(alike[text]))
        if len(alike[text]) > 1 and same > width // 4 + 1:
            text = f"{name[: width // 4]}…{name[max(same - 3, width // 4) :]}"
            text = text if len(text) <= width else f"{text[: width - 1]}…"
        shown.append(text)
    return shown


def _common(names: Collection[str]) -> str:
    """How all of them begin."""
    first, last = min(names), max(names)
    pairs = enumerate(zip(first, last, strict=False))
    return first[: next((i for i, (a, b) in pairs if a != b), len(first))]


def _piped(columns: Sequence[Column]) -> Iterator[str]:
    figures: list[tuple[str, list[str]]] = []
    texts: list[tuple[str, list[str]]] = []
    names: list[tuple[str, list[str]]] = []  # last: no line is wider than it need be
    for column in columns:
        place = figures if column.figure else names if column.name else texts
        whole = [(column.head, column.cells)] if column.plain is None else column.plain
        place += [(head, list(cells)) for head, cells in whole]
    texts += names
    widths = [max(map(len, (head, *cells))) for head, cells in figures]
    for row in zip(*((head, *cells) for head, cells in (*figures, *texts)), strict=True):
        numbers = [cell.rjust(w) for cell, w in zip(row, widths, strict=False)]
        yield "\t".join([*numbers, *row[len(figures) :]])
