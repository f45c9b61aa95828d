"""Tables for files and other programs: columns as wide as they need, the last one not padded."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

WIDEST = 72  # of a column of names that others follow: a longer name moves its own line alone


def lines(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    width: int | None = None,
) -> Iterator[str]:
    """The heading and the rows, two spaces between columns; `right`: those of figures. The last
    column is shortened to lines of `width` characters, where that is given."""
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    widths = [w if i in right else min(w, WIDEST) for i, w in enumerate(widths)]
    for row in table:
        before = "".join(
            (c.rjust(w) if i in right else c.ljust(w)) + "  "
            for i, (c, w) in enumerate(zip(row[:-1], widths[:-1], strict=True))
        )
        last = row[-1] if width is None else fitted(row[-1], width - len(before))
        yield (before + last).rstrip()


def fitted(name: str, width: int) -> str:
    """A name without its middle: names of one kind differ at their ends."""
    room = max(width, 20)
    if len(name) <= room:
        return name
    tail = (room - 1) // 3
    return f"{name[: room - 1 - tail]}…{name[-tail:]}"
