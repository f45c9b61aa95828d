"""A table as lines of text for a terminal, files and other programs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

WIDEST = 72  # of a column of names that others follow: a longer name moves its own line alone


def aligned(
    head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()
) -> Iterator[str]:
    """The heading and the rows, columns as wide as they need and two spaces between them, the last
    one not padded; `right`: those of figures."""
    table = [list(head), *(list(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    widths = [w if i in right else min(w, WIDEST) for i, w in enumerate(widths)]
    for row in table:
        before = "".join(
            (c.rjust(w) if i in right else c.ljust(w)) + "  "
            for i, (c, w) in enumerate(zip(row[:-1], widths[:-1], strict=True))
        )
        yield (before + row[-1]).rstrip()
